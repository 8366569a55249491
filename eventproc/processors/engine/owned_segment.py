"""A cell: one owned segment, which of its events are finished, and what of that is durable.

Handlers finish events out of order. A cell knows, for each event that was handed out, whether it is
finished, and tells the progress that may be made durable at any moment: the completed prefix and the
finished ranges beyond it. Nothing here waits or does I/O.

Invariants: chunks are consecutive and end where the cell reads on; what `snapshot` tells never takes back what was
made durable and never passes an unfinished event (invariant 6). Source: architecture.md section 6.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from heapq import merge
from itertools import accumulate
from typing import Final

from eventproc.groups import SegmentKey, SegmentOwnership
from eventproc.store.model.ids import format_segment
from eventproc.store.model.limits import FINISHED_RANGES_MAX, FRAME_BYTES
from eventproc.store.model.progress import FinishedRange, Progress
from eventproc.store.segments import EventRun

WAITING_BYTES_MAX: Final = 8 * 2**20
"""Bytes of one segment's events, as stored, in chunks that are not finished whole. More lets other keys go on
for longer behind one that is stuck; it is memory, and work done again after a crash."""

CHUNKS_TO_JOIN: Final = 64
"""Chunks that a cell keeps beyond twice the unfinished ones before it joins those that are finished. Fewer joins more
often; more is looked through at each commit."""


class InFlightRun:
    """Consecutive events of one cell that were handed out together.

    first: number of the first. count: how many. end: where the last one's bytes end. remaining: how many are
    not finished.
    """

    __slots__ = ("cell", "count", "done", "end", "ends", "first", "remaining", "size_bytes")

    def __init__(self, cell: OwnedSegment, first: int, count: int, end: int) -> None:
        """Make a chunk of events that are finished."""
        self.cell = cell
        self.first = first
        self.count = count
        self.end = end
        self.remaining = 0
        self.size_bytes = 0
        self.done = bytearray()
        self.ends: list[int] = []

    @classmethod
    def of_run(cls, cell: OwnedSegment, run: EventRun) -> InFlightRun:
        """Make a chunk of events to be handled. Only their borders are kept: payloads go when they are finished."""
        chunk = cls(cell, run.first_number, len(run), run.end)
        chunk.size_bytes = run.end - run.start
        chunk.done = bytearray(len(run))
        chunk.ends = list(accumulate(map(FRAME_BYTES.__add__, map(len, run.payloads)), initial=run.start))
        for low, high, _ in cell.begun.finished:
            begin, end = max(low - chunk.first, 0), min(high - chunk.first, chunk.count)
            if begin < end:
                chunk.done[begin:end] = b"\1" * (end - begin)
        chunk.remaining = chunk.done.count(0)
        return chunk

    def finish(self, number: int) -> None:
        """Note that event `number`, which was not finished, is."""
        self.done[number - self.first] = 1
        self.remaining -= 1
        if not self.remaining:
            self.cell.settle(self)

    def is_finished(self, number: int) -> bool:
        """Return whether that event of the chunk is finished."""
        return not self.remaining or bool(self.done[number - self.first])

    def finished_ranges(self) -> Iterator[tuple[int, int, int]]:
        """Yield (first number, count, end offset) of each run of finished events."""
        if not self.remaining:
            yield self.first, self.count, self.end
            return
        at = 0
        while (low := self.done.find(1, at)) >= 0:
            high = self.done.find(0, low)
            at = high if high >= 0 else self.count
            yield self.first + low, at - low, self.ends[at]


class OwnedSegment:
    """An owned segment as its processor sees it; used on the event loop only.

    offset, number: of the next event to hand out. end: where its segment ends, None while that is not known.
    closing: nothing more is handed out, and what has not begun is dropped: it is given back, or was lost to
    another reader. begun: the progress it was acquired at. durable: the progress last made durable.
    """

    def __init__(self, assigned: SegmentOwnership) -> None:
        self.assigned = assigned
        self.key: SegmentKey = (assigned.stream_id, assigned.segment)
        self.begun = self.durable = assigned.progress
        self.offset = assigned.progress.offset
        self.number = assigned.progress.number
        self.end: int | None = None
        self.closing = False
        self.waiting_bytes = 0
        self._prefix = assigned.progress
        self._chunks: deque[InFlightRun] = deque()
        self._join_at = CHUNKS_TO_JOIN

    def __repr__(self) -> str:
        return (
            f"<OwnedSegment {self.assigned.stream} {format_segment(self.assigned.segment)} at {self.number}>"
        )

    def add(self, run: EventRun) -> InFlightRun:
        """Take the next events, and return the chunk to finish them in; what was finished before already is."""
        assert run.start == self.offset, f"{self!r} reads at {self.offset}, not {run.start}"
        chunk = InFlightRun.of_run(self, run)
        self._append(chunk)
        return chunk

    def skip(self, number: int, offset: int) -> None:
        """Go on at `offset` and event `number`: what lies before was truncated, and counts as finished."""
        assert offset > self.offset and number > self.number, f"{self!r} cannot skip to {number}"
        self._append(InFlightRun(self, self.number, number - self.number, offset))

    def _append(self, chunk: InFlightRun) -> None:
        self.offset, self.number = chunk.end, chunk.first + chunk.count
        self.waiting_bytes += chunk.size_bytes
        if len(self._chunks) >= self._join_at:
            self._join_finished()
        self._chunks.append(chunk)
        if not chunk.remaining:
            self.settle(chunk)

    def _join_finished(self) -> None:
        """Make one of finished chunks side by side: behind an event that never ends they come without end."""
        joined: deque[InFlightRun] = deque()
        for chunk in self._chunks:
            if joined and not (chunk.remaining or joined[-1].remaining):
                joined[-1].count += chunk.count
                joined[-1].end = chunk.end
            else:
                joined.append(chunk)
        self._chunks = joined
        self._join_at = 2 * len(joined) + CHUNKS_TO_JOIN

    def settle(self, chunk: InFlightRun) -> None:
        """Note that all events of `chunk` are finished."""
        self.waiting_bytes -= chunk.size_bytes
        chunk.done, chunk.ends = bytearray(), []
        chunks = self._chunks
        while chunks and not chunks[0].remaining:
            done = chunks.popleft()
            self._prefix = self._prefix.finish(done.first, done.count, done.end)

    @property
    def finished(self) -> bool:
        """Whether everything handed out is finished."""
        return not self._chunks

    @property
    def unfinished(self) -> int:
        """How many events of its chunks are not finished. O(chunks)."""
        return sum(chunk.remaining for chunk in self._chunks)

    @property
    def complete(self) -> bool:
        """Whether its segment is sealed and everything in it is finished."""
        return self.end == self.offset and not self._chunks

    @property
    def has_room(self) -> bool:
        """Whether more may be handed out: neither too many finished ranges nor too many bytes wait in it.

        There is room when nothing is handed out, whatever was finished before: what closes the gaps must be read.
        """
        if not self._chunks:
            return True
        if self.waiting_bytes >= WAITING_BYTES_MAX:
            return False
        most = len(self._prefix.finished) + sum(chunk.done.count(b"\0\1") + 1 for chunk in self._chunks)
        return most < FINISHED_RANGES_MAX or not self.snapshot().full

    def snapshot(self) -> Progress:
        """Return what is finished and may be durable: FINISHED_RANGES_MAX ranges at most.

        Where there are more, what is durable remains, and the lowest of the rest is added, see `_fewest`: the others
        are told when they have grown together. O(events handed out behind the first unfinished one), in C, O(ranges).
        """
        number, offset = self._prefix.number, self._prefix.offset
        ranges: list[FinishedRange] = []
        for low, high, end in self._all_ranges():
            if low <= number:
                if high > number:
                    number, offset = high, end
            elif ranges and low <= ranges[-1][1]:
                if high > ranges[-1][1]:
                    ranges[-1] = ranges[-1][0], high, end
            else:
                ranges.append((low, high, end))
        return Progress(number, offset, tuple(_fewest(ranges, self.durable)))

    def _all_ranges(self) -> Iterator[FinishedRange]:
        """Yield what is finished beyond the prefix, sorted; some twice, for chunks begin with what was before."""
        beyond = (
            (low, low + count, end) for chunk in self._chunks for low, count, end in chunk.finished_ranges()
        )
        return merge(self._prefix.finished, beyond)


def _fewest(ranges: list[FinishedRange], durable: Progress) -> list[FinishedRange]:
    """Return at most FINISHED_RANGES_MAX ranges: as many of the lowest as may be, and of the others what is durable.

    So whatever is added lies below all that is left out. An event is handled after those of its key before it: it is
    never durable without them, and what is handled again after a crash is the rest of each key, in order.
    """
    if len(ranges) <= FINISHED_RANGES_MAX:
        return ranges
    lows = [low for low, _, _ in durable.finished]
    for count in range(FINISHED_RANGES_MAX, -1, -1):
        known = durable.finished[bisect_left(lows, ranges[count][0]) :]
        if count + len(known) <= FINISHED_RANGES_MAX:
            return [*ranges[:count], *known]
    raise AssertionError(f"{len(durable.finished)} ranges are durable, and {FINISHED_RANGES_MAX} may be")
