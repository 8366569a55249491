"""Decides how far a batch goes and which ranges it reads: functions of one transaction.

A position is a stream cut. A batch goes from one cut to another and may cross scales. Then one task reads a segment
and afterwards its successors, so that events of a key stay in order (invariant 3). This pays only for small segments;
larger successors are left to the next batch, which can read them in parallel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import attrs

from eventproc.spark.fair_shares import fair_shares
from eventproc.store.catalog import StoredHistory, StreamRecord, unfinished_parts
from eventproc.store.database import Tx
from eventproc.store.model.cuts import StreamCut, segments_between
from eventproc.store.model.frontier import Frontier
from eventproc.store.model.history import predecessors, successors
from eventproc.store.model.ids import SegmentId
from eventproc.store.segments import SegmentState, known_state, segment_state
from eventproc.store.segments.holds import HeldRange
from eventproc.store.segments.offsets import boundary_before, number_at, offset_after

GLUED_BYTES_MAX: Final = 16 * 2**20
"""Bytes before and behind a scale that one task reads in sequence instead of in two batches. A higher value reduces
parallelism. With a lower one, a stream that was scaled often takes one batch (0.2 s) per scale."""


@attrs.frozen
class BatchBudget:
    """The most events or bytes that a batch may take; None: no limit. glued_bytes_max: see GLUED_BYTES_MAX."""

    events: int | None = None
    bytes: int | None = None
    glued_bytes_max: int = GLUED_BYTES_MAX


@attrs.frozen
class ReadableSegment:
    """A segment with unread events [start, end). size: in the unit of the budget."""

    cursor: BatchCursor
    segment: SegmentId
    start: int
    end: int
    size: int


class BatchCursor:
    """The end position of a batch in one stream, advanced from where the last batch ended.

    limits: {segment: offset} where to stop, as `limits_of` returns them; None: at the tail.
    """

    def __init__(
        self, tx: Tx, stream: StreamRecord, frontier: Frontier, limits: Mapping[SegmentId, int] | None
    ) -> None:
        self.stream = stream
        self.frontier = frontier
        self._tx = tx
        self._history = StoredHistory(tx, stream)
        self._limits = limits
        self._states: dict[SegmentId, SegmentState] = {}
        # Bytes that the batch reads of a segment and of its predecessors.
        self._glued: dict[SegmentId, int] = {}
        self._taken: set[SegmentId] = set()

    def cut(self) -> StreamCut:
        """Return the position of the cursor."""
        return StreamCut(self.stream.name, self.stream.stream_id, self.frontier.offsets())

    def position(self) -> str:
        """Return the text of the cursor's position."""
        return str(self.cut())

    def unread_events(self) -> int:
        """Return how many events lie between the cursor and the tail. Cost: two look-ups per segment."""
        return sum(each.events for each in unfinished_parts(self._tx, self.stream, self.cut()))

    def open(self, budget: BatchBudget) -> list[ReadableSegment]:
        """Return the segments that the batch can continue with. Each is returned once."""
        found = []
        self.complete()
        for segment, start in self.frontier.held.items():
            end = self._end(segment)
            glued = self._glued.get(segment, 0)
            if (
                end <= start
                or segment in self._taken
                or (glued and glued + end - start > budget.glued_bytes_max)
            ):
                continue
            size = end - start
            if budget.events is not None:
                number = number_at(self._tx, self.stream.stream_id, segment, start)
                size = number_at(self._tx, self.stream.stream_id, segment, end) - number
            found.append(ReadableSegment(self, segment, start, end, size))
        return found

    def take(self, segment: SegmentId, end: int) -> None:
        """Include the segment up to `end` in the batch."""
        size_bytes = end - self.frontier.held[segment]
        self.frontier.advance(segment, end)
        self._glued[segment] = self._glued.get(segment, 0) + size_bytes
        self._taken.add(segment)

    def take_one(self, opened: ReadableSegment) -> None:
        """Include one event of the segment in the batch."""
        one = offset_after(self._tx, self.stream.stream_id, opened.segment, opened.start, 1)
        self.take(opened.segment, one)

    def part_of(self, opened: ReadableSegment, share: int, budget: BatchBudget) -> int:
        """Return the offset of the event border where `share` of the segment ends, in the unit of the budget."""
        if budget.events is not None:
            return offset_after(self._tx, self.stream.stream_id, opened.segment, opened.start, share)
        target = min(opened.start + share, opened.end)
        return boundary_before(self._tx, self.stream.stream_id, opened.segment, target)

    @property
    def begun(self) -> bool:
        """Whether the batch includes events of the stream so far."""
        return bool(self._taken)

    def complete(self) -> None:
        """Replace segments that were read to their ends by their successors."""
        while ended := [each for each, offset in self.frontier.held.items() if self._is_end(each, offset)]:
            for segment in ended:
                following = successors(self._history, segment)
                glued = self._glued.get(segment, 0)
                for each in following:
                    self._glued[each] = self._glued.get(each, 0) + glued
                self.frontier.complete(segment, following)

    def _is_end(self, segment: SegmentId, offset: int) -> bool:
        if self._limits is not None and segment in self._limits:
            return False
        state = self._state(segment)
        # The last segments of a sealed stream have no successors: the position stays at their ends.
        return state.sealed and offset == state.tail and segment not in self._newest()

    def _newest(self) -> frozenset[SegmentId]:
        return frozenset(self._history.epoch(self._history.current).by_id)

    def _end(self, segment: SegmentId) -> int:
        limit = None if self._limits is None else self._limits.get(segment)
        tail = self._state(segment).tail
        return tail if limit is None else min(limit, tail)

    def _state(self, segment: SegmentId) -> SegmentState:
        if (found := self._states.get(segment)) is None:
            found = self._states[segment] = known_state(self._tx, self.stream.stream_id, segment)
        return found


