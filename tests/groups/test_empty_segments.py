"""Empty sealed segments: a group passes any number of them in one step, at its start and behind a segment that ends."""

from __future__ import annotations

from collections.abc import Iterable

from eventproc import Group, Stream
from eventproc.groups.stored_state import folded_state
from eventproc.runtime import Eventproc
from eventproc.store.database import Tx
from eventproc.store.groups import GROUP
from eventproc.store.records import get
from tests.groups.support import write, written


async def replace_segments(stream: Stream, count: int) -> None:
    """Split the segments of the stream, or merge them, `count` times."""
    for number in range(count):
        sealed = [each.id for each in await stream.segments()]
        await stream.scale(seal=sealed, ranges=[(0.0, 0.5), (0.5, 1.0)] if number % 2 else [(0.0, 1.0)])


async def generation_of(ep: Eventproc, group: Group) -> int:
    """How often the group changed: each change is a commit that wakes all its readers."""

    def look(tx: Tx) -> int:
        state = folded_state(tx, get(tx, GROUP, group.name).value).state
        state.check()
        return state.generation

    return await ep.db.read(look)


async def changes_to_read(ep: Eventproc, stream: Stream, name: str) -> tuple[list[int], int]:
    """Read a sealed stream with a new group, and return its events and how often that changed the group."""
    group = await ep.create_group(name, [stream.name])
    before = await generation_of(ep, group)
    async with group.reader("a") as reader:
        events = [int(event.payload) async for event in reader]
    return events, await generation_of(ep, group) - before


async def changes_of_history(ep: Eventproc, name: str, counts: Iterable[int]) -> int:
    """Read a stream with three events before each of `counts` scales; return how often that changed its group."""
    stream = await written(ep, 0, name=f"s/{name}")
    written_count = 0
    for count in counts:
        await write(stream, range(written_count, written_count + 3))
        written_count += 3
        await replace_segments(stream, count)
    await write(stream, range(written_count, written_count + 3))
    await stream.seal()
    events, changes = await changes_to_read(ep, stream, name)
    assert sorted(events) == list(range(written_count + 3))
    return changes


async def test_a_new_group_begins_behind_all_empty_sealed_segments(ep: Eventproc) -> None:
    stream = await written(ep, 0)
    await replace_segments(stream, 31)
    group = await ep.create_group("g", ["s/t"])
    active = {each.id for each in await stream.segments()}
    assert set((await group.cuts())["s/t"].offsets) == active
    await write(stream, range(5))
    await stream.seal()
    async with group.reader("a") as reader:
        assert sorted([int(event.payload) async for event in reader]) == list(range(5))


async def test_a_segment_that_ends_takes_any_number_of_empty_ones_with_it(ep: Eventproc) -> None:
    assert await changes_of_history(ep, "short", [2, 4]) == await changes_of_history(ep, "long", [30, 20])


async def test_a_sealed_stream_without_events_is_finished_when_a_group_begins(ep: Eventproc) -> None:
    stream = await written(ep, 0)
    await replace_segments(stream, 7)
    await stream.seal()
    assert (await changes_to_read(ep, stream, "g"))[0] == []


async def test_a_group_does_not_pass_its_end(ep: Eventproc) -> None:
    stream = await written(ep, 3)
    await replace_segments(stream, 5)
    end = await stream.tail()
    await replace_segments(stream, 5)
    await write(stream, range(3, 6))
    group = await ep.create_group("g", ["s/t"], until=end)
    async with group.reader("a") as reader:
        assert sorted([int(event.payload) async for event in reader]) == [0, 1, 2]
    at_end = await ep.create_group("h", ["s/t"], start=end, until=end)
    async with at_end.reader("a") as reader:
        assert [event async for event in reader] == []


async def test_an_empty_segment_waits_for_its_other_predecessor_with_events(ep: Eventproc) -> None:
    stream = await written(ep, 20)
    await replace_segments(stream, 2)
    lower, upper = await stream.segments()
    await stream.scale(seal=[lower.id], ranges=[(0.0, 0.5)])
    await write(stream, range(20, 40))
    await stream.scale(seal=[upper.id], ranges=[(0.5, 1.0)])
    await replace_segments(stream, 3)
    await write(stream, range(40, 60))
    await stream.seal()
    events, _ = await changes_to_read(ep, stream, "g")
    assert [sorted(events[at : at + 20]) for at in (0, 20, 40)] == [
        list(range(at, at + 20)) for at in (0, 20, 40)
    ]
