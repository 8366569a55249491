"""A segment that this process owns: what was taken of it, what of that is finished, and what is durable.

Readers, consumers and processors have one `OwnedSegment` for each segment that they own. A processor finishes events
out of order: it adds the runs that it hands out, and each knows which of its events are finished. A reader finishes
them in order, and a consumer where it commits: both set `finished`. From that follows the progress that may be made
durable: the completed prefix and the finished ranges beyond it. Nothing here waits or does I/O.

Invariants: runs in flight are consecutive and end where the segment is read on. `snapshot` never passes an unfinished
event (invariant 6), and takes back what is durable only where a consumer commits an earlier position. Source:
architecture.md section 6, docs/design/delivery.md.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Sequence
from heapq import merge
from itertools import accumulate, repeat
from typing import Final

from eventproc.groups.state import SegmentOwnership
from eventproc.store.groups import SegmentKey
from eventproc.store.model.ids import format_segment
from eventproc.store.model.limits import FINISHED_RANGES_MAX, FRAME_BYTES
from eventproc.store.model.progress import FinishedRange, Progress
from eventproc.store.segments import EventRun

WAITING_BYTES_MAX: Final = 8 * 2**20
"""Bytes of one segment's events, as stored, in runs that still have unfinished events. Higher: other keys can go on for
longer behind a stuck one, at the cost of memory and of work that a crash repeats."""

RUNS_TO_JOIN: Final = 64
"""Runs that an owned segment keeps, beyond twice the unfinished ones, before it joins finished neighbours. Lower: it
joins more often. Higher: each commit looks at more runs."""


class InFlightRun:
    """Consecutive events of one owned segment that were handed out together.

    owned: their segment.
    first: number of the first event.
    count: how many events.
    end: offset at which the last event ends.
    remaining: how many events are not finished.
    times: the event time of each event, or one for all; none once all are finished.
    newest_ms: the highest of them.
    attempts_before: calls for its events that ended in other processes: none that is known.
    """

    __slots__ = (
        "count",
        "done",
        "end",
        "ends",
        "first",
        "newest_ms",
        "owned",
        "remaining",
        "size_bytes",
        "times",
    )

    def __init__(self, owned: OwnedSegment, run: EventRun) -> None:
        """Create a run of events to be handled. It keeps their offsets only: a payload is freed with its event."""
        self.owned = owned
        self.first = run.first_number
        self.count = len(run)
        self.end = run.end
        self.size_bytes = run.end - run.start
        self.times = event_times_of(run)
        self.newest_ms = max(self.times, default=run.time)
        self.done = bytearray(len(run))
        self.ends = list(accumulate(map(FRAME_BYTES.__add__, map(len, run.payloads)), initial=run.start))
        for low, high, _ in owned.begun.finished:
            begin, end = max(low - self.first, 0), min(high - self.first, self.count)
            if begin < end:
                self.done[begin:end] = b"\1" * (end - begin)
        self.remaining = self.done.count(0)

    @property
    def attempts_before(self) -> int:
        """See the class."""
        return 0

    def finish(self, number: int) -> None:
        """Mark the unfinished event `number` as finished."""
        self.done[number - self.first] = 1
        self.remaining -= 1
        if not self.remaining:
            self.owned.finish_run(self)

    def finish_except(self, ranges: list[tuple[int, int]]) -> None:
        """Mark the events outside these sorted ranges of indices as finished: they have expired."""
        if not self.remaining:
            return
        at = 0
        for low, high in [*ranges, (self.count, self.count)]:
            self.done[at:low] = b"\1" * (low - at)
            at = high
        self.remaining = self.done.count(0)
        if not self.remaining:
            self.owned.finish_run(self)

    def is_finished(self, number: int) -> bool:
        """Return whether event `number` of this run is finished."""
        return not self.remaining or bool(self.done[number - self.first])

    def finished_ranges(self) -> Iterator[tuple[int, int, int]]:
        """Yield (first number, count, end offset) of each range of finished events."""
        if not self.remaining:
            yield self.first, self.count, self.end
            return
        at = 0
        while (low := self.done.find(1, at)) >= 0:
            high = self.done.find(0, low)
            at = high if high >= 0 else self.count
            yield self.first + low, at - low, self.ends[at]


class OwnedSegment:
    """An owned segment; used on the event loop only.

    begun: the progress at which it begins.
    finished: the progress, without what is finished of runs in flight.
    durable: the progress that was last made durable. is_saved: by this owner.
    must_save: a consumer committed it, so it is saved even if it did not move.
    held: while a joint transaction holds the progress, what was finished before it; nothing behind it may be saved.
    number, offset: of the next event to take.
    next_number, next_offset: of the next event that a consumer delivers; it moves with `poll` and `seek`.
    end: offset at which the segment ends; None while that is unknown.
    truncated: what a processor would hand out next was truncated.
    paused: the user wants none of it for now.
    closing: the segment is being released, or was lost to another reader. Nothing more is handed out, and events
        whose call has not begun are dropped.
    """

    def __init__(self, assigned: SegmentOwnership, progress: Progress | None = None) -> None:
        """progress: where to begin. None: where it was acquired."""
        self.assigned = assigned
        self.key: SegmentKey = assigned.key
        self.durable = assigned.progress
        self.begun = self.finished = progress or assigned.progress
        self._event_ms: int | None = None  # of the runs that are finished without a gap
        self.held: Progress | None = None
        self.is_saved = self.must_save = self.paused = self.closing = self.truncated = False
        self.waiting_bytes = 0
        self._runs: deque[InFlightRun] = deque()
        self._join_at = RUNS_TO_JOIN
        self.rewind()
        self.next_number, self.next_offset = self.number, self.offset

    def __repr__(self) -> str:
        return f"<segment {format_segment(self.assigned.segment)} of {self.assigned.stream} at {self.number}>"

    def rewind(self) -> None:
        """Take again what was taken and not finished."""
        self.take_from(self.finished.number, self.finished.offset)

    def take_from(self, number: int, offset: int) -> None:
        """Take event `number`, which begins at `offset`, next."""
        self.number, self.offset = number, offset
        self.end: int | None = None

    def finish_to(self, number: int, offset: int) -> None:
        """Count as finished what lies before event `number`, which begins at `offset`.

        Finished ranges beyond it are kept only if it does not move back.
        """
        before = self.finished
        if number < before.number:
            self.finished = Progress(number, offset)
        else:
            self.finished = before.finish(before.number, number - before.number, offset)

    def add(self, run: EventRun) -> InFlightRun:
        """Take the next events and return their run in flight; events finished earlier are finished in it."""
        assert run.start == self.offset, f"{self!r} reads at {self.offset}, not {run.start}"
        created = InFlightRun(self, run)
        self.offset, self.number = created.end, created.first + created.count
        self.waiting_bytes += created.size_bytes
        if len(self._runs) >= self._join_at:
            self._join_finished()
        self._runs.append(created)
        if not created.remaining:
            self.finish_run(created)
        return created

    def _join_finished(self) -> None:
        """Join neighbouring finished runs: behind an event that never ends their number would grow without bound."""
        joined: deque[InFlightRun] = deque()
        for run in self._runs:
            if joined and not (run.remaining or joined[-1].remaining):
                joined[-1].count += run.count
                joined[-1].end = run.end
                joined[-1].newest_ms = max(joined[-1].newest_ms, run.newest_ms)
            else:
                joined.append(run)
        self._runs = joined
        self._join_at = 2 * len(joined) + RUNS_TO_JOIN

    def finish_run(self, run: InFlightRun) -> None:
        """Note that all events of `run` are finished."""
        self.waiting_bytes -= run.size_bytes
        run.done, run.ends, run.times = bytearray(), [], ()
        runs = self._runs
        while runs and not runs[0].remaining:
            done = runs.popleft()
            self.finished = self.finished.finish(done.first, done.count, done.end)
            if self._event_ms is None or self._event_ms < done.newest_ms:
                self._event_ms = done.newest_ms

    @property
    def event_ms(self) -> int | None:
        """The highest event time of what was finished here, without a gap; None: nothing was. O(events of a run)."""
        newest = [] if self._event_ms is None else [self._event_ms]
        if self._runs and (count := self._runs[0].done.find(0)):
            newest.append(max(self._runs[0].times[:count]))
        return max(newest, default=None)

    @property
    def is_quiet(self) -> bool:
        """Whether everything that was handed out is finished."""
        return not self._runs

    @property
    def unfinished(self) -> int:
        """How many events in flight are not finished. O(runs)."""
        return sum(run.remaining for run in self._runs)

    @property
    def complete(self) -> bool:
        """Whether the segment ends, and all of its events are finished and held by no transaction."""
        return self.end is not None and self.savable.offset >= self.end

    @property
    def savable(self) -> Progress:
        """What is finished, and held by no transaction, without runs in flight."""
        return self.finished if self.held is None else self.held

    @property
    def has_room(self) -> bool:
        """Whether more may be handed out: neither the finished ranges nor the waiting bytes are at their limit.

        With nothing in flight there is always room: the events that close the gaps must be read.
        """
        if not self._runs:
            return True
        if self.waiting_bytes >= WAITING_BYTES_MAX:
            return False
        most = len(self.finished.finished) + sum(run.done.count(b"\0\1") + 1 for run in self._runs)
        return most < FINISHED_RANGES_MAX or not self.snapshot().full

    def snapshot(self) -> Progress:
        """Return the finished events that may be made durable, in FINISHED_RANGES_MAX ranges at most.

        If there are more ranges, the result has the durable ones and the lowest of the others, see `_fewest`. The
        rest is included once ranges have grown together.
        Cost: O(events behind the first unfinished one), in C, plus O(ranges).
        """
        number, offset = self.finished.number, self.finished.offset
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
        """Yield the finished ranges beyond the prefix, sorted. Some come twice: runs repeat ranges finished earlier."""
        beyond = ((low, low + count, end) for run in self._runs for low, count, end in run.finished_ranges())
        return merge(self.finished.finished, beyond)


def event_times_of(run: EventRun) -> Sequence[int]:
    """Return the event time of each event of a run, or one for all. An event without any counts with its timestamp."""
    if run.event_times is None:
        return (run.time,) if run.times is None else run.times
    appended = repeat(run.time, len(run)) if run.times is None else run.times
    return [
        at if event_ms is None else event_ms for event_ms, at in zip(run.event_times, appended, strict=True)
    ]


def _fewest(ranges: list[FinishedRange], durable: Progress) -> list[FinishedRange]:
    """Return at most FINISHED_RANGES_MAX ranges: as many of the lowest as possible, and above them the durable ones.

    So every range that is added lies below every range that is left out. An event is handled after the earlier events
    of its key and is never durable without them. What a crash repeats is therefore the rest of each key, in order.
    """
    if len(ranges) <= FINISHED_RANGES_MAX:
        return ranges
    lows = [low for low, _, _ in durable.finished]
    for count in range(FINISHED_RANGES_MAX, -1, -1):
        known = durable.finished[bisect_left(lows, ranges[count][0]) :]
        if count + len(known) <= FINISHED_RANGES_MAX:
            return [*ranges[:count], *known]
    raise AssertionError(
        f"{len(durable.finished)} ranges are durable, but only {FINISHED_RANGES_MAX} are allowed"
    )
