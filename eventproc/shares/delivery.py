"""Delivering events of a share group: what one transaction hands out, and what becomes of it.

Every function runs in a transaction. `acquire` ends the locks of dead consumers, archives events whose last delivery
ended, opens new segments, and locks the next events. `settle` accepts, releases, rejects or renews what a consumer
holds. The decisions are those of `store.model.deliveries`.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import accumulate
from typing import Final

import attrs

from eventproc.groups import SegmentKey
from eventproc.processors.dead_letters.operations import FailedEvent, append_letters
from eventproc.store.catalog import StreamRecord, find_stream
from eventproc.store.database import Database, SharedSlot, Tx
from eventproc.store.groups import (
    GROUP,
    SHARE,
    GroupRecord,
    GroupStream,
    channel_of,
    delete_deliveries,
    followed,
    get_group,
    open_new_segments,
    read_deliveries,
    replace_share,
    write_deliveries,
)
from eventproc.store.model.deliveries import (
    DeliveredRange,
    DeliveryLock,
    DeliverySpan,
    SegmentDeliveries,
    Settlement,
)
from eventproc.store.model.group_errors import LockLost, ShareStreamsDeleted
from eventproc.store.model.ids import format_segment
from eventproc.store.model.limits import FRAME_BYTES
from eventproc.store.model.states import StreamState
from eventproc.store.records import Versioned, find, get
from eventproc.store.segments import EventRun, SegmentState, first_expiry, live_ranges, read, segment_state

LOG = logging.getLogger("eventproc.shares")

ACQUIRED_BYTES_MAX: Final = 2**20
"""Bytes of events that one transaction hands out, give or take one event. They are read in it: higher holds the write
lock for longer, lower costs more commits."""

AHEAD_BYTES_MAX: Final = 32 * 2**20
"""Bytes of decoded events that are kept for the next transactions, all segments together, or one run. Lower: large
runs of many segments are decoded again for each poll."""

EVENT_BYTES_GUESS: Final = 256
"""Bytes of an event for which the first read of a transaction is laid out. Larger events cost further reads; smaller
ones are decoded and not used."""

ARCHIVED_BYTES_MAX: Final = 4 * 2**20
"""Bytes of events that one transaction archives because their locks ended, give or take one range. The next one
archives the rest."""


NOTHING_DELIVERED: Final = SegmentDeliveries()


class LocalSessions:
    """The open consumers of this opening of the database. Used on the loop and on the writer's thread: look-ups."""

    def __init__(self) -> None:
        self.present: set[str] = set()


LOCAL_SESSIONS: Final = SharedSlot(LocalSessions)


