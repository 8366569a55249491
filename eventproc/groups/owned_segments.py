"""The segments that a reader, consumer or processor owns, and the runs of them that a reader delivers.

Pure: no await, no I/O. In each segment, in bytes: durable <= finished <= delivered <= taken. What is *finished* is a
prefix, and possibly ranges beyond it that a processor of the same group finished earlier.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

import attrs

from eventproc.groups.owned_segment import OwnedSegment
from eventproc.groups.state import SegmentOwnership
from eventproc.store.groups import SegmentKey
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.progress import Progress
from eventproc.store.segments import NEVER, EventRun, first_expiry, live_ranges


@attrs.define(eq=False)
class InFlight:
    """A run of events being delivered: `count` of them were delivered, and the first `done` are finished.

    ttl_ms: the time to live that its events have by the stream's configuration.
    expires_ms: when the first of the events that were not delivered yet expires, wall time; NEVER if none does.
    skipped, skipped_end: number of expired events behind the run that are finished with it, and where they end.
    """

    owned: OwnedSegment
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

    def finish(self) -> None:
        """Note in the segment that the events are finished."""
        if done := self.done:  # read once: another thread may increase it meanwhile
            if self.skipped and done == len(self.run):
                done, end = done + self.skipped, self.skipped_end
            else:
                end = self.run.end_of(done)
            self.owned.finished = self.owned.finished.finish(self.run.first_number, done, end)

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
            InFlight(self.owned, part, ttl_ms=ttl_ms, expires_ms=first_expiry(part, ttl_ms))
            for part in run.parts(live)
        ]
        for part, (_, high), bound, following in zip(parts, live, bounds, [*parts[1:], None], strict=True):
            part.skipped = bound - high
            part.skipped_end = end if following is None else following.run.start
        return live[0][0] - self.count, parts[0].run.start, parts


class OwnedSegments:
    """The segments that a member of a group owns. A reader reads them in this order."""

    def __init__(self) -> None:
        self._segments: dict[SegmentKey, OwnedSegment] = {}
        self._holding = False

    def __iter__(self) -> Iterator[OwnedSegment]:
        return iter(self._segments.values())

    def __len__(self) -> int:
        return len(self._segments)

    def __contains__(self, owned: OwnedSegment) -> bool:
        return self._segments.get(owned.key) is owned

    def find(self, key: SegmentKey) -> OwnedSegment | None:
        """Return an owned segment."""
        return self._segments.get(key)

    def new_in(self, ownership: Mapping[SegmentKey, SegmentOwnership]) -> list[SegmentOwnership]:
        """Return what `follow` would add."""
        owned = {key: each.assigned for key, each in self._segments.items()}
        return [each for key, each in ownership.items() if owned.get(key) is not each]

    def follow(
        self,
        ownership: Mapping[SegmentKey, SegmentOwnership],
        positions: Mapping[SegmentKey, Progress] = MappingProxyType({}),
    ) -> list[OwnedSegment]:
        """Drop segments that are no longer owned, or under a newer epoch, and return them; add new ones.

        positions: where new ones begin, unless where they were acquired.
        """
        before = self._segments
        self._segments = {key: each for key, each in before.items() if ownership.get(key) is each.assigned}
        for key, assigned in ownership.items():
            if key not in self._segments:
                self._segments[key] = owned = OwnedSegment(assigned, positions.get(key))
                owned.held = assigned.progress if self._holding else None
        return [each for each in before.values() if each not in self]

    def drop(self, keys: Iterable[SegmentKey]) -> list[OwnedSegment]:
        """Forget segments; return those that were owned."""
        return [lost for key in list(keys) if (lost := self._segments.pop(key, None)) is not None]

    def rewind(self) -> None:
        """Take again what was taken and not finished."""
        for owned in self:
            owned.rewind()

    @property
    def ends_held(self) -> bool:
        """Whether a segment is processed to its end, which may not be saved while a transaction holds the progress."""
        return any(
            each.end is not None and each.finished.offset >= each.end and not each.complete for each in self
        )

    def hold(self) -> None:
        """Let nothing be saved that is not finished yet, until `end_hold` or `give_back`."""
        self._holding = True
        for owned in self:
            owned.held = owned.finished

    def end_hold(self) -> None:
        """Let everything that is finished be saved."""
        self._holding = False
        for owned in self:
            owned.held = None

    def give_back(self) -> None:
        """Take again what was taken since `hold`. The new objects know nothing of the runs that were in flight."""
        self._holding = False
        for key, owned in self._segments.items():
            self._segments[key] = again = OwnedSegment(owned.assigned, owned.savable)
            again.durable, again.is_saved, again.paused = owned.durable, owned.is_saved, owned.paused

    def take(self, stream_id: int, runs: Iterable[EventRun], ttl_ms: int | None = None) -> list[InFlight]:
        """Note that `runs` were taken, and return what of them is to be handed out. Those taken from come last.

        Runs of segments that were lost while they were being read are left out. ttl_ms: see `InFlight`.
        """
        taken: list[InFlight] = []
        for run in runs:
            owned = self._segments.pop((stream_id, run.segment), None)
            if owned is None:
                continue
            assert run.start == owned.offset, f"a run begins at {run.start}, and {owned.offset} comes next"
            owned.take_from(run.first_number + len(run), run.end)
            self._segments[owned.key] = owned
            taken += (
                InFlight(owned, part, ttl_ms=ttl_ms, expires_ms=first_expiry(part, ttl_ms))
                for part in unfinished(run, owned.finished)
            )
        return taken

    def end(self, stream_id: int, segments: Iterable[SegmentId]) -> None:
        """Note that no events will follow what was taken of the segments, where they are still owned."""
        for segment in segments:
            if (owned := self._segments.get((stream_id, segment))) is not None:
                owned.end = owned.offset

    def unsaved(self) -> dict[OwnedSegment, Progress]:
        """Return the finished progress that is not durable yet, or that was committed for the first time."""
        return {each: each.savable for each in self if each.must_save or each.savable != each.durable}

    def unsaved_of_hold(self) -> dict[OwnedSegment, Progress]:
        """Return the finished progress that is not durable yet, with what a transaction holds."""
        return {each: each.finished for each in self if each.finished != each.durable}

    def done(self) -> list[OwnedSegment]:
        """Return the segments whose events are all finished."""
        return [each for each in self if each.complete]


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
