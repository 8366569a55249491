"""Readers of a group: what they deliver, what they finish, what comes again, and how they follow the group."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

import anyio
import attrs
import pytest

from eventproc import Event, ScalingPolicy, Stream
from eventproc.groups import GroupReader
from eventproc.runtime import Eventproc
from eventproc.store.model.errors import Closed, InvalidArgument, NotFound, StreamReplaced
from eventproc.store.model.group_errors import ReaderOnline
from eventproc.store.model.ids import SegmentId
from eventproc.topics import Group
from tests.groups.support import eventually, is_number, read_until_tail, write, written


async def test_the_tour_of_the_readme_reads_up_to_a_cut(ep: Eventproc) -> None:
    orders = await written(ep, 20, segments=2)
    group = await ep.create_group("billing", ["s/t"])
    assert group.name == "s/billing"
    async with group.reader("r1") as reader:
        assert sorted(await read_until_tail(reader, orders)) == list(range(20))
        await write(orders, range(20, 30))
        assert sorted(await read_until_tail(reader, orders)) == list(range(20, 30))
    assert (await group.describe()).events == 0
    await group.delete()
    with pytest.raises(NotFound):
        await ep.group("s/billing")


async def test_asking_for_the_next_event_finishes_the_previous_one(ep: Eventproc) -> None:
    stream = await written(ep, 5)
    group = await ep.create_group("g", ["s/t"])

    async def fail_at_3() -> None:
        async with group.reader("a") as reader, aclosing(aiter(reader)) as events:
            async for event in events:
                if int(event.payload) == 3:
                    raise ValueError("of the user")

    with pytest.raises(ValueError, match="of the user"):
        await fail_at_3()
    async with group.reader("a") as reader:
        assert await read_until_tail(reader, stream) == [3, 4]


async def test_leaving_cleanly_finishes_what_was_handed_out_last(ep: Eventproc) -> None:
    stream = await written(ep, 5)
    group = await ep.create_group("g", ["s/t"])
    async with group.reader("a") as reader:
        async with aclosing(aiter(reader)) as events:
            async for event in events:
                if int(event.payload) == 3:
                    break
        assert (await group.cuts())["s/t"].offsets[SegmentId(0)] <= 3 * 9
    assert (await group.cuts())["s/t"].offsets == {0: 4 * 9}
    async with group.reader("a") as reader:
        assert await read_until_tail(reader, stream) == [4]


async def test_a_reader_goes_on_in_a_group_that_was_created_again_under_its_name(ep: Eventproc) -> None:
    stream = await written(ep, 5)
    group = await ep.create_group("g", ["s/t"])
    async with group.reader("a") as reader:
        async with aclosing(aiter(reader)) as events:
            assert (await anext(events)).payload == b"0"
            await group.delete()
            group = await ep.create_group("g", ["s/t"])
            assert [int((await anext(events)).payload) for _ in range(3)] == [0, 1, 2]
        assert await read_until_tail(reader, stream) == [3, 4]
    assert (await group.describe()).events == 0


async def test_after_a_break_reading_goes_on_behind_the_last_event(ep: Eventproc) -> None:
    stream = await written(ep, 6)
    group = await ep.create_group("g", ["s/t"])
    async with group.reader("a") as reader:
        async with aclosing(aiter(reader)) as events:
            assert int((await anext(events)).payload) == 0
        async with aclosing(reader.batches()) as batches:
            assert [int(event.payload) for event in await anext(batches)] == [1, 2, 3, 4, 5]
        assert reader.position == {"s/t": {0: 6 * 9}}
        assert await read_until_tail(reader, stream) == []


async def test_progress_is_durable_a_second_later_while_the_user_works(ep: Eventproc, form: str) -> None:
    await written(ep, 3)
    group = await ep.create_group("g", ["s/t"])
    async with group.reader("a") as reader, aclosing(aiter(reader)) as events:
        await anext(events)
        await anext(events)
        await eventually(ep, lambda: is_number(group, 1))


async def test_checkpoint_makes_durable_what_was_handed_out(ep: Eventproc) -> None:
    await written(ep, 3)
    group = await ep.create_group("g", ["s/t"])
    async with group.reader("a") as reader, aclosing(aiter(reader)) as events:
        await anext(events)
        await anext(events)
        await reader.commit()
        assert (await group.describe()).segments[0].number == 2
        assert int((await anext(events)).payload) == 2


async def test_a_thousand_events_of_a_fast_reader_are_made_durable_at_once(ep: Eventproc) -> None:
    await written(ep, 2500)
    group = await ep.create_group("g", ["s/t"])
    async with group.reader("a") as reader, aclosing(aiter(reader)) as events:
        for _ in range(2001):
            await anext(events)
        assert 2000 - (await group.describe()).segments[0].number < 1000  # counted from the begin of a run


async def test_batches_of_any_size_are_read_up_to_a_cut(ep: Eventproc) -> None:
    stream = await written(ep, 5000, segments=3)
    group = await ep.create_group("g", ["s/t"])
    async with group.reader("a") as reader:
        batches = [batch async for batch in reader.batches(until=await stream.tail())]
    assert sorted(int(event.payload) for batch in batches for event in batch) == list(range(5000))
    assert (await group.describe()).events == 0


@pytest.mark.acceptance("E12")
async def test_readers_share_and_each_event_is_delivered_once(ep: Eventproc) -> None:
    stream = await written(ep, 100, segments=6)
    group = await ep.create_group("g", ["s/t"])
    seen: list[int] = []

    async def read(name: str) -> None:
        async with group.reader(name) as reader:
            await shared.wait()
            async for event in reader:
                seen.append(int(event.payload))  # noqa: PERF401 - one at a time, because other tasks look

    async def is_shared() -> bool:
        return sorted(member.owned for member in (await group.describe()).members) == [2, 2, 2]

    async def is_read() -> bool:
        return len(seen) == 100

    shared = anyio.Event()
    async with anyio.create_task_group() as tasks:
        for name in "a", "b", "c":
            tasks.start_soon(read, name)
        await eventually(ep, is_shared)
        shared.set()
        await eventually(ep, is_read)
        found = await group.describe()
        assert {member.owned for member in found.members} == {2}
        assert found.events <= 100
        await stream.seal()
    assert sorted(seen) == list(range(100))
    assert (await group.describe()).segments == ()


@pytest.mark.acceptance("E11")
async def test_reading_ends_when_all_streams_are_sealed_and_read_across_scales(ep: Eventproc) -> None:
    stream = await written(ep, 20)
    more = await written(ep, 10, name="s/more")
    for segment in await stream.split(0):
        await stream.split(segment)
    await write(stream, range(20, 40))
    await stream.merge(*[segment.id for segment in await stream.segments()][:3])
    await write(stream, range(40, 60))
    await stream.seal()
    await more.seal()
    group = await ep.create_group("g", ["s/t", "s/more"])
    found: dict[tuple[str, str | None], list[int]] = {}
    async with group.reader("a") as reader:
        async for event in reader:
            found.setdefault((event.stream, event.key), []).append(int(event.payload))
    expected = {
        (name, str(key)): [number for number in range(count) if number % 7 == key]
        for name, count in (("s/t", 60), ("s/more", 10))
        for key in range(7)
    }
    assert found == expected, "every event once, and those of a key in order across the scales"
    assert (await group.cuts())["s/t"] == await stream.tail()


@pytest.mark.acceptance("E11")
async def test_a_group_ends_at_its_end_cut(ep: Eventproc) -> None:
    stream = await written(ep, 10, segments=2)
    end = await stream.tail()
    await write(stream, range(10, 20))
    await stream.split(0)
    group = await ep.create_group("g", ["s/t"], until=end)
    assert (await group.describe()).events == 10
    async with group.reader("a") as reader:
        assert sorted([int(event.payload) async for event in reader]) == list(range(10))
    assert await group.cuts() == {"s/t": end}
    assert (await group.describe()).segments == ()


async def test_a_segment_that_is_due_to_another_is_given_away_between_two_events(ep: Eventproc) -> None:
    await written(ep, 1000, segments=2)
    group = await ep.create_group("g", ["s/t"])
    async with group.reader("a") as a, aclosing(aiter(a)) as events:
        seen = [int((await anext(events)).payload) for _ in range(10)]
        async with group.reader("b") as b:
            assert not [*b.owned]
            seen.append(int((await anext(events)).payload))
            with anyio.fail_after(10):
                async with aclosing(aiter(b)) as others:
                    while len(a.owned) == 2:
                        await anyio.lowlevel.checkpoint()
                        seen.append(int((await anext(events)).payload))
                    theirs = int((await anext(others)).payload)
            assert len(a.owned) == len(b.owned) == 1
            assert theirs not in seen
            assert len(set(seen)) == len(seen) < 100


@attrs.frozen
class Order:
    number: int


async def test_payloads_may_have_a_type(ep: Eventproc) -> None:
    stream = await ep.create_stream("s/t")
    async with stream.writer(payload=Order) as writer:
        await writer.write(Order(7))
    group = await ep.create_group("g", ["s/t"])
    async with group.reader("a", payload=Order) as reader:
        assert [event.payload async for event in reader.until(await stream.tail())] == [Order(7)]


async def test_what_cannot_be_is_refused_by_name(ep: Eventproc) -> None:
    stream = await written(ep, 1)
    other = await written(ep, 1, name="s/other")
    group = await ep.create_group("g", ["s/t"])
    reader = group.reader("a")
    with pytest.raises(Closed):
        await reader.commit()
    async with reader:
        with pytest.raises(ReaderOnline):
            async with group.reader("a"):
                pass
        with pytest.raises(InvalidArgument):
            await anext(reader.until(await other.tail()))
        with pytest.raises(StreamReplaced):
            await anext(reader.until(attrs.evolve(await stream.tail(), stream_id=999)))
    with pytest.raises(InvalidArgument):
        async with group.reader(""):
            pass
    with pytest.raises(InvalidArgument):
        await ep.create_group("h", ["s/t"], patience_ms=1)


@asynccontextmanager
async def reader_before_forgotten_successors(
    ep: Eventproc,
) -> AsyncIterator[tuple[Stream, Group, GroupReader, AsyncIterator[Event]]]:
    """A reader that has read a segment to its end, whose successors are forgotten, and its events."""
    stream = await ep.create_stream("s/t", scaling=ScalingPolicy.fixed(2))
    group = await ep.create_group("g", ["s/t"])
    async with stream.writer() as writer:
        ended, other = sorted({(await writer.write(b"", key=f"{each}")).segment for each in range(20)})
    left, _ = await stream.split(ended)
    async with group.reader("a") as reader, aclosing(aiter(reader)) as events:
        for _ in range(20):
            await anext(events)
        for _ in range(2):
            left, _ = await stream.split(left)
        tail = await stream.tail()
        await stream.truncate(attrs.evolve(tail, offsets={**tail.offsets, other: 0}))
        yield stream, group, reader, events


async def test_what_was_read_is_finished_on_leaving_before_forgotten_successors(ep: Eventproc) -> None:
    async with reader_before_forgotten_successors(ep) as (stream, group, *_):
        pass
    async with group.reader("b") as reader:
        assert [event async for event in reader.until(await stream.tail())] == []


async def test_reader_before_forgotten_successors_gives_other_segments_away(ep: Eventproc) -> None:
    async with reader_before_forgotten_successors(ep) as (stream, group, reader, events):
        async with group.reader("b") as other, stream.writer() as writer:
            await writer.write_many((b"more", f"{each}") for each in range(20))
            tail = await stream.tail()
            with anyio.fail_after(20):
                seen = [(await anext(events)).payload]
                for each in reader, other:
                    seen += [event.payload async for event in each.until(tail)]
        assert seen == [b"more"] * 20
