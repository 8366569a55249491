"""Where a group ends, after it was reset."""

from __future__ import annotations

import pytest

from eventproc import Group, Stream, StreamCut
from eventproc.runtime import Eventproc
from eventproc.store.model.errors import NotFound
from tests.groups.support import write, written


async def ending(ep: Eventproc) -> tuple[Stream, StreamCut, Group]:
    """Make a group that ends after 10 events of a stream that has 20."""
    stream = await written(ep, 10, segments=2)
    end = await stream.tail()
    await write(stream, range(10, 20))
    return stream, end, await ep.create_group("g", ["s/t"], until=end)


async def read_all(group: Group) -> list[int]:
    async with group.reader("a") as reader:
        return sorted([int(event.payload) async for event in reader])


async def test_a_group_that_is_reset_ends_where_it_ended(ep: Eventproc) -> None:
    _, _, group = await ending(ep)
    assert await read_all(group) == list(range(10))
    checkpoint = await group.checkpoint("end")
    await group.reset("head")
    assert await read_all(group) == list(range(10))
    assert await group.checkpoints() == [checkpoint]
    await group.reset(checkpoint="end")
    assert await read_all(group) == []


async def test_a_reset_can_move_the_end_and_forgets_the_checkpoints_then(ep: Eventproc) -> None:
    stream, _, group = await ending(ep)
    await read_all(group)
    await group.checkpoint("end")
    await group.reset("head", until=await stream.tail())
    assert await read_all(group) == list(range(20))
    with pytest.raises(NotFound):
        await group.reset(checkpoint="end")


async def test_the_end_of_a_deleted_stream_is_not_that_of_the_next_one(ep: Eventproc) -> None:
    stream, _, group = await ending(ep)
    await stream.seal()
    await stream.delete()
    again = await written(ep, 20)
    await group.reset("head")
    await again.seal()
    assert await read_all(group) == list(range(20))


async def test_a_preview_counts_to_where_the_group_would_end(ep: Eventproc) -> None:
    stream, _, group = await ending(ep)
    await stream.scale(seal=[each.id for each in await stream.segments()], ranges=[(0.0, 0.3), (0.3, 1.0)])
    await write(stream, range(20, 30))
    (kept,) = await group.reset(dry_run=True)
    (moved,) = await group.reset(until=None, dry_run=True)
    assert (kept.events_before, kept.events_after, moved.events_after) == (10, 10, 30)
    assert kept.bytes_after == kept.bytes_before