def advance(cursors: Sequence[BatchCursor], budget: BatchBudget) -> None:
    """Advance the cursors to the end of the next batch.

    Without a budget: up to the tails, or to a scale that is not crossed. With a budget: a fair share of each
    segment, and at least one event, whatever its size.
    """
    left = budget.events if budget.events is not None else budget.bytes
    while left != 0 and (opened := [each for cursor in cursors for each in cursor.open(budget)]):
        total = sum(each.size for each in opened)
        if left is not None and total > left:
            _take_shares(opened, left, budget)
            if not any(cursor.begun for cursor in cursors):
                opened[0].cursor.take_one(opened[0])
            left = 0
        else:
            for each in opened:
                each.cursor.take(each.segment, each.end)
            left = None if left is None else left - total
    for cursor in cursors:
        cursor.complete()


def _take_shares(opened: Sequence[ReadableSegment], left: int, budget: BatchBudget) -> None:
    """Take a fair share of `left` of each segment, and at least one event while the budget allows it."""
    sizes = {place: each.size for place, each in enumerate(opened)}
    for place, share in fair_shares(sizes, left).items():
        each = opened[place]
        end = each.cursor.part_of(each, min(share, left), budget)
        if end == each.start and budget.events is None:
            one = each.cursor.part_of(each, 1, BatchBudget(events=1))
            end = one if one - each.start <= left else end
        if end > each.start:
            each.cursor.take(each.segment, end)
            left -= share if budget.events is not None else end - each.start


def ranges_between(tx: Tx, stream: StreamRecord, start: StreamCut, end: StreamCut) -> list[list[HeldRange]]:
    """Return the ranges between two cuts, in groups. A group holds segments that follow each other.

    Within a group predecessors come before successors. Groups are ordered by their first segments. Raises InvalidCut
    if a cut is not valid or no longer valid, InvalidArgument if `end` lies before `start`.
    """
    history = StoredHistory(tx, stream)
    ranges: dict[SegmentId, HeldRange] = {}
    group_of: dict[SegmentId, int] = {}
    members: dict[int, list[SegmentId]] = {}
    for segment in segments_between(history, start, end):
        begin = max(start.offsets.get(segment, 0), 0)
        stop = end.offsets.get(segment)
        if stop is None:
            state = segment_state(tx, stream.stream_id, segment)
            stop = begin if state is None else state.tail
        ranges[segment] = HeldRange(segment, begin, max(stop, begin))
        # Ids grow with epochs, so predecessors are already grouped; those outside were read by an earlier batch.
        before = {group_of[each] for each in predecessors(history, segment) if each in group_of}
        before = {
            group for group in before if any(ranges[each].end > ranges[each].start for each in members[group])
        }
        group = min(before, default=len(group_of))
        members.setdefault(group, []).append(segment)
        group_of[segment] = group
        for other in before - {group}:
            for each in members.pop(other):
                group_of[each] = group
                members[group].append(each)
    groups = [sorted(members[group]) for group in sorted(members)]
    found = [[ranges[each] for each in group if ranges[each].end > ranges[each].start] for group in groups]
    return [group for group in found if group]
