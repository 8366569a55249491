"""Streams for the model's tests: histories from scales, and twins that answer by brute force.

The twin of cuts knows no geometry beyond which segments overlap: a position is the set of segments
that were read to their ends, which holds with each segment all those it took over from.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import attrs
from hypothesis import strategies as st

from eventproc.store.model.cuts import NOT_REACHED, StreamCut
from eventproc.store.model.epochs import Epoch, Segment, first_epoch, next_epoch
from eventproc.store.model.ids import SegmentId, segment_id
from eventproc.store.model.ranges import KeyRange
from tests.support.list_history import ListHistory

STREAM = "shop/orders"
STREAM_ID = 7
GRID = 32

Scale = tuple[Sequence[int], Sequence[tuple[float, float]]]
"""Numbers of the segments to seal, and the new ranges."""


def history(count: int, *scales: Scale, step_ms: int = 10) -> ListHistory:
    """Return a stream that began with `count` segments and went through `scales`, step_ms apart."""
    epochs = [first_epoch(count, created_ms=0)]
    for numbers, ranges in scales:
        epochs.append(scaled(epochs[-1], numbers, ranges, now_ms=step_ms * len(epochs)))
    return ListHistory(STREAM, epochs)


def scaled(
    epoch: Epoch,
    numbers: Iterable[int],
    ranges: Iterable[tuple[float, float]],
    *,
    now_ms: int = 0,
    segments_min: int = 1,
) -> Epoch:
    """Return the epoch after a scale that names segments by their numbers; a number not active stays unknown."""
    by_number = {segment.id & 0xFFFF_FFFF: segment.id for segment in epoch.segments}
    return next_epoch(
        epoch,
        stream=STREAM,
        seal=[by_number.get(number, segment_id(number, 0)) for number in numbers],
        ranges=[KeyRange(low, high) for low, high in ranges],
        now_ms=now_ms,
        segments_min=segments_min,
        request_id=None,
    )


def ids_of(stream: ListHistory) -> dict[int, SegmentId]:
    """Return the id of each segment number that the stream ever had."""
    return {identifier & 0xFFFF_FFFF: identifier for identifier in all_segments(stream)}


def all_segments(stream: ListHistory) -> dict[SegmentId, Segment]:
    """Return all segments that the stream ever had."""
    return {segment.id: segment for epoch in stream.epochs for segment in epoch.segments}


def cut(stream: ListHistory, offsets: dict[int, int]) -> StreamCut:
    """Return the cut with these offsets by segment number."""
    ids = ids_of(stream)
    return StreamCut(STREAM, STREAM_ID, {ids[number]: offset for number, offset in offsets.items()})


@st.composite
def histories(draw: st.DrawFn, scales_max: int = 4) -> ListHistory:
    """Draw a stream: each scale replaces a run of neighbours by ranges whose borders cross theirs freely."""
    epochs = [first_epoch(draw(st.integers(1, 3)), created_ms=draw(st.integers(0, 5)))]
    for _ in range(draw(st.integers(0, scales_max))):
        epoch = epochs[-1]
        start = draw(st.integers(0, len(epoch.segments) - 1))
        stop = draw(st.integers(start + 1, min(start + 3, len(epoch.segments))))
        run = epoch.segments[start:stop]
        low, high = run[0].range.low, run[-1].range.high
        free = [step / GRID for step in range(1, GRID) if low < step / GRID < high]
        inner = draw(st.lists(st.sampled_from(free), max_size=2, unique=True)) if free else []
        ranges = [KeyRange(*ends) for ends in pairwise(sorted({low, high, *inner}))]
        epochs.append(
            next_epoch(
                epoch,
                stream=STREAM,
                seal=[segment.id for segment in run],
                ranges=draw(st.permutations(ranges)),
                now_ms=draw(st.integers(0, 50)),
                segments_min=1,
                request_id=f"request-{len(epochs)}",
            )
        )
    return ListHistory(STREAM, epochs)


@attrs.frozen
class Family:
    """Successors and predecessors, found by comparing every pair of neighbouring epochs."""

    before: dict[SegmentId, frozenset[SegmentId]]
    after: dict[SegmentId, frozenset[SegmentId]]
    sealed: frozenset[SegmentId]

    @classmethod
    def of(cls, stream: ListHistory) -> Family:
        """Compare all segments of each epoch with all of the next."""
        pairs = {
            (old.id, new.id)
            for earlier, later in pairwise(stream.epochs)
            for old in earlier.segments
            for new in later.segments
            if old not in later.segments
            and new not in earlier.segments
            and share_a_point(old.range, new.range)
        }
        everyone = all_segments(stream)
        return cls(
            before={each: frozenset(old for old, new in pairs if new == each) for each in everyone},
            after={each: frozenset(new for old, new in pairs if old == each) for each in everyone},
            sealed=frozenset(each for each in everyone if each not in stream.epochs[-1].ids),
        )

    def ready(self, read: frozenset[SegmentId]) -> frozenset[SegmentId]:
        """Return what may be read now: not read to its end, and all it took over from is."""
        return frozenset(each for each, before in self.before.items() if each not in read and before <= read)

    def waiting(self, read: frozenset[SegmentId]) -> frozenset[SegmentId]:
        """Return what was not begun because some of what it took over from is read, and some is not."""
        return frozenset(each for each, before in self.before.items() if before & read and not before <= read)

    def positions(self) -> Iterator[frozenset[SegmentId]]:
        """Yield each set of segments that a reader can have read to their ends."""
        seen = {frozenset[SegmentId]()}
        todo = list(seen)
        while todo:
            read = todo.pop()
            yield read
            for following in (read | {each} for each in self.ready(read) & self.sealed):
                if following not in seen:
                    seen.add(following)
                    todo.append(following)

    def shape(self, read: frozenset[SegmentId]) -> frozenset[tuple[SegmentId, bool]]:
        """Return the segments of the cut at that position, each with whether it has an offset."""
        return frozenset(
            {(each, True) for each in self.ready(read)} | {(each, False) for each in self.waiting(read)}
        )


def share_a_point(a: KeyRange, b: KeyRange) -> bool:
    """Return whether two non-empty ranges overlap, by their ends."""
    return max(a.low, b.low) < min(a.high, b.high)


@attrs.frozen
class Standing:
    """A position of a reader, known by what was read to its end, and its cut."""

    read: frozenset[SegmentId]
    cut: StreamCut


@st.composite
def standings(draw: st.DrawFn, stream: ListHistory, lengths: dict[SegmentId, int]) -> Standing:
    """Draw a position by reading: segments to their ends in any order, then some way into the rest."""
    family = Family.of(stream)
    read = frozenset[SegmentId]()
    for _ in range(draw(st.integers(0, len(family.sealed)))):
        if not (ready := sorted(family.ready(read) & family.sealed)):
            break
        read |= {draw(st.sampled_from(ready))}
    offsets = {each: draw(st.integers(0, lengths[each])) for each in sorted(family.ready(read))}
    offsets |= dict.fromkeys(family.waiting(read), NOT_REACHED)
    return Standing(read, StreamCut(STREAM, STREAM_ID, offsets))


def lengths_of(stream: ListHistory) -> st.SearchStrategy[dict[SegmentId, int]]:
    """Draw a length in bytes for each segment."""
    return st.fixed_dictionaries({each: st.integers(0, 9) for each in all_segments(stream)})
