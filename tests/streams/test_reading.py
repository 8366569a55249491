"""A reader of all segments: where it starts, where it ends, and its error when the stream was deleted."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from itertools import product

import anyio
import pytest

import eventproc
from eventproc.runtime import Eventproc
from eventproc.store.model.cuts import StreamCut
from eventproc.store.model.errors import (
    Closed,
    IllegalTransition,
    InvalidArgument,
    InvalidCut,
    NotFound,
    StreamReplaced,
    Truncated,
)
from eventproc.store.model.ids import SegmentId
from eventproc.store.segments import Event, segment_state
from eventproc.streams import Batch, Stream, StreamReader
from eventproc.streams.fetch import Fetched, Limit, StreamFetcher
from eventproc.testing import VirtualClock, order_violations
from tests.support.memory import (
    clock as clock,  # a fixture
    timed_ep as timed_ep,  # a fixture, too: ep
)

KEYS = [f"key {number}" for number in range(12)]


async def write(stream: Stream, first: int, last: int) -> None:
    """Write events [first, last) of every key."""
    async with stream.writer() as writer:
        for number in range(first, last):
            for key in KEYS:
                await writer.post(b"%d" % number, key=key)


async def read(
    stream: Stream, start: StreamCut | int | str = "head", until: StreamCut | None = None
) -> list[tuple[str | None, int]]:
    end = until or await stream.tail()
    async with stream.reader(start) as reader, aclosing(reader.until(end)) as events:  # type: ignore[arg-type]
        return [(event.key, int(event.payload)) async for event in events]


async def scaled(ep: Eventproc) -> tuple[Stream, list[StreamCut]]:
    """Return a stream that was split and merged while it was written, and its tail after each part."""
    stream = await ep.create_stream("s/t")
    cuts = []
    for part in range(4):
        await write(stream, part * 5, part * 5 + 5)
        cuts.append(await stream.tail())
        ids = [segment.id for segment in await stream.segments()]
        await (stream.split(ids[0], 3) if part % 2 == 0 else stream.merge(*ids[:2]))
    return stream, cuts


def expected(first: int, last: int) -> list[tuple[str | None, int]]:
    return [(key, number) for key in KEYS for number in range(first, last)]


async def test_a_cut_divides_the_stream_into_events_before_and_after(ep: Eventproc) -> None:
    stream, cuts = await scaled(ep)
    for part, cut in enumerate(cuts, 1):
        before, after = await read(stream, "head", cut), await read(stream, cut)
        assert sorted(before) == sorted(expected(0, part * 5))
        assert sorted(after) == sorted(expected(part * 5, 20))
        assert order_violations(before + after, dict.fromkeys(KEYS, 20)) == []


async def test_a_reader_can_stop_after_any_event_and_go_on_from_its_cut(ep: Eventproc) -> None:
    stream, _ = await scaled(ep)
    seen: list[tuple[str | None, int]] = []
    cut: StreamCut = await stream.head()
    tail = await stream.tail()
    while cut != tail:
        async with stream.reader(cut) as reader, aclosing(reader.until(tail)) as events:
            before = len(seen)
            async for event in events:
                seen.append((event.key, int(event.payload)))
                if len(seen) - before == 7:
                    break
            cut = reader.cut()
        if len(seen) == before:
            break
    assert order_violations(seen, dict.fromkeys(KEYS, 20)) == []


async def test_a_bounded_reader_goes_on_to_a_later_bound(ep: Eventproc) -> None:
    stream, cuts = await scaled(ep)
    async with stream.reader() as reader:
        parts = []
        for cut in (*cuts, cuts[0]):
            async with aclosing(reader.until(cut)) as events:
                parts.append([(event.key, int(event.payload)) async for event in events])
    assert [sorted(part) for part in parts[:4]] == [sorted(expected(n * 5, n * 5 + 5)) for n in range(4)]
    assert parts[4] == [], "what was read is not given back"


async def test_reading_from_a_time(ep: Eventproc, clock: VirtualClock) -> None:
    stream = await ep.create_stream("s/t", scaling=eventproc.ScalingPolicy.fixed(2))
    times = []
    for part in range(3):
        clock.advance(10_000)
        times.append(clock.wall_ms())
        await write(stream, part, part + 1)
        clock.advance(10_000)
        await stream.split((await stream.segments())[0].id)
    for part, time_ms in enumerate(times):
        assert sorted(await read(stream, time_ms)) == sorted(expected(part, 3))
    assert sorted(await read(stream, 0)) == sorted(expected(0, 3))
    assert await read(stream, clock.wall_ms() + 1) == []


async def test_from_the_tail_only_later_events_are_read_and_a_sealed_stream_ends(ep: Eventproc) -> None:
    stream = await ep.create_stream("s/t")
    await write(stream, 0, 1)
    seen: list[tuple[str | None, int]] = []
    async with anyio.create_task_group() as tasks:
        entered = anyio.Event()

        async def follow() -> None:
            async with stream.reader("tail") as reader:
                entered.set()
                seen.extend([(event.key, int(event.payload)) async for event in reader])

        tasks.start_soon(follow)
        await entered.wait()
        await stream.split(0)
        await write(stream, 1, 3)
        await stream.merge(*[segment.id for segment in await stream.segments()])
        await write(stream, 3, 4)
        await stream.seal()
    assert sorted(seen) == sorted(expected(1, 4))
    assert sorted(await read(stream)) == sorted(expected(0, 4)), "reading a sealed stream goes on"


async def test_chosen_segments_are_read_alone_and_to_their_own_end(ep: Eventproc) -> None:
    stream = await ep.create_stream("s/t", scaling=eventproc.ScalingPolicy.fixed(2))
    await write(stream, 0, 3)
    await stream.split(0)
    await write(stream, 3, 5)
    async with stream.reader(segments=[0]) as reader:
        events = [event async for event in reader]
    assert {event.segment for event in events} == {0}
    assert {int(event.payload) for event in events} == {0, 1, 2}
    async with stream.reader("tail", segments=[0]) as reader:
        assert [event async for event in reader] == []
    with pytest.raises(NotFound):
        await stream.reader(segments=[99]).__aenter__()
    with pytest.raises(InvalidArgument):
        await stream.reader(await stream.tail(), segments=[0]).__aenter__()


async def test_truncation_beyond_a_reader_raises_and_one_at_its_cut_does_not(ep: Eventproc) -> None:
    stream, cuts = await scaled(ep)
    async with stream.reader() as behind, stream.reader(cuts[1]) as at_cut:
        await stream.truncate(cuts[1])
        with pytest.raises(Truncated):
            await anext(aiter(behind))
        async with aclosing(at_cut.until(await stream.tail())) as events:
            assert len([event async for event in events]) == 10 * len(KEYS)
    with pytest.raises(Truncated):
        await stream.reader(cuts[0]).__aenter__()
    assert sorted(await read(stream)) == sorted(expected(10, 20))


async def test_reading_until_an_earlier_cut_ends_immediately(ep: Eventproc) -> None:
    stream, cuts = await scaled(ep)
    await stream.truncate(cuts[3])
    async with stream.reader() as reader:
        for cut in cuts:
            async with aclosing(reader.until(cut)) as events:
                assert [event async for event in events] == []


async def test_a_reader_of_a_deleted_stream_fails_also_when_the_name_is_reused(
    ep: Eventproc,
) -> None:
    stream, cuts = await scaled(ep)
    async with stream.reader() as reader:
        await stream.seal()
        await stream.delete()
        again = await ep.create_stream("s/t")
        await write(again, 0, 1)
        with pytest.raises(StreamReplaced) as caught:
            await anext(aiter(reader))
        assert (caught.value.stream_id, caught.value.current_id) == (stream.stream_id, again.stream_id)
    for start in (cuts[0], cuts[3]):
        with pytest.raises(StreamReplaced):
            await again.reader(start).__aenter__()
    with pytest.raises(StreamReplaced):
        await stream.reader().__aenter__()
    assert sorted(await read(again)) == sorted(expected(0, 1))


@pytest.mark.parametrize("offsets", [{0: 1}, {0: 10**6}, {5: 0}, {}])
async def test_a_cut_that_does_not_fit_the_stream_is_refused(ep: Eventproc, offsets: dict[int, int]) -> None:
    stream = await ep.create_stream("s/t")
    await write(stream, 0, 2)
    cut = StreamCut(
        "s/t", stream.stream_id, {SegmentId(segment): offset for segment, offset in offsets.items()}
    )
    with pytest.raises(InvalidCut):
        await stream.reader(cut).__aenter__()
    async with stream.reader() as reader:
        with pytest.raises(InvalidCut):
            await anext(reader.until(cut))


async def test_a_reader_that_is_closed_while_it_fetches_says_so(
    ep: Eventproc, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch_next = StreamFetcher.fetch_next
    stream = await ep.create_stream("s/t")
    reader = await stream.reader()

    async def close_meanwhile(self: StreamFetcher, wanted: Mapping[SegmentId, Limit]) -> Fetched:
        found = await fetch_next(self, wanted)
        await reader.close()
        return found

    monkeypatch.setattr(StreamFetcher, "fetch_next", close_meanwhile)
    with pytest.raises(Closed):
        await anext(aiter(reader))


async def test_a_reader_that_was_not_entered_has_no_cut_and_says_so(ep: Eventproc) -> None:
    reader = (await ep.create_stream("s/t")).reader("tail")
    for ask in (reader.cut, lambda: reader.offsets):
        with pytest.raises(
            IllegalTransition, match=r"the reader of s/t: .* open it with `async with` or `await`"
        ):
            ask()
    with pytest.raises(IllegalTransition, match="not open"):
        await anext(reader.batches())


async def test_a_reader_that_is_open_cannot_be_entered_again_and_reads_on(ep: Eventproc) -> None:
    stream = await ep.create_stream("s/t")
    await write(stream, 0, 1)
    async with stream.reader() as reader:
        with pytest.raises(IllegalTransition, match="open already"):
            await reader.__aenter__()
        async with aclosing(reader.until(await stream.tail())) as events:
            assert len([event async for event in events]) == len(KEYS)
        cut = reader.cut()
    assert reader.cut() == cut
    with pytest.raises(Closed):
        await reader.__aenter__()


WAYS: dict[str, Callable[[StreamReader], AsyncGenerator[Event | Batch, None]]] = {
    "events": StreamReader.__aiter__,
    "batches": StreamReader.batches,
}


@pytest.mark.parametrize("earlier, later", list(product(WAYS, repeat=2)))
async def test_a_later_iteration_ends_an_earlier_one_and_nothing_is_handed_out_twice(
    ep: Eventproc, earlier: str, later: str
) -> None:
    stream = await ep.create_stream("s/t")
    seen: list[Event] = []

    async def take(events: AsyncGenerator[Event | Batch, None]) -> None:
        found = await anext(events)
        seen.extend([found] if isinstance(found, Event) else found)

    async with stream.reader() as reader:
        async with aclosing(WAYS[earlier](reader)) as first, aclosing(WAYS[later](reader)) as second:
            await write(stream, 0, 1)
            await take(first)
            await write(stream, 1, 2)
            await take(second)
            await stream.seal()
            cut = reader.cut()
            with pytest.raises(IllegalTransition, match=r"the reader of s/t: .* ended by a later one"):
                await anext(first)
            assert reader.cut() == cut
        async with aclosing(reader.until(await stream.tail())) as events:
            seen.extend([event async for event in events])
    assert [event.number for event in seen] == list(range(2 * len(KEYS)))


async def test_an_iteration_that_could_not_begin_ends_no_earlier_one(ep: Eventproc) -> None:
    stream = await ep.create_stream("s/t")
    await write(stream, 0, 1)
    inside = StreamCut(stream="s/t", stream_id=stream.stream_id, offsets={SegmentId(0): 1})
    async with stream.reader() as reader, aclosing(aiter(reader)) as events:
        first = await anext(events)
        with pytest.raises(InvalidCut):
            await anext(reader.until(inside))
        assert (await anext(events)).number == first.number + 1


async def test_a_segment_that_lags_is_read_although_another_one_is_in_memory(ep: Eventproc) -> None:
    stream = await ep.create_stream("s/t", scaling=eventproc.ScalingPolicy.fixed(2))
    await write(stream, 0, 1)
    first, second = sorted((await stream.tail()).offsets)
    offset = (await stream.tail()).offsets[first]
    with StreamFetcher(ep.db, stream.name, stream.stream_id) as fetcher:
        taken = []
        for number in (1, 2):
            await write(stream, number, number + 1)
            found = await fetcher.fetch_next({first: (offset, None), second: (0, None)})
            taken.append({run.segment for run in found.runs})
            offset = next(run.end for run in reversed(found.runs) if run.segment == first)
    assert taken == [{first}, {first, second}]


async def test_a_truncation_moves_the_heads_of_segments_that_ended_with_the_oldest_epoch(
    ep: Eventproc,
) -> None:
    stream, cuts = await scaled(ep)
    (first,) = cuts[0].offsets
    await stream.truncate(cuts[1])
    state = await ep.db.read(lambda tx: segment_state(tx, stream.stream_id, first))
    assert state is not None, "its epoch is kept for readers that are at its end"
    assert state.head == state.tail > 0


async def test_events_hash_by_where_they_lie(ep: Eventproc) -> None:
    await ep.create_scope("s")
    stream = await ep.create_stream("s/t")
    async with stream.writer() as writer:
        first = await writer.write(b"1", headers={"a": "b"})
        second = await writer.write(b"1", headers={"a": "b"})
    async with stream.reader() as reader:
        read = {event async for event in reader.until(await stream.tail())}
    assert read == {first, second}
    assert len({first, second}) == 2
