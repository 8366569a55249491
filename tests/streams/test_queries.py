"""The queries about a stream's history: random histories against a naive twin, and the cases of Pravega's tests."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import TypeVar

import pytest

from eventproc.errors import HistoryCompacted
from eventproc.runtime import Eventproc
from eventproc.store.model.cuts import CutOrder, StreamCut
from eventproc.store.model.epochs import Epoch
from eventproc.store.model.errors import (
    InvalidArgument,
    InvalidCut,
    NotFound,
    StreamReplaced,
    Truncated,
)
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.limits import FRAME_BYTES
from eventproc.store.model.routing import point
from eventproc.streams.stream import Stream
from eventproc.testing import VirtualClock, check
from tests.model.support import Family, all_segments
from tests.streams.history_twin import HistoryTwin
from tests.support.hunt_counts import COUNTED
from tests.support.memory import (
    clock as clock,  # a fixture
    timed_ep as timed_ep,  # a fixture, too: ep
)

QUERIES = 50
"""Rounds of queries in the life of a stream; each asks two to six of them."""

E = TypeVar("E")


class QueriedLife:
    """A stream that lives at random, and its twin."""

    def __init__(self, stream: Stream, clock: VirtualClock, epoch: Epoch, seed: int) -> None:
        self.stream, self.clock, self.rng = stream, clock, random.Random(seed)
        self.twin = HistoryTwin(stream.name, stream.stream_id, [epoch])
        self.asked = 0

    async def write(self) -> None:
        async with self.stream.writer() as writer:
            for _ in range(self.rng.randint(1, 6)):
                payload = bytes(self.rng.randint(0, 30))
                key = str(self.rng.random())
                await writer.write(payload, key=key)
                self.twin.write(point(key), len(payload) + FRAME_BYTES)

    async def scale(self) -> None:
        active = await self.stream.segments()
        start = self.rng.randrange(len(active))
        run = active[start : start + self.rng.randint(1, 3)]
        low, high = run[0].low, run[-1].high
        inner = sorted({low, high, *[self.rng.uniform(low, high) for _ in range(self.rng.randint(0, 2))]})
        ranges = list(pairwise(inner))
        await self.stream.scale(seal=[each.id for each in run], ranges=ranges)
        self.twin.epochs.append((await self.stream.epochs())[-1])

    async def truncate(self) -> None:
        place = self.twin.position(self.rng)
        if not self.twin.is_readable(place):
            return
        try:
            await self.stream.truncate(place.cut)
        except InvalidCut:  # no event was lost, but the head is later in some part of the key space
            return
        self.twin.head = self.twin.passed(place)
        if (found := await self.stream.truncation()) is not None:
            self.twin.first = found.first_epoch

    async def live(self) -> None:
        for _ in range(self.rng.randint(2, 12)):
            self.clock.advance(self.rng.randint(0, 40))
            await self.rng.choices([self.write, self.scale, self.truncate], [4, 4, 1])[0]()

    @property
    def ask(self) -> Stream:
        """The stream, for one more query; a list counts once, however many pages it has."""
        self.asked += 1
        return self.stream

    async def ask_about_segments(self) -> None:
        history, twin = self.twin.kept(), self.twin
        family, segments = Family.of(history), all_segments(history)
        chosen = self.rng.choice(sorted(segments))
        assert frozenset(await self.ask.predecessors(chosen)) == family.before[chosen]
        found = await self.ask.successors(chosen)
        assert {each: frozenset(before) for each, before in found.items()} == {
            each: family.before[each] for each in family.after[chosen]
        }
        shown = await self.ask.segment(chosen)
        assert (shown.low, shown.high) == (segments[chosen].range.low, segments[chosen].range.high)
        assert (shown.tail, shown.tail_number) == (twin.length(chosen), len(twin.borders(chosen)) - 1)
        assert shown.sealed_epoch == twin.sealed_in(chosen)
        sealed = await self.pages(self.ask.sealed_segments, lambda each: each.id)
        assert [each.id for each in sealed] == sorted(family.sealed)
        assert [each.tail for each in sealed] == [twin.length(each) for each in sorted(family.sealed)]

    async def ask_about_times(self) -> None:
        twin, created = self.twin, [each.created_ms for each in self.twin.epochs]
        since, until = sorted(self.rng.randint(created[0] - 9, created[-1] + 9) for _ in range(2))
        then = await self.ask.segments(since)
        assert [each.id for each in then] == list(twin.epoch_at(since).ids)
        scales = await self.pages(partial(self.ask.scales, since, until), lambda each: each.epoch)
        first, last = twin.epoch_at(since).number, twin.epoch_at(until).number
        assert [each.epoch for each in scales] == list(range(first, last + 1))
        for each in scales:
            epoch = twin.epochs[each.epoch]
            assert (each.created_ms, each.segments) == (epoch.created_ms, len(epoch.segments))
            assert each.opened == tuple(one for one in epoch.ids if one >> 32 == epoch.number)
            if each.epoch > twin.first:
                before = twin.epochs[each.epoch - 1]
                assert set(each.sealed) == {*before.ids} - {*epoch.ids}
                assert (each.splits, each.merges) == (
                    epoch.splits - before.splits,
                    epoch.merges - before.merges,
                )
        number = self.rng.randint(twin.first, len(created) - 1)
        assert await self.ask.epoch(number) == twin.epochs[number]
        assert await self.pages(self.ask.epochs, lambda each: each.number) == twin.epochs[twin.first :]

    async def ask_about_cuts(self) -> None:
        twin = self.twin
        one, other = twin.position(self.rng), twin.position(self.rng)
        order = twin.order(other, one)
        assert await self.ask.compare_cuts(other.cut, one.cut) is order
        between = partial(self.ask.segments_between, one.cut, other.cut)
        if order is not CutOrder.EQUAL_OR_AFTER:
            with pytest.raises(InvalidArgument, match="is before"):
                await between()
        else:
            found = await self.pages(between, lambda each: each.id)
            named = {*one.cut.offsets, *other.cut.offsets}
            assert [each.id for each in found] == sorted((other.read - one.read) | named)
        for each in (one, other):
            if not twin.is_readable(each):
                with pytest.raises(Truncated):
                    await self.ask.size_before(each.cut)
                return
            size = await self.ask.size_before(each.cut)
            assert (size.bytes, size.events) == twin.size(twin.passed(each))
        if order is CutOrder.EQUAL_OR_AFTER:
            size = await self.ask.size_between(one.cut, other.cut)
            low, high = twin.size(twin.passed(one)), twin.size(twin.passed(other))
            assert (size.bytes, size.events) == (high[0] - low[0], high[1] - low[1])

    async def ask_about_ends(self) -> None:
        twin = self.twin
        everything = {each: twin.length(each) for epoch in twin.epochs for each in epoch.ids}
        truncated = await self.ask.truncation()
        if truncated is None:
            assert twin.size(twin.head) == (0, 0), "it never was, or at its beginning only"
        else:
            assert twin.head
            assert (truncated.bytes_before, truncated.events_before) == twin.size(twin.head)
        size, shown = await self.ask.size_between(), await self.ask.describe()
        low, high = twin.size(twin.head), twin.size(everything)
        assert (size.bytes, size.events) == (high[0] - low[0], high[1] - low[1])
        assert (shown.size_bytes, shown.events) == (size.bytes, size.events)
        part = await self.ask.measure()
        assert (part.between, (part.before.bytes, part.before.events)) == (size, twin.size(twin.head))
        at_head = await self.ask.segments("head")
        assert {each.id for each in at_head} == {*(await self.ask.head()).offsets}

    async def pages(self, ask: Callable[..., Awaitable[Sequence[E]]], key: Callable[[E], int]) -> list[E]:
        """Return a list, page by page."""
        listed: list[E] = []
        limit = self.rng.randint(1, 5)
        while found := await ask(after=key(listed[-1]) if listed else None, limit=limit):
            assert len(found) <= limit
            listed += found
        return listed


@pytest.mark.hunt(seeds=6)
@pytest.mark.acceptance("A11", differs="the history is rows of a table with an index by time, not chunks")
async def test_queries_agree_with_a_naive_twin(
    ep: Eventproc, clock: VirtualClock, seed: int, record_property: Callable[[str, object], None]
) -> None:
    stream = await ep.create_stream("s/x")
    life = QueriedLife(stream, clock, await stream.epoch(0), seed)
    questions = (
        life.ask_about_segments,
        life.ask_about_times,
        life.ask_about_cuts,
        life.ask_about_cuts,
        life.ask_about_ends,
    )
    for _ in range(QUERIES // 10):
        await life.live()
        for _ in range(10):
            await life.rng.choice(questions)()
    await check(ep.db)
    record_property(COUNTED, life.asked)


@pytest.mark.acceptance("A8")
async def test_sizes_add_up_from_whichever_cut_they_are_measured(ep: Eventproc) -> None:
    stream = await ep.create_stream("s/x")
    cuts = []
    for count in (3, 0, 2, 4):
        async with stream.writer() as writer:
            for _ in range(count):
                await writer.write(b"12", key="k")
        cuts.append(await stream.tail())
        (segment, *_) = await stream.segments()
        await stream.split(segment.id)
    sizes = [await stream.size_before(each) for each in cuts]
    assert [each.events for each in sizes] == [3, 3, 5, 9]
    assert [each.bytes for each in sizes] == [30, 30, 50, 90]
    await stream.truncate(cuts[1])
    assert await stream.size_before(cuts[2]) == sizes[2]
    assert (await stream.size_between(cuts[1], cuts[3])).bytes == 60
    assert (await stream.size_between(None, cuts[2])).events == 2
    truncated = await stream.truncation()
    assert truncated is not None
    assert (truncated.head, truncated.bytes_before, truncated.events_before) == (cuts[1], 30, 3)


@pytest.mark.acceptance("A10", differs="no cut is recorded: the index has a cut for every time")
async def test_cut_at_a_time_is_the_latest_one_not_after_it(ep: Eventproc, clock: VirtualClock) -> None:
    stream = await ep.create_stream("s/x")
    times: list[tuple[int, StreamCut]] = []
    for _ in range(4):
        clock.advance(100)
        times.append((clock.wall_ms(), await stream.tail()))
        async with stream.writer() as writer:
            await writer.write(b"x")
        clock.advance(100)
        (segment,) = await stream.segments()
        await stream.scale(seal=[segment.id], ranges=["0-1"])
    tails = [await stream.cut_at(time_ms) for time_ms, _ in times]
    sizes = [(await stream.size_before(each)).events for each in tails]
    assert sizes == [0, 1, 2, 3]  # the event of that very time lies behind the cut
    assert (await stream.size_before(await stream.cut_at(times[2][0] + 50))).events == 3
    await stream.truncate(tails[2])
    assert await stream.cut_at(times[0][0]) == await stream.head() == tails[2]


async def test_segments_of_an_epoch_are_described_in_one_read(ep: Eventproc) -> None:
    stream = await ep.create_stream("s/x")
    left, right = await stream.split(0)
    await stream.merge(left, right)
    (first,) = await stream.segments(epoch=0)
    assert (first.id, first.sealed_epoch) == (SegmentId(0), 1)
    assert [each.id for each in await stream.segments(epoch=1)] == [left, right]
    assert await stream.segments(epoch=2) == await stream.segments()
    with pytest.raises(NotFound):
        await stream.segments(epoch=3)
    with pytest.raises(InvalidArgument, match="not both"):
        await stream.segments("head", epoch=1)
    await stream.truncate(await stream.tail())
    with pytest.raises(HistoryCompacted):
        await stream.segments(epoch=0)


async def test_what_was_never_there_is_not_found(ep: Eventproc) -> None:
    stream = await ep.create_stream("s/x")
    await ep.create_stream("s/other")
    for ask in (stream.segment, stream.successors, stream.predecessors):
        with pytest.raises(NotFound):
            await ask("7.3")
    with pytest.raises(NotFound):
        await stream.epoch(1)
    foreign = await (await ep.stream("s/other")).tail()
    old = StreamCut("s/x", 99, {SegmentId(0): 0})
    for bad, error in ((foreign, InvalidCut), (old, StreamReplaced)):
        with pytest.raises(error):
            await stream.size_before(bad)
        with pytest.raises(error):
            await stream.compare_cuts(bad, bad)
        with pytest.raises(error):
            await stream.segments_between(bad)
    for limit in (0, -1, "1"):
        with pytest.raises(InvalidArgument):
            await stream.scales(limit=limit)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="before from_ms"):
        await stream.scales(2, 1)
    with pytest.raises(InvalidArgument):
        await stream.segments("middle")  # type: ignore[arg-type]