class RunsAhead:
    """Runs of which only a part was handed out, so that the next transaction does not decode them again.

    Durable events never change, and the id of a segment is never reused. So an entry is never wrong if it is kept
    as an effect of its transaction. Used on the writer's thread and on the loop.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: OrderedDict[SegmentKey, EventRun] = OrderedDict()
        self._size_bytes = 0

    def find(self, key: SegmentKey, number: int) -> EventRun | None:
        """Return the run with event `number` of the segment, if it is kept."""
        with self._lock:
            run = self._runs.get(key)
            if run is None or not run.first_number <= number < run.first_number + len(run):
                return None
            self._runs.move_to_end(key)
            return run

    def keep(self, key: SegmentKey, run: EventRun) -> None:
        """Keep a run instead of the last one of its segment; forget those that were not used for longest."""
        with self._lock:
            before = self._runs.pop(key, None)
            self._runs[key] = run
            self._size_bytes += run.end - run.start - (0 if before is None else before.end - before.start)
            while self._size_bytes > AHEAD_BYTES_MAX and len(self._runs) > 1:
                _, dropped = self._runs.popitem(last=False)
                self._size_bytes -= dropped.end - dropped.start


RUNS_AHEAD: Final = SharedSlot(RunsAhead)


@attrs.frozen
class Holder:
    """A consumer as a holder of locks."""

    session: str
    consumer: str


@attrs.frozen
class SettledSpans:
    """What a consumer settles: spans of one generation of the group, by segment."""

    how: Settlement
    generation: int
    spans: Mapping[SegmentKey, Sequence[DeliverySpan]]
    error: str = ""


@attrs.frozen
class AcquiredRun:
    """Events that a consumer acquired, delivered for the `count`-th time."""

    stream: str
    stream_id: int
    run: EventRun
    count: int


@attrs.frozen
class Outlook:
    """What a consumer may expect of the group now.

    is_ready: events may be acquired, or the group must follow a change of its streams.
    is_ended: all streams are sealed, and all their events are finished.
    ends_ms: monotonic time at which the first lock ends, by the clock of this boot; None without a lock.
    instances: other instances that hold locks. stream_ids: the streams of the group that exist.
    awaits_streams: a stream of the group was deleted, and may be created again.
    """

    is_ready: bool
    is_ended: bool
    ends_ms: int | None
    instances: frozenset[str]
    stream_ids: frozenset[int]
    awaits_streams: bool
    generation: int


@attrs.frozen
class Acquisition:
    """What one transaction handed out. until_ms: when its locks end, monotonic."""

    runs: tuple[AcquiredRun, ...]
    until_ms: int
    generation: int
    lost: tuple[str, ...]


def look_ahead(tx: Tx, db: Database, name: str) -> Outlook:
    """Return what a consumer may expect now; changes nothing. Raises NotFound.

    Cost: three queries, and two look-ups for each open segment.
    """
    record = get_group(tx, name, share=True)
    deliveries = read_deliveries(tx, name)
    present = [(each, stream) for each in record.streams if (stream := _find(tx, each.name)) is not None]
    sealed = all(stream.state is StreamState.SEALED for _, stream in present)
    is_ready = not present or any(_has_changed(*each) for each in present)
    locks = [each.lock for found in deliveries.values() for each in found.ranges if each.lock is not None]
    has_ended = _EndedLocks(tx, db)
    finished = True
    for key, found in deliveries.items():
        state = segment_state(tx, *key)
        if state is None or found.next_number < state.head_number:
            is_ready = True
            continue
        has_new = found.next_number < state.tail_number and found.room > 0
        is_ready = is_ready or has_new or any(True for _ in found.available)
        finished = finished and _is_finished(found, state)
    boot = db.clock.boot_id
    return Outlook(
        is_ready=is_ready or any(map(has_ended, locks)),
        is_ended=sealed and finished,
        ends_ms=min((lock.until_ms for lock in locks if lock.boot == boot), default=None),
        instances=frozenset(lock.instance for lock in locks) - {db.instance_id},
        stream_ids=frozenset(stream.stream_id for _, stream in present),
        awaits_streams=len(present) < len(record.streams),
        generation=record.generation,
    )


def acquire(
    tx: Tx,
    db: Database,
    name: str,
    holder: Holder,
    events_max: int,
    settled: SettledSpans | None = None,
    first: int = 0,
) -> Acquisition:
    """Settle `settled`, then hand out up to `events_max` events to the consumer. Expired events are finished instead.

    settled: what the consumer finished; what it no longer holds is ignored, and returned as `lost`.
    first: which of the open segments to begin with, so that none is starved.
    Raises NotFound, ShareStreamsDeleted, and what `append_letters` raises.
    """
    lost = () if settled is None else settle(tx, db, name, holder, settled, strict=False)
    record, deliveries = _follow(tx, db, name)
    names = {each.stream_id: each.name for each in record.streams}
    ttls = {each.stream_id: _ttl_of(tx, each) for each in record.streams}
    until_ms = tx.monotonic_ms + record.share.lock_ms
    lock = DeliveryLock(holder.session, holder.consumer, db.instance_id, db.clock.boot_id, until_ms)
    keys = list(deliveries)
    begin = first % len(keys) if keys else 0
    runs: list[AcquiredRun] = []
    left, bytes_left = events_max, ACQUIRED_BYTES_MAX
    for key in (*keys[begin:], *keys[:begin]):
        before = after = deliveries[key]
        has_expired = False
        while left > 0 and bytes_left > 0:
            found = _take(tx, key, after, left, bytes_left)
            if not found:
                break
            for run, count in found:
                high = run.first_number + len(run)
                after = after.acquire(run.first_number, high, run.start, run.end, lock)
                bytes_left -= run.end - run.start
                live = [run]
                if first_expiry(run, ttls[key[0]]) <= tx.now_ms:
                    live = run.parts(live_ranges(run, ttls[key[0]], tx.now_ms))
                    has_expired = True
                    after = _finish_expired(after, run, live, count, holder)
                for part in live:
                    runs.append(AcquiredRun(names[key[0]], key[0], part, count))
                    left -= len(part)
        if after is not before:
            write_deliveries(tx, name, key, before, after)
            if has_expired and _may_end(tx, key, after):
                tx.wake(channel_of(name))
    return Acquisition(tuple(runs), until_ms, record.generation, lost)


def end_dead_locks(tx: Tx, db: Database, name: str) -> bool:
    """End the locks that have ended, of dead consumers among them; return whether some are left for the next call.

    Does nothing if the group or its streams were deleted. Raises what `append_letters` raises.
    """
    found = find(tx, GROUP, name)
    if found is None or found.value.kind != SHARE:
        return False
    try:
        _, deliveries = _follow(tx, db, name)
    except ShareStreamsDeleted:
        return False
    has_ended = _EndedLocks(tx, db)
    return any(
        each.lock is not None and has_ended(each.lock)
        for found in deliveries.values()
        for each in found.ranges
    )


def settle(
    tx: Tx, db: Database, name: str, holder: Holder, settled: SettledSpans, *, strict: bool
) -> tuple[str, ...]:
    """Settle what the consumer holds; return the events that it no longer holds.

    strict: raise LockLost for those, and change nothing.
    Raises NotFound, and what `append_letters` raises.
    """
    record = get_group(tx, name, share=True)
    before = read_deliveries(tx, name)
    until_ms = tx.monotonic_ms + record.share.lock_ms
    lost: list[str] = []
    done = []
    for key, spans in settled.spans.items():
        found = before.get(key)
        if found is None or record.generation != settled.generation:
            lost += (text for span in spans for text in _texts(record, key, span))
            continue
        result = found.settle(
            settled.how,
            spans,
            holder.session,
            count_max=record.share.deliveries_max,
            until_ms=until_ms,
        )
        lost += (text for span in result.lost for text in _texts(record, key, span, found, holder))
        done.append((key, found, result))
    if lost and strict:
        raise LockLost(group=name, consumer=holder.consumer, events=tuple(lost))
    wakes = False
    for key, found, result in done:
        after = result.deliveries
        error = settled.error or "the consumer released the event at its last delivery"
        kind = "Rejected" if settled.how is Settlement.REJECT else "Released"
        _archive(tx, record, key, result.archived, error, kind)
        write_deliveries(tx, name, key, found, after)
        wakes = wakes or any(True for _ in after.available) or found.room == 0 or _may_end(tx, key, after)
    if wakes:
        tx.wake(channel_of(name))
    return tuple(lost)


def _may_end(tx: Tx, key: SegmentKey, deliveries: SegmentDeliveries) -> bool:
    state = segment_state(tx, *key)
    return state is None or _is_finished(deliveries, state)


def _is_finished(deliveries: SegmentDeliveries, state: SegmentState) -> bool:
    return state.sealed and deliveries.progress.number >= state.tail_number


def _texts(
    record: GroupRecord,
    key: SegmentKey,
    span: DeliverySpan,
    found: SegmentDeliveries = NOTHING_DELIVERED,
    holder: Holder | None = None,
) -> Iterable[str]:
    """Yield the names of those events of the span that the holder does not hold."""
    stream = next((each.name for each in record.streams if each.stream_id == key[0]), "a deleted stream")
    held = [
        each
        for each in found.locked
        if each.count == span.count and holder and each.lock and each.lock.session == holder.session
    ]
    for number in range(span.low, span.high):
        if not any(each.low <= number < each.high for each in held):
            yield f"{stream} {format_segment(key[1])}:{number}"


class _EndedLocks:
    """Whether a lock has ended: by the clock, or because its holder died. Looks once at each instance."""

    def __init__(self, tx: Tx, db: Database) -> None:
        self._tx = tx
        self._db = db
        self._present = db.shared[LOCAL_SESSIONS].present
        self._alive: dict[str, bool] = {}

    def __call__(self, lock: DeliveryLock) -> bool:
        db = self._db
        if lock.boot != db.clock.boot_id or lock.until_ms <= self._tx.monotonic_ms:
            return True
        if lock.instance == db.instance_id:
            return lock.session not in self._present
        if lock.instance not in self._alive:
            self._alive[lock.instance] = db.peers.is_alive(lock.instance)
        return not self._alive[lock.instance]


def _find(tx: Tx, name: str) -> StreamRecord | None:
    found = find_stream(tx, name)
    return None if found is None else found.value


def _has_changed(where: GroupStream, stream: StreamRecord) -> bool:
    """Return whether the stream has segments that the group has not opened: it scaled, or was created again."""
    return stream.stream_id != where.stream_id or stream.epoch > where.epoch


def _follow(tx: Tx, db: Database, name: str) -> tuple[GroupRecord, dict[SegmentKey, SegmentDeliveries]]:
    """Follow what happened to the streams and to the holders of locks; return the group and its open segments."""
    get_group(tx, name, share=True)
    found = get(tx, GROUP, name)
    record, ids = _follow_streams(tx, found)
    stored = read_deliveries(tx, name)
    has_ended = _EndedLocks(tx, db)
    gone = [key for key in stored if key[0] not in ids]
    for each in found.value.streams:
        if any(key[0] == each.stream_id for key in gone):
            LOG.warning("%s: stream %s was deleted; the group goes on without its events", name, each.name)
    kept: dict[SegmentKey, SegmentDeliveries] = {}
    lost_events = 0
    for key, before in stored.items():
        if key[0] not in ids:
            continue
        state = segment_state(tx, *key)
        if state is None:  # truncated, and its row was removed since
            gone.append(key)
            continue
        after, lost = before.truncate(state.head_number, state.head)
        lost_events += lost
        expired = after.expire(
            has_ended, count_max=record.share.deliveries_max, archived_bytes_max=ARCHIVED_BYTES_MAX
        )
        error = "the lock ended before a consumer accepted the event"
        _archive(tx, record, key, expired.archived, error, "LockExpired")
        after = expired.deliveries
        if _is_finished(after, state):
            gone.append(key)
            continue
        if after is not before:
            write_deliveries(tx, name, key, before, after)
            tx.wake(channel_of(name))
        kept[key] = after
    delete_deliveries(tx, name, gone)
    if lost_events:
        LOG.warning("%s: %d unfinished events were truncated", name, lost_events)
        record = attrs.evolve(record, lost_events=record.lost_events + lost_events)
    if record != found.value:
        replace_share(tx, found, record)
    return record, kept


def _follow_streams(tx: Tx, found: Versioned[GroupRecord]) -> tuple[GroupRecord, set[int]]:
    """Open the segments that scales, growth and new incarnations created; return the record, and the ids that exist.

    The record keeps a deleted stream. If a stream of its name is created later, the group consumes it from its head.
    """
    name, record = found.key, found.value
    streams: list[GroupStream] = []
    ids: set[int] = set()
    for each in record.streams:
        where, stream = each, _find(tx, each.name)
        if stream is not None:
            ids.add(stream.stream_id)
            where = followed(each, stream.stream_id)
            if _has_changed(where, stream):
                where, _ = open_new_segments(tx, name, where, stream)
        streams.append(where)
    if not ids:
        raise ShareStreamsDeleted(group=name)
    return attrs.evolve(record, streams=tuple(streams)), ids


def _take(
    tx: Tx, key: SegmentKey, deliveries: SegmentDeliveries, events_max: int, bytes_max: int
) -> list[tuple[EventRun, int]]:
    """Return the next events to hand out, and the number of that delivery: first what is available again.

    They may be fewer than there are; none is the end.
    """
    again = next(deliveries.available, None)
    if again is not None:
        low, start, end, most, count = again.low, again.start, again.end, again.high - again.low, again.count
    else:
        low, start, end, most, count = (
            deliveries.next_number,
            deliveries.next_offset,
            None,
            deliveries.room,
            0,
        )
    left = min(most, events_max)
    if left <= 0:
        return []
    ahead = tx.shared[RUNS_AHEAD]
    if (known := ahead.find(key, low)) is not None:
        return [(_part(known, low, start, left, bytes_max), count + 1)]
    runs: list[tuple[EventRun, int]] = []
    wanted_bytes = min(bytes_max, left * EVENT_BYTES_GUESS)
    for run in read(tx, key[0], {key[1]: (start, end)}, bytes_max=wanted_bytes).runs:
        if left > 0 and bytes_max > 0:
            part = _part(run, run.first_number, run.start, left, bytes_max)
            runs.append((part, count + 1))
            left -= len(part)
            bytes_max -= part.end - part.start
            if len(part) < len(run):
                tx.after(partial(ahead.keep, key, run))
                break
    return runs


def _ttl_of(tx: Tx, where: GroupStream) -> int | None:
    stream = _find(tx, where.name)
    return None if stream is None else stream.config.ttl_ms


def _finish_expired(
    deliveries: SegmentDeliveries, run: EventRun, live: Sequence[EventRun], count: int, holder: Holder
) -> SegmentDeliveries:
    """Count the events of an acquired run that are not `live` as accepted."""
    low, start = run.first_number, run.start
    spans: list[DeliverySpan] = []
    for part in live:
        if low < part.first_number:
            spans.append(DeliverySpan(low, part.first_number, start, part.start, count))
        low, start = part.first_number + len(part), part.end
    if start < run.end:
        spans.append(DeliverySpan(low, run.first_number + len(run), start, run.end, count))
    return deliveries.settle(Settlement.ACCEPT, spans, holder.session, count_max=count).deliveries


def _part(run: EventRun, low: int, start: int, events_max: int, bytes_max: int) -> EventRun:
    """Return events of a run from number `low` on: at most `events_max`, up to the one that reaches `bytes_max`."""
    first = low - run.first_number
    sizes = list(map(len, run.payloads[first : first + events_max]))
    ends = accumulate(map(FRAME_BYTES.__add__, sizes))
    count = next((count for count, end in enumerate(ends, 1) if end >= bytes_max), len(sizes))
    return run if count == len(run) else run.part(first, count, start)


def _archive(
    tx: Tx, record: GroupRecord, key: SegmentKey, ranges: Iterable[DeliveredRange], error: str, kind: str
) -> None:
    """Append the events as dead letters of the group; the caller finishes them in the same transaction."""
    stream = next(each.name for each in record.streams if each.stream_id == key[0])
    letters = [
        FailedEvent(
            event=event,
            error=error,
            error_type=kind,
            traceback="",
            attempts=each.count,
            processor=record.name,
            failed_ms=tx.now_ms,
        )
        for each in ranges
        for run in _read_all(tx, key, each.start, each.end)
        for event in run.events(stream)
    ]
    append_letters(tx, record.name, None, letters)


def _read_all(tx: Tx, key: SegmentKey, start: int, end: int) -> Iterable[EventRun]:
    """Yield the events in bytes [start, end) of a segment that were not truncated."""
    state = segment_state(tx, *key)
    offset = end if state is None else max(start, state.head)
    while offset < end:
        for run in read(tx, key[0], {key[1]: (offset, end)}, bytes_max=end - offset).runs:
            yield run
            offset = run.end
