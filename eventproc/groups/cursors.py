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
from eventproc.store.segments import EventRun


@attrs.define(eq=False)
class SegmentCursor:
    """The position in one segment. taken: offset to read on from. ended: no events will follow `taken`."""

    assigned: SegmentOwnership
    finished: Progress
    saved: Progress
    taken: int
    ended: bool = False

    @property
    def key(self) -> SegmentKey:
        """Identifies the segment within the group."""
        return self.assigned.key

    @property
    def is_done(self) -> bool:
        """Whether all events of the segment are finished, and no more will come."""
        return self.ended and self.finished.offset >= self.taken


@attrs.define(eq=False)
class InFlight:
    """A run of events being delivered: `count` of them were delivered, and the first `done` are finished."""

    cursor: SegmentCursor
    run: EventRun
    count: int = 0
    done: int = 0

    @property
    def end(self) -> int:
        """The offset behind the last event that was delivered."""
        return self.run.end_of(self.count)

    def settle(self) -> None:
        """Move the cursor behind the finished events."""
        if done := self.done:  # read once: another thread may increase it meanwhile
            end = self.run.end_of(done)
            self.cursor.finished = self.cursor.finished.finish(self.run.first_number, done, end)


class SegmentCursors:
    """The segments that a reader owns, in the order in which to read them."""

    def __init__(self) -> None:
        self._cursors: dict[SegmentKey, SegmentCursor] = {}

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
            self._cursors[each.key] = SegmentCursor(each, each.progress, each.progress, each.progress.offset)
        return bool(new)

    def drop(self, keys: Iterable[SegmentKey]) -> None:
        """Forget segments."""
        for key in list(keys):
            self._cursors.pop(key, None)

    def rewind(self) -> None:
        """Take again what was taken and not finished."""
        for cursor in self:
            cursor.taken, cursor.ended = cursor.finished.offset, False

    def take(self, stream_id: int, runs: Iterable[EventRun]) -> list[InFlight]:
        """Note that `runs` were taken, and return what of them is to be handed out. Those taken from come last.

        Runs of segments that were lost while they were being read are left out.
        """
        taken: list[InFlight] = []
        for run in runs:
            cursor = self._cursors.pop((stream_id, run.segment), None)
            if cursor is None:
                continue
            assert run.start == cursor.taken, f"a run begins at {run.start}, and {cursor.taken} comes next"
            cursor.taken = run.end
            self._cursors[cursor.key] = cursor
            taken += (InFlight(cursor, part) for part in unfinished(run, cursor.finished))
        return taken

    def end(self, stream_id: int, segments: Iterable[SegmentId]) -> None:
        """Note that no events will follow what was taken of the segments, where they are still owned."""
        for segment in segments:
            if (cursor := self._cursors.get((stream_id, segment))) is not None:
                cursor.ended = True

    def unsaved(self) -> dict[SegmentKey, Progress]:
        """Return the finished progress that is not durable yet."""
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
