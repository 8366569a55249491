"""What a reader gets next: events from memory or the database, the ends of segments, and their successors.

One transaction answers all of a read, so the end of a segment and its successors are of the same moment.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Final, TypeAlias

import attrs

from eventproc.store.catalog import StoredHistory, StreamRecord, get_stream
from eventproc.store.database import Database, SharedSlot, Subscription, Tx, Watch
from eventproc.store.model.cuts import StreamCut, verify_cut
from eventproc.store.model.errors import NotFound
from eventproc.store.model.history import find_segment, successors
from eventproc.store.model.ids import SegmentId, epoch_of, format_segment
from eventproc.store.segments import (
    READ_BYTES_MAX,
    RECENT_EVENTS,
    EventRun,
    read,
    segment_states,
    verify_offset,
)
from eventproc.streams.stream_cuts import truncated

Limit: TypeAlias = tuple[int, int | None]
"""Where to read on in a segment, and where to stop; None: at its tail. Event borders."""


BATCH_BYTES_MAX: Final = 2**20
"""Bytes of events that one call takes from memory. Higher: a consumer that stops between two calls repeats more;
lower: more cost per event."""


TTL_KNOWN_MS: Final = 1_000
"""How long a reader that gets its events from memory uses the time to live that it knows. Higher: a changed one takes
effect later. Lower: more look-ups, one for each stream and period."""


EVENTS_READ: Final[SharedSlot[Counter[str]]] = SharedSlot(Counter)
"""How many events readers, consumers and processors of this opening have read, by stream."""


@attrs.frozen
class Fetched:
    """What follows in some segments.

    runs: events, in order per segment. ended: {segment that ends where its runs do: its successors}.
    ttl_ms: the time to live that the stream's configuration gives its events; only if the fetcher was asked for it.
    """

    runs: list[EventRun]
    ended: dict[SegmentId, dict[SegmentId, tuple[SegmentId, ...]]]
    ttl_ms: int | None = None


def fetch(
    tx: Tx,
    stream_name: str,
    stream_id: int,
    wanted: Mapping[SegmentId, Limit],
    bytes_max: int,
) -> Fetched:
    """Read from the wanted segments, {segment: (offset, limit)}.

    Raises NotFound, StreamReplaced, and Truncated when an offset lies before the head, or at the end of a
    segment whose successors are no longer known.
    """
    stream = get_stream(tx, stream_name, stream_id=stream_id).value
    found = read(tx, stream_id, wanted, bytes_max=bytes_max)
    offsets = {segment: offset for segment, (offset, _) in wanted.items()}
    for segment, offset in offsets.items():
        state = found.states.get(segment)
        if state is None or offset < state.head:
            _verify_known(stream, segment)
            raise truncated(tx, stream, segment, offset)
    for run in found.runs:
        offsets[run.segment] = run.end
    history = StoredHistory(tx, stream)
    ended = {}
    for segment, state in found.states.items():
        if state.sealed and offsets[segment] == state.tail and wanted[segment][1] is None:
            try:
                ended[segment] = successors(history, segment)
            except NotFound:  # the reaper has not come to its row yet
                raise truncated(tx, stream, segment, offsets[segment]) from None
    return Fetched(found.runs, ended, stream.config.ttl_ms)


class StreamFetcher:
    """Fetches the events that follow: from memory if this process has just committed them, else in one read.

    Used in `with`: meanwhile the process keeps its commits to the stream in memory.
    """

    def __init__(self, db: Database, stream: str, stream_id: int, *, with_ttl: bool = False) -> None:
        """with_ttl: know the stream's time to live, at most TTL_KNOWN_MS old."""
        self._db = db
        self._stream = stream
        self._stream_id = stream_id
        self._recent = db.shared[RECENT_EVENTS]
        self._owed = False  # a read for segments that were not in memory, while others were
        self._open = ExitStack()
        self._with_ttl = with_ttl
        self._ttl_ms: int | None = None
        self._ttl_until_ms = 0  # monotonic

    def __enter__(self) -> StreamFetcher:
        self._open.enter_context(self._recent.watching(self._stream_id))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, why: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Do what leaving the block does. A second call does nothing."""
        self._open.close()

    async def fetch_next(self, wanted: Mapping[SegmentId, Limit]) -> Fetched:
        """Return what follows in the wanted segments, {segment: (offset, limit)}; empty if nothing follows.

        The first segments are served best, so a caller puts segments that it just got events of last. Raises as
        `fetch`.
        """
        runs, missing = self._find_recent(wanted)
        # Memory alone would starve a segment that is further behind, and miss the end of a segment.
        if not missing or (runs and not self._owed):
            self._owed = bool(missing)
            if self._with_ttl and self._db.clock.monotonic_ms() >= self._ttl_until_ms:
                await self._db.read(self._look_up_ttl)
            return self._counted(Fetched(runs, {}, self._ttl_ms))
        fetched = await self._db.read(
            lambda tx: fetch(tx, self._stream, self._stream_id, missing, READ_BYTES_MAX)
        )
        self._owed = False
        self._note_ttl(fetched.ttl_ms)
        return self._counted(Fetched(runs + fetched.runs, fetched.ended, fetched.ttl_ms))

    def _counted(self, fetched: Fetched) -> Fetched:
        self._db.shared[EVENTS_READ][self._stream] += sum([len(run) for run in fetched.runs])
        return fetched

    def _look_up_ttl(self, tx: Tx) -> None:
        self._note_ttl(get_stream(tx, self._stream, stream_id=self._stream_id).value.config.ttl_ms)

    def _note_ttl(self, ttl_ms: int | None) -> None:
        self._ttl_ms = ttl_ms
        self._ttl_until_ms = self._db.clock.monotonic_ms() + TTL_KNOWN_MS

    def _find_recent(
        self, wanted: Mapping[SegmentId, Limit]
    ) -> tuple[list[EventRun], dict[SegmentId, Limit]]:
        """Return the runs in memory that follow the reader, and the segments without one."""
        runs: list[EventRun] = []
        missing: dict[SegmentId, Limit] = {}
        share = BATCH_BYTES_MAX // max(len(wanted), 1)
        for segment, (offset, limit) in wanted.items():
            begun, size_bytes = len(runs), 0
            while size_bytes < share:
                run = self._recent.find(self._stream_id, segment, offset)
                if run is None or (limit is not None and run.end > limit):
                    break
                runs.append(run)
                size_bytes += run.end - run.start
                offset = run.end
            if len(runs) == begun:
                missing[segment] = (offset, limit)
        return runs, missing


class StreamFetchers:
    """The fetchers of the streams that a group reads now, of which `changes` tells what happens to them."""

    def __init__(self, db: Database, changes: Subscription) -> None:
        self._db = db
        self._changes = changes
        self._by_id: dict[int, StreamFetcher] = {}

    def of(self, stream_id: int) -> StreamFetcher:
        """Return the fetcher of one of the streams."""
        return self._by_id[stream_id]

    def follow(self, streams: Mapping[int, str]) -> None:
        """Fetch from these streams, {stream id: name}, from now on, and let go of all others."""
        for stream_id in self._by_id.keys() - streams.keys():
            self._changes.discard(watch_stream(stream_id).channel)
            self._by_id.pop(stream_id).close()
        for stream_id, name in streams.items():
            if stream_id not in self._by_id:
                fetcher = StreamFetcher(self._db, name, stream_id, with_ttl=True)
                self._by_id[stream_id] = fetcher.__enter__()
                self._changes.add(watch_stream(stream_id))


def limits_of(
    tx: Tx, stream_name: str, cut: StreamCut, held: Mapping[SegmentId, int]
) -> dict[SegmentId, int]:
    """Return where a reader that holds `held` stops in each segment in order to read up to `cut`.

    {segment: offset}; a segment that is absent is read to its end. A held segment that begins after the
    cut, or was read up to the cut, stops at its offset. Raises InvalidCut for a cut that
    does not cover the key space once, or lies inside an event or beyond the end of a segment.
    """
    stream = get_stream(tx, stream_name, stream_id=cut.stream_id).value
    history = StoredHistory(tx, stream)
    known = [found for segment in cut.offsets if (found := find_segment(history, segment))]
    if len(known) == len(cut.offsets) or min(map(epoch_of, cut.offsets), default=0) >= history.first:
        verify_cut(cut, history)
    for segment in cut.offsets:
        verify_offset(tx, cut, segment)
    limits = {segment: max(offset, 0) for segment, offset in cut.offsets.items()}
    for identifier, offset in held.items():
        if identifier in limits:
            limits[identifier] = max(limits[identifier], offset)
        elif own := find_segment(history, identifier):
            overlapping = [member for member in known if member.range.overlaps(own.range)]
            if all(member.id < identifier for member in overlapping):
                limits[identifier] = offset
    return limits


def watch_stream(stream_id: int) -> Watch:
    """Return what to subscribe to in order to learn of appends, scales, seals and deletion of a stream."""

    def probe(tx: Tx) -> tuple[object, ...]:
        # The active segments of a stream are few; each costs the look-up of its last extent.
        states = segment_states(tx, stream_id, active_only=True)
        return tuple((segment, state.tail) for segment, state in states)

    return Watch(("stream", stream_id), probe)


def _verify_known(stream: StreamRecord, segment: SegmentId) -> None:
    """Raise NotFound unless the stream has, or had, that segment."""
    if segment > (stream.epoch << 32 | 0xFFFF_FFFF):
        raise NotFound(kind=f"segment of {stream.name}", name=format_segment(segment))
