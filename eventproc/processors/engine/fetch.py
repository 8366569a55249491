"""Reading on in the owned segments of a processor, and handing out what was read."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from itertools import islice, repeat
from typing import Final

from eventproc.base.clock import Clock
from eventproc.groups import TruncatedPolicy
from eventproc.groups.owned_segment import OwnedSegment
from eventproc.groups.owned_segments import OwnedSegments
from eventproc.processors.engine.key_queues import Item
from eventproc.processors.engine.workers import PUT_EVENTS, WorkerPool
from eventproc.store.database import Database
from eventproc.store.model.errors import Truncated
from eventproc.store.model.ids import SegmentId, parse_segment
from eventproc.store.segments import EventRun, first_expiry, live_ranges
from eventproc.streams.fetch import Fetched, Limit, StreamFetcher, watch_stream

LOG = logging.getLogger("eventproc.processors")

FETCHED_BYTES_MAX: Final = 16 * 2**20
"""Bytes of unfinished events, as stored, that all segments of a processor hold before it stops reading. One read adds
up to 4 MiB. If stuck calls hold all of it, segments that hold nothing are still read while workers have nothing to do:
that adds 4 MiB at most for each segment that gets stuck too."""


class ReadAhead:
    """Events that were read of one segment and not handed out yet, in order; used by its fetcher only.

    Event objects are created as they are handed out: each costs more than its share of the columns that were read.
    The last run that was begun is in flight.
    """

    def __init__(
        self, owned: OwnedSegment, runs: Iterable[EventRun], ttl_ms: int | None, clock: Clock
    ) -> None:
        """ttl_ms: the time to live of the events by the stream's configuration."""
        self._owned = owned
        self._ttl_ms = ttl_ms
        self._clock = clock
        self._runs = deque(runs)
        self._end = self._runs[-1].end
        self._items: Iterator[Item] = iter(())
        self._begun = 0  # events of the run in flight that are still to be handed out

    @property
    def is_over(self) -> bool:
        """Whether all of it was handed out."""
        return not self._runs and not self._begun

    @property
    def bytes_left(self) -> int:
        """Bytes, as stored, of the runs that are not begun."""
        return self._end - self._owned.offset

    @property
    def unfinished(self) -> int:
        """Events of the segment that were handed out and are not finished. O(runs in flight)."""
        return self._owned.unfinished - self._begun

    def take(self, events_max: int) -> list[Item]:
        """Hand out the next events, at most `events_max`, without those that are finished or expired."""
        taken: list[Item] = []
        while True:
            before = len(taken)
            taken += islice(self._items, events_max - before)
            self._begun -= len(taken) - before
            if len(taken) == events_max or not self._runs:
                return taken
            self._begin(self._runs.popleft())

    def _begin(self, run: EventRun) -> None:
        in_flight = self._owned.add(run)
        now_ms = self._clock.wall_ms()
        if first_expiry(run, self._ttl_ms) <= now_ms:
            in_flight.finish_except(live_ranges(run, self._ttl_ms, now_ms))
        self._begun = in_flight.remaining
        self._items = zip(run.events(self._owned.assigned.stream), repeat(in_flight), strict=False)
        if in_flight.remaining < in_flight.count:
            self._items = iter([item for item in self._items if not in_flight.is_finished(item[0].number)])


class SegmentFetcher:
    """Reads the owned segments of any number of streams; used by one task, which enters `changes` and `stack`.

    changes: wakes the task when there may be more to read. stack: closes what is opened for single streams.
    is_short: at the last `fill` a segment had no room, for reading more or for what was read.
    """

    def __init__(
        self,
        db: Database,
        segments: OwnedSegments,
        on_truncated: TruncatedPolicy,
        pool: WorkerPool,
    ) -> None:
        """Create the fetcher.

        segments: those to read; the caller adds and removes.
        pool: gets what is handed out.
        """
        self._db = db
        self._segments = segments
        self._on_truncated = on_truncated
        self._pool = pool
        self.stack = ExitStack()
        self._fetchers: dict[int, StreamFetcher] = {}
        self._ahead: dict[OwnedSegment, ReadAhead] = {}
        self.changes = db.subscribe()
        self.is_short = False

    def wake(self) -> None:
        """Let `changes.wait()` return."""
        self.changes.notify("processor")

    def take(self, events_max: int) -> list[Item] | None:
        """Hand out the next events, at most `events_max`; an empty list if the next ones are finished already.

        None when everything that was read is handed out, except in segments that have no room.
        """
        taken: list[Item] | None = None
        for owned, ahead in list(self._ahead.items()):
            if not owned.closing:
                if self._pool.is_crowded and ahead.unfinished >= PUT_EVENTS:
                    continue
                taken = taken or []
                taken += ahead.take(events_max - len(taken))
            if owned.closing or ahead.is_over:
                del self._ahead[owned]
            if taken is not None and len(taken) == events_max:
                break
        return taken

    async def fill(self) -> bool:
        """Read on once where all that was read is handed out; return whether that found anything.

        Raises NotFound and StreamReplaced when a stream was deleted, and Truncated if `on_truncated` is "error".
        """
        found = False
        for stream_id, segments in self._by_stream().items():
            wanted: dict[SegmentId, Limit] = {each.key[1]: (each.offset, None) for each in segments.values()}
            name = next(iter(segments.values())).assigned.stream
            try:
                fetched = await self._fetcher(name, stream_id).fetch_next(wanted)
            except Truncated as why:
                if self._on_truncated == "error":
                    raise
                segments[parse_segment(why.segment)].truncated = True
                found = True
            else:
                self._take_in(segments, fetched)
                found = found or bool(fetched.runs or fetched.ended)
        return found

    def _by_stream(self) -> dict[int, dict[SegmentId, OwnedSegment]]:
        """Return the segments that may be read on, those first that hold least."""
        only_empty = sum(map(self._held_bytes, self._segments)) >= FETCHED_BYTES_MAX
        self.is_short = only_empty or bool(self._ahead)
        if only_empty and not self._pool.is_idle:
            return {}
        streams: dict[int, dict[SegmentId, OwnedSegment]] = {}
        for owned in sorted(self._segments, key=self._held_bytes):
            if owned.closing or owned.truncated or owned.end is not None or owned in self._ahead:
                continue
            if owned.has_room and not (only_empty and owned.waiting_bytes):
                stream_id, segment = owned.key
                streams.setdefault(stream_id, {})[segment] = owned
            else:
                self.is_short = True
        return streams

    def _held_bytes(self, owned: OwnedSegment) -> int:
        ahead = self._ahead.get(owned)
        return owned.waiting_bytes + (0 if ahead is None else ahead.bytes_left)

    def _fetcher(self, name: str, stream_id: int) -> StreamFetcher:
        if (found := self._fetchers.get(stream_id)) is None:
            self.changes.add(watch_stream(stream_id))
            found = self.stack.enter_context(StreamFetcher(self._db, name, stream_id, with_ttl=True))
            self._fetchers[stream_id] = found
        return found

    def _take_in(self, segments: Mapping[SegmentId, OwnedSegment], fetched: Fetched) -> None:
        ends = {segment: owned.offset for segment, owned in segments.items()}
        by_segment: dict[SegmentId, list[EventRun]] = {}
        for run in fetched.runs:
            by_segment.setdefault(run.segment, []).append(run)
            ends[run.segment] = run.end
        for segment, runs in by_segment.items():
            self._ahead[segments[segment]] = ReadAhead(
                segments[segment], runs, fetched.ttl_ms, self._db.clock
            )
        for segment in fetched.ended:
            segments[segment].end = ends[segment]
