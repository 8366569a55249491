"""A group knows the type of its payloads, and so do its consumers and readers, for type checkers too."""

from __future__ import annotations

from contextlib import aclosing
from pathlib import Path
from typing import assert_type

import attrs
import pytest

import eventproc
from eventproc import Consumer, DeadLetters, Group, GroupReader, ShareConsumer, ShareGroup, to_dict
from eventproc.describe import DeadLetter
from eventproc.errors import InvalidArgument, StreamReplaced
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


async def test_groups_of_the_handles_of_typed_streams_have_their_type(ep: Eventproc) -> None:
    await write_tasks(ep)
    first = await ep.stream("s/t", payload=TypedTask)
    second = await ep.create_topic("s/u", partitions=1, payload=TypedTask)
    shared = assert_type(await ep.create_share_group("work", [first]), ShareGroup[TypedTask])
    async with assert_type(shared.consumer("a"), ShareConsumer[TypedTask]) as consumer:
        assert [each.event.payload for each in await consumer.poll()] == [TypedTask(1)]
    group = assert_type(await ep.create_group("g", [first, second]), Group[TypedTask])
    assert [each.name for each in (await group.info()).streams] == ["s/t", "s/u"]
    async with assert_type(group.consumer("a"), Consumer[TypedTask]) as member:
        assert [each.payload for each in await member.poll()] == [TypedTask(1)]
    assert_type(await ep.create_group("raw", [await ep.stream("s/t")]), Group[bytes])


async def test_streams_of_several_types_need_the_type_of_the_group(ep: Eventproc) -> None:
    await write_tasks(ep)
    typed, texts = await ep.stream("s/t", payload=TypedTask), await ep.create_stream("s/x", payload=str)
    for streams in [typed, texts], [typed, texts.name]:
        with pytest.raises(InvalidArgument, match="pass payload= or codec="):
            await ep.create_group("g", streams)  # type: ignore[arg-type]
    assert await ep.groups() == []
    await ep.create_group("g", [typed, texts], payload=bytes)  # type: ignore[arg-type]


async def test_a_handle_of_a_deleted_stream_makes_no_group(ep: Eventproc) -> None:
    await write_tasks(ep)
    old = await ep.stream("s/t", payload=TypedTask)
    await old.seal()
    await old.delete()
    await write_tasks(ep)
    with pytest.raises(StreamReplaced):
        await ep.create_group("g", [old])
    with pytest.raises(StreamReplaced):
        await ep.create_share_group("work", [old])
    assert await ep.groups() == await ep.share_groups() == []


async def test_dead_letters_have_the_type_of_their_share_group(ep: Eventproc) -> None:
    await write_tasks(ep)
    stream = await ep.stream("s/t", payload=TypedTask)
    async with stream.writer(payload=bytes) as writer:
        await writer.write(b"no task")
    group = await ep.create_share_group("work", [stream])
    async with group.consumer("a", payload=bytes) as raw:
        await raw.reject(await raw.poll())
    read, broken = assert_type(await group.dead_letters.list(), list[DeadLetter[TypedTask]])
    assert assert_type(read.value, TypedTask) == TypedTask(1)
    assert broken.payload == b"no task"
    with pytest.raises(InvalidArgument):
        _ = broken.value
    letters = assert_type(ep.dead_letters("s/work", payload=TypedTask), DeadLetters[TypedTask])
    assert (await letters.get(read.id)).value == TypedTask(1)
    assert (await ep.dead_letters("s/work").get(read.id)).value == read.payload
    assert "decode" not in to_dict(read)


def test_the_blocking_twin_takes_the_handles_of_streams_too(tmp_path: Path) -> None:
    with eventproc.open_blocking(tmp_path / "store") as ep:
        ep.create_scope("s")
        stream = ep.create_stream("s/t", payload=TypedTask)
        with stream.writer() as writer:
            writer.write(TypedTask(1))
        group = ep.create_share_group("work", [stream])
        with group.consumer("a") as consumer:
            (each,) = consumer.poll()
            assert assert_type(each.event.payload, TypedTask) == TypedTask(1)


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
