"""A naive twin of a stream's history: lists of what was seen to happen, and answers found by looking at all of it."""

from __future__ import annotations

import random
from itertools import accumulate

import attrs

from eventproc.store.model.cuts import NOT_REACHED, CutOrder, StreamCut
from eventproc.store.model.epochs import Epoch
from eventproc.store.model.ids import SegmentId, epoch_of
from tests.model.support import Family, all_segments
from tests.support.list_history import ListHistory


@attrs.frozen
class PositionTwin:
    """A cut, and the segments that a reader at it has read to their ends."""

    read: frozenset[SegmentId]
    cut: StreamCut


@attrs.define
class HistoryTwin:
    """What happened to one stream.

    epochs: all, from the first on. events: sizes of the events of each segment. first: the oldest epoch kept.
    head: bytes before the head in each segment.
    """

    name: str
    stream_id: int
    epochs: list[Epoch]
    events: dict[SegmentId, list[int]] = attrs.field(factory=dict)
    first: int = 0
    head: dict[SegmentId, int] = attrs.field(factory=dict)

    def write(self, where: float, size_bytes: int) -> None:
        """Append an event whose key has that position in the key space."""
        (segment,) = [each.id for each in self.epochs[-1].segments if each.range.contains(where)]
        self.events.setdefault(segment, []).append(size_bytes)

    def kept(self) -> ListHistory:
        """Return the epochs that are kept."""
        return ListHistory(self.name, self.epochs[self.first :])

    def borders(self, segment: SegmentId) -> list[int]:
        """Return the offsets at which an event of the segment begins, and its end."""
        return [0, *accumulate(self.events.get(segment, []))]

    def length(self, segment: SegmentId) -> int:
        return self.borders(segment)[-1]

    def sealed_in(self, segment: SegmentId) -> int | None:
        later = [
            each.number for each in self.epochs if each.number > epoch_of(segment) and segment not in each.ids
        ]
        return min(later, default=None)

    def epoch_at(self, time_ms: int) -> Epoch:
        """Return the last epoch kept that began at or before a time, or else the oldest."""
        kept = self.epochs[self.first :]
        return [kept[0], *[each for each in kept if each.created_ms <= time_ms]][-1]

    def position(self, rng: random.Random) -> PositionTwin:
        """Return a position of a reader of what is kept: some segments read to their ends, others in part."""
        history = self.kept()
        family, read = Family.of(history), frozenset[SegmentId]()
        for _ in range(rng.randint(0, len(family.sealed))):
            if not (ready := sorted(family.ready(read) & family.sealed)):
                break
            read |= {rng.choice(ready)}
        offsets = {each: rng.choice(self.borders(each)) for each in family.ready(read)}
        offsets |= dict.fromkeys(family.waiting(read), NOT_REACHED)
        return PositionTwin(read, StreamCut(self.name, self.stream_id, offsets))

    def passed(self, position: PositionTwin) -> dict[SegmentId, int]:
        """Return how many bytes of each segment lie before a position."""
        kept = all_segments(self.kept())
        return {
            each: self.length(each)
            if each in position.read or each not in kept
            else max(position.cut.offsets.get(each, 0), 0)
            for epoch in self.epochs
            for each in epoch.ids
        }

    def size(self, passed: dict[SegmentId, int]) -> tuple[int, int]:
        """Return the bytes and events of so many bytes of each segment."""
        events = sum(self.borders(each).index(length) for each, length in passed.items())
        return sum(passed.values()), events

    def is_readable(self, position: PositionTwin) -> bool:
        """Return whether no event after the position was truncated."""
        passed = self.passed(position)
        return all(passed[each] >= offset for each, offset in self.head.items())

    def order(self, one: PositionTwin, other: PositionTwin) -> CutOrder:
        """Compare two positions at each point of the key space at which a segment begins or ends."""
        segments = sorted(all_segments(self.kept()).values(), key=lambda each: each.id)
        earlier = later = False
        for point in {each.range.low for each in segments}:
            line = [each.id for each in segments if each.range.contains(point)]
            at = [
                next((each, position.cut.offsets.get(each, 0)) for each in line if each not in position.read)
                for position in (one, other)
            ]
            earlier |= at[0] < at[1]
            later |= at[0] > at[1]
        if not earlier:
            return CutOrder.EQUAL_OR_AFTER
        return CutOrder.OVERLAPS if later else CutOrder.BEFORE
