"""What is no group, reader, place or position is refused by name, with what to give instead; nothing happens."""

from __future__ import annotations

from typing import Any

import pytest

from eventproc.runtime import Eventproc
from eventproc.store.model.errors import InvalidArgument
from eventproc.store.model.ids import SegmentId
from tests.groups.support import written


@pytest.mark.parametrize("reader", ["", " ", "a ", "a\n", "a\0b", "\ud800", "x" * 256, 5, None])
async def test_a_reader_has_an_id_that_can_be_shown(ep: Eventproc, reader: Any) -> None:
    await written(ep, 1)
    group = await ep.create_group("g", ["s/t"])
    with pytest.raises(InvalidArgument, match="reader"):
        async with group.reader(reader):
            pass
    with pytest.raises(InvalidArgument, match="reader"):
        await group.reader_offline(reader)


@pytest.mark.parametrize("name", ["", "a b", "a/b/c", "/", "s/", "\ud800", 5, None])
async def test_a_group_is_refused_as_a_group_and_not_as_a_stream(ep: Eventproc, name: Any) -> None:
    await written(ep, 1)
    with pytest.raises(InvalidArgument, match=r"^group"):
        await ep.create_group(name, ["s/t"])
    with pytest.raises(InvalidArgument, match=r"^group"):
        await ep.group(name)


@pytest.mark.parametrize("until", [5, "tail", [5]])
async def test_reading_ends_at_cuts(ep: Eventproc, until: Any) -> None:
    await written(ep, 1)
    group = await ep.create_group("g", ["s/t"])
    async with group.reader("a") as reader:
        with pytest.raises(InvalidArgument, match="end of reading"):
            await anext(reader.until(until))


@pytest.mark.parametrize(
    "position", [5, "x", {"s/t": 5}, {"s/t": {0: "x"}}, {"s/t": {0: -1}}, {"s/t": {7: 0}}, {"s/u": {}}]
)
async def test_a_position_is_offsets_in_what_the_reader_owns(ep: Eventproc, position: Any) -> None:
    await written(ep, 1)
    group = await ep.create_group("g", ["s/t"])
    async with group.reader("a") as reader:
        with pytest.raises(InvalidArgument):
            await group.reader_offline("a", position)
        assert len(reader.owned) == 1


@pytest.mark.parametrize(
    "position", [5, 0, "", [], {"s/t": 5}, {"s/t": {0: "x"}}, {"s/t": {"x": 0}}, {5: {}}]
)
async def test_what_is_no_position_is_refused_also_of_a_reader_that_is_not_online(
    ep: Eventproc, position: Any
) -> None:
    await written(ep, 1)
    group = await ep.create_group("g", ["s/t"])
    with pytest.raises(InvalidArgument):
        await group.reader_offline("unknown", position)
    await group.reader_offline("unknown", {"s/t": {SegmentId(0): 0}})


async def test_a_reset_begins_at_one_place(ep: Eventproc) -> None:
    await written(ep, 1)
    group = await ep.create_group("g", ["s/t"])
    await group.checkpoint("one")
    with pytest.raises(InvalidArgument, match="the checkpoint says where to begin"):
        await group.reset("tail", checkpoint="one")


@pytest.mark.parametrize("timeout_ms", [-1, "1", None, 1.5])
async def test_a_wait_for_a_checkpoint_is_a_number_of_ms(ep: Eventproc, timeout_ms: Any) -> None:
    await written(ep, 1)
    group = await ep.create_group("g", ["s/t"])
    with pytest.raises(InvalidArgument, match="timeout"):
        await group.checkpoint(timeout_ms=timeout_ms)


async def test_streams_without_a_cut_are_not_read_also_after_a_reset(ep: Eventproc) -> None:
    stream = await written(ep, 3)
    await written(ep, 3, name="s/u")
    group = await ep.create_group("g", ["s/t", "s/u"], start="tail")
    async with group.reader("a") as reader:
        events = reader.until(await stream.tail())
        await group.reset("head")
        assert [event.stream async for event in events] == ["s/t"] * 3
