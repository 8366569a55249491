"""A group knows the type of its payloads, and so do its consumers and readers, for type checkers too."""

from __future__ import annotations

from contextlib import aclosing
from typing import assert_type

import attrs
import pytest

from eventproc import Consumer, Group, GroupReader, ShareConsumer, ShareGroup
from eventproc.errors import InvalidArgument
from eventproc.runtime import Eventproc
from eventproc.shares import Delivery


@attrs.frozen
class TypedTask:
    """What the streams of these tests hold."""

    number: int


async def write_tasks(ep: Eventproc) -> None:
    stream = await ep.create_stream("s/t", payload=TypedTask)
    async with stream.writer() as writer:
        await writer.write(TypedTask(1))


async def test_consumers_of_a_typed_share_group_deliver_its_type(ep: Eventproc) -> None:
    await write_tasks(ep)
    made = assert_type(await ep.create_share_group("work", ["s/t"], payload=TypedTask), ShareGroup[TypedTask])
    found = assert_type(await ep.share_group("s/work", payload=TypedTask), ShareGroup[TypedTask])
    for group in made, found:
        async with assert_type(group.consumer("a"), ShareConsumer[TypedTask]) as consumer:
            (each,) = assert_type(await consumer.poll(), list[Delivery[TypedTask]])
            assert assert_type(each.event.payload, TypedTask) == TypedTask(1)
        await group.reset()
    async with assert_type(found.consumer("a", payload=bytes), ShareConsumer[bytes]) as raw:
        assert isinstance((await raw.poll())[0].event.payload, bytes)
    async with assert_type((await ep.share_group("s/work")).consumer("a"), ShareConsumer[bytes]) as raw:
        assert isinstance((await raw.poll())[0].event.payload, bytes)


async def test_a_handle_without_a_type_fits_no_place_for_a_typed_one(ep: Eventproc) -> None:
    await write_tasks(ep)
    await ep.create_share_group("work", ["s/t"])
    typed: ShareGroup[TypedTask] = await ep.share_group("s/work")  # type: ignore[assignment]
    async with typed.consumer("a") as consumer:
        assert isinstance((await consumer.poll())[0].event.payload, bytes)


async def test_readers_and_consumers_of_a_typed_group_deliver_its_type(ep: Eventproc) -> None:
    await write_tasks(ep)
    assert_type(await ep.create_group("g", ["s/t"], payload=TypedTask), Group[TypedTask])
    group = assert_type(await ep.group("s/g", payload=TypedTask), Group[TypedTask])
    async with assert_type(group.consumer("a", auto_commit=False), Consumer[TypedTask]) as consumer:
        assert [assert_type(each.payload, TypedTask) for each in await consumer.poll()] == [TypedTask(1)]
    async with (
        assert_type(group.reader("a"), GroupReader[TypedTask]) as reader,
        aclosing(aiter(reader)) as events,
    ):
        assert assert_type((await anext(events)).payload, TypedTask) == TypedTask(1)


async def test_a_group_of_a_type_without_a_codec_is_refused(ep: Eventproc) -> None:
    await write_tasks(ep)
    with pytest.raises(InvalidArgument):
        await ep.create_share_group("work", ["s/t"], payload="TypedTask")  # type: ignore[call-overload]
    assert await ep.share_groups() == []
    with pytest.raises(InvalidArgument):
        await ep.group("s/g", codec=TypedTask)  # type: ignore[call-overload]
