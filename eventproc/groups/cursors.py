"""A group reader's position in each segment that it owns: what it took, delivered, finished, and made durable.

Pure: no await, no I/O. In each segment, in bytes: saved <= finished <= delivered <= taken. What is *finished* is a
prefix, and possibly ranges beyond it that a processor of the same group finished earlier.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import attrs

from eventproc.groups.state import SegmentOwnership
from eventproc.store.groups import SegmentKey
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.progress import Progress
from eventproc.store.segments import NEVER, EventRun, first_expiry, live_ranges


@attrs.define(eq=False)
class SegmentCursor:
    """The position in one segment.

    taken: offset to read on from. ended: no events will follow `taken`. paused: the user wants none of it for now.
    held: while a joint transaction holds the progress, what was finished before it; nothing behind it may be saved.
    must_save: the user committed it, so it is saved even if it did not move. was_saved: by this owner.
    """

    assigned: SegmentOwnership
    finished: Progress
    saved: Progress
    taken: int
    ended: bool = False
    held: Progress | None = None
    paused: bool = False
    must_save: bool = False
    was_saved: bool = False

    @property
    def key(self) -> SegmentKey:
        """Identifies the segment within the group."""
        return self.assigned.key

    @property
    def savable(self) -> Progress:
        """What is finished, and held by no transaction."""
        return self.finished if self.held is None else self.held

    @property
    def is_done(self) -> bool:
        """Whether all events of the segment are finished, and no more will come."""
        return self.ended and self.savable.offset >= self.taken


@attrs.define(eq=False)
class InFlight:
    """A run of events being delivered: `count` of them were delivered, and the first `done` are finished.

    ttl_ms: the time to live that its events have by the stream's configuration.
    expires_ms: when the first of the events that were not delivered yet expires, wall time; NEVER if none does.
    skipped, skipped_end: number of expired events behind the run that are finished with it, and where they end.
    """

    cursor: SegmentCursor
    run: EventRun
    count: int = 0
    done: int = 0
    ttl_ms: int | None = None
    expires_ms: float = NEVER
    skipped: int = 0
    skipped_end: int = 0

    @property
    def end(self) -> int:
        """The offset behind the last event that was delivered."""
        return self.run.end_of(self.count)

    def settle(self) -> None:
        """Move the cursor behind the finished events."""
        if done := self.done:  # read once: another thread may increase it meanwhile
            if self.skipped and done == len(self.run):
                done, end = done + self.skipped, self.skipped_end
            else:
                end = self.run.end_of(done)
            self.cursor.finished = self.cursor.finished.finish(self.run.first_number, done, end)

    def without_expired(self, now_ms: int) -> tuple[int, int, list[InFlight]]:
        """Return how many of the next events are expired and where they end, and the rest without expired ones.

        O(events of the run).
        """
        run, ttl_ms = self.run, self.ttl_ms
        live = live_ranges(run, ttl_ms, now_ms, self.count)
        end = self.skipped_end if self.skipped else run.end
        if not live:
            return len(run) + self.skipped - self.count, end, []
        bounds = [low for low, _ in live[1:]] + [len(run) + self.skipped]
        parts = [
            InFlight(self.cursor, part, ttl_ms=ttl_ms, expires_ms=first_expiry(part, ttl_ms))
            for part in run.parts(live)
        ]
        for part, (_, high), bound, following in zip(parts, live, bounds, [*parts[1:], None], strict=True):
            part.skipped = bound - high
            part.skipped_end = end if following is None else following.run.start
        return live[0][0] - self.count, parts[0].run.start, parts


class SegmentCursors:
    """The segments that a reader owns, in the order in which to read them."""

    def __init__(self) -> None:
        self._cursors: dict[SegmentKey, SegmentCursor] = {}
        self._holding = False

    def __iter__(self) -> Iterator[SegmentCursor]:
        return iter(self._cursors.values())

    def __contains__(self, cursor: SegmentCursor) -> bool:
        return self._cursors.get(cursor.key) is cursor

    def find(self, key: SegmentKey) -> SegmentCursor | None:
        """Return the cursor of an owned segment."""
        return self._cursors.get(key)

    def follow(self, owned: Mapping[SegmentKey, SegmentOwnership]) -> bool:
        """Drop segments that are no longer owned, or under a newer epoch; add new ones. Return whether any is new."""
        kept = {key: cursor for key, cursor in self._cursors.items() if owned.get(key) is cursor.assigned}
        new = [each for key, each in owned.items() if key not in kept]
        self._cursors = kept
        for each in new:
            held = each.progress if self._holding else None
            self._cursors[each.key] = SegmentCursor(
                each, each.progress, each.progress, each.progress.offset, held=held
            )
        return bool(new)

    def drop(self, keys: Iterable[SegmentKey]) -> None:
        """Forget segments."""
        for key in list(keys):
            self._cursors.pop(key, None)

    def rewind(self) -> None:
        """Take again what was taken and not finished."""
        for cursor in self:
            cursor.taken, cursor.ended = cursor.finished.offset, False

    @property
    def ends_held(self) -> bool:
        """Whether a segment is processed to its end, which may not be saved while a transaction holds the progress."""
        return any(each.ended and each.finished.offset >= each.taken and not each.is_done for each in self)

    def hold(self) -> None:
        """Let nothing be saved that is not finished yet, until `release` or `give_back`."""
        self._holding = True
        for cursor in self:
            cursor.held = cursor.finished

    def release(self) -> None:
        """Let everything that is finished be saved."""
        self._holding = False
        for cursor in self:
            cursor.held = None

    def give_back(self) -> None:
        """Take again what was taken since `hold`. The new cursors know nothing of the runs that were in flight."""
        self._holding = False
        for key, cursor in self._cursors.items():
            before = cursor.savable
            self._cursors[key] = SegmentCursor(
                *(cursor.assigned, before, cursor.saved, before.offset),
                paused=cursor.paused,
                was_saved=cursor.was_saved,
            )

    def take(self, stream_id: int, runs: Iterable[EventRun], ttl_ms: int | None = None) -> list[InFlight]:
        """Note that `runs` were taken, and return what of them is to be handed out. Those taken from come last.

        Runs of segments that were lost while they were being read are left out. ttl_ms: see `InFlight`.
        """
        taken: list[InFlight] = []
        for run in runs:
            cursor = self._cursors.pop((stream_id, run.segment), None)
            if cursor is None:
                continue
            assert run.start == cursor.taken, f"a run begins at {run.start}, and {cursor.taken} comes next"
            cursor.taken = run.end
            self._cursors[cursor.key] = cursor
            taken += (
                InFlight(cursor, part, ttl_ms=ttl_ms, expires_ms=first_expiry(part, ttl_ms))
                for part in unfinished(run, cursor.finished)
            )
        return taken

    def end(self, stream_id: int, segments: Iterable[SegmentId]) -> None:
        """Note that no events will follow what was taken of the segments, where they are still owned."""
        for segment in segments:
            if (cursor := self._cursors.get((stream_id, segment))) is not None:
                cursor.ended = True

    def unsaved(self) -> dict[SegmentKey, Progress]:
        """Return the finished progress that is not durable yet, or that was committed for the first time."""
        return {each.key: each.savable for each in self if each.must_save or each.savable != each.saved}

    def unsaved_of_hold(self) -> dict[SegmentKey, Progress]:
        """Return the finished progress that is not durable yet, with what a transaction holds."""
        return {each.key: each.finished for each in self if each.finished != each.saved}

    def done(self) -> list[SegmentCursor]:
        """Return the segments whose events are all finished."""
        return [each for each in self if each.is_done]


def unfinished(run: EventRun, progress: Progress) -> list[EventRun]:
    """Return the parts of the run that are not finished; usually the run itself."""
    beyond = [(low, high, end) for low, high, end in progress.finished if high > run.first_number]
    parts: list[EventRun] = []
    rest = run
    for low, high, end in beyond:
        if low >= rest.first_number + len(rest):
            break
        if low > rest.first_number:
            before, rest = rest.split(rest.end_of(low - rest.first_number))
            parts.append(before)
        if high >= rest.first_number + len(rest):
            return parts
        _, rest = rest.split(end)
    return [*parts, rest]
