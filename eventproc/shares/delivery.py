"""Delivering events of a share group: what one transaction hands out, and what becomes of it.

Every function runs in a transaction. `acquire` ends the locks of dead consumers, archives events whose last delivery
ended, opens new segments, and locks the next events. `settle` accepts, releases, rejects or renews what a consumer
holds. The decisions are those of `store.model.deliveries`.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Container, Iterable, Mapping, Sequence
from functools import partial
from itertools import accumulate
from operator import attrgetter
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
    TakenIn,
    channel_of,
    delete_deliveries,
    first_available_ms,
    followed,
    get_group,
    open_new_segments,
    priorities_of,
    progress_channel,
    read_available,
    read_held,
    read_ranges,
    read_taken_in,
    replace_share,
    write_deliveries,
)
from eventproc.store.model.delays import DUE_MS_MAX
from eventproc.store.model.deliveries import (
    DeliveredRange,
    DeliveryLock,
    DeliverySpan,
    SegmentDeliveries,
    Settlement,
    Terms,
)
from eventproc.store.model.group_errors import LockLost, ShareStreamsDeleted
from eventproc.store.model.ids import format_segment
from eventproc.store.model.limits import FRAME_BYTES
from eventproc.store.model.states import StreamState
from eventproc.store.records import Versioned, find, get
from eventproc.store.segments import (
    EventRun,
    SegmentState,
    first_expiry,
    is_prioritized,
    live_ranges,
    priority_parts,
    read,
    segment_state,
)

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

TAKEN_IN_EVENTS_MAX: Final = 5_000
"""Events of streams with priorities that one acquisition takes in, beyond those that it hands out, so that the highest
are known before any of them is delivered. Higher: the write lock is held for longer. Lower: a high priority behind many
new events is found later."""

TAKEN_IN_BYTES_MAX: Final = 4 * 2**20
"""Bytes of such events, give or take one extent."""

LOWEST_FIRST_TURNS: Final = 10
"""One of so many acquisitions of a consumer begins with the lowest priority, so that none starves. Higher: low
ones wait for longer while there is always something higher. Lower: high ones wait more often."""

DUE_LOOK_MS: Final = 10_000
"""Longest wait until an event that was set aside is looked for: its time is wall time, and the clock may jump."""


_low: Final = attrgetter("low")


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
    """What a consumer settles: spans of one generation of the group, by segment.

    error: why they are released or rejected. delay_ms: after which they are available again, if they are released.
    """

    how: Settlement
    generation: int
    spans: Mapping[SegmentKey, Sequence[DeliverySpan]]
    error: str = ""
    delay_ms: int = 0


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
    ends_ms: monotonic time at which the first lock ends, or an event that was set aside may be available; or None.
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
    present = [(each, stream) for each in record.streams if (stream := _find(tx, each.name)) is not None]
    sealed = all(stream.state is StreamState.SEALED for _, stream in present)
    is_ready = not present or any(_has_changed(*each) for each in present)
    finished = True
    for key, taken_in in read_taken_in(tx, name).items():
        state = segment_state(tx, *key)
        if state is None or taken_in.number < state.head_number or taken_in.next_number < state.tail_number:
            is_ready = True
        finished = finished and (state is None or _is_finished(taken_in, state))
    locks = [each.lock for ranges in read_held(tx, name).values() for each in ranges if each.lock is not None]
    boot = db.clock.boot_id
    ends_ms = [lock.until_ms for lock in locks if lock.boot == boot]
    if (first_ms := first_available_ms(tx, name)) is not None:
        is_ready = is_ready or first_ms <= tx.now_ms
        ends_ms.append(tx.monotonic_ms + min(first_ms - tx.now_ms, DUE_LOOK_MS))
    return Outlook(
        is_ready=is_ready or any(map(_EndedLocks(tx, db), locks)),
        is_ended=sealed and finished,
        ends_ms=min(ends_ms, default=None),
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
    record, open_segments = _follow(tx, db, name)
    until_ms = tx.monotonic_ms + record.share.lock_ms
    lock = DeliveryLock(holder.session, holder.consumer, db.instance_id, db.clock.boot_id, until_ms)
    handing_out = _HandingOut(tx, record, open_segments, lock, events_max)
    prioritized = {each.stream_id for each in record.streams if is_prioritized(tx, each.stream_id)}
    keys = list(open_segments)
    begin = first % len(keys) if keys else 0
    keys = [*keys[begin:], *keys[:begin]]
    handing_out.take_in([key for key in keys if key[0] in prioritized])
    handing_out.available(lowest_first=first % LOWEST_FIRST_TURNS == LOWEST_FIRST_TURNS - 1)
    handing_out.new([key for key in keys if key[0] not in prioritized])
    handing_out.write()
    return Acquisition(tuple(handing_out.runs), until_ms, record.generation, lost)


class _HandingOut:
    """One acquisition: what it hands out, and how the deliveries of the segments change by it."""

    def __init__(
        self,
        tx: Tx,
        record: GroupRecord,
        open_segments: Mapping[SegmentKey, TakenIn],
        lock: DeliveryLock,
        events_max: int,
    ) -> None:
        self.runs: list[AcquiredRun] = []
        self._tx = tx
        self._record = record
        self._lock = lock
        self._left = events_max
        self._bytes_left = ACQUIRED_BYTES_MAX
        self._names = {each.stream_id: each.name for each in record.streams}
        self._ttls = {each.stream_id: _ttl_of(tx, each) for each in record.streams}
        self._source = _Source(tx)
        self._open = dict(open_segments)
        self._before: dict[SegmentKey, SegmentDeliveries] = {}
        self._after: dict[SegmentKey, SegmentDeliveries] = {}
        self._expired: set[SegmentKey] = set()

    def take_in(self, keys: Iterable[SegmentKey]) -> None:
        """Take new events of these segments in, so that those with the highest priority are known."""
        left, bytes_left = TAKEN_IN_EVENTS_MAX, TAKEN_IN_BYTES_MAX
        for key in keys:
            before = after = self._open[key].deliveries()
            while left > 0 and bytes_left > 0:
                runs = self._source.events(key, after.next_number, after.next_offset, left, bytes_left)
                for run in runs:
                    after = after.take_in(priority_parts(run), self._tx.now_ms)
                    left -= len(run)
                    bytes_left -= run.end - run.start
                if not runs:
                    break
            if after is not before:
                write_deliveries(self._tx, self._record.name, key, before, after)
                self._tx.wake(channel_of(self._record.name))
                self._open[key] = attrs.evolve(
                    self._open[key], next_number=after.next_number, next_offset=after.next_offset
                )

    def available(self, *, lowest_first: bool) -> None:
        """Hand out what is available, the highest priority first."""
        name, wanted = self._record.name, self._left
        chosen: list[tuple[SegmentKey, DeliveredRange]] = []
        priorities = priorities_of(self._tx, name)
        for priority in reversed(priorities) if lowest_first else priorities:
            if wanted > 0:
                found = read_available(self._tx, name, priority, wanted)
                wanted -= sum(each.high - each.low for _, each in found)
                chosen += found
        for key in {key: None for key, _ in chosen}:
            if key in self._open:
                ranges = sorted((each for of, each in chosen if of == key), key=_low)
                self._before[key] = self._after[key] = self._open[key].deliveries(ranges)
        for key, each in chosen:
            if key in self._open:
                self._hand_out(key, each.low, each.start, each.high - each.low, each.count)

    def new(self, keys: Iterable[SegmentKey]) -> None:
        """Hand out new events of these segments."""
        for key in keys:
            found = self._after.get(key) or self._open[key].deliveries()
            self._before.setdefault(key, found)
            self._after.setdefault(key, found)
            self._hand_out(key, found.next_number, found.next_offset, self._left, 0)

    def write(self) -> None:
        """Write what has changed."""
        for key, after in self._after.items():
            if after is not self._before[key]:
                write_deliveries(self._tx, self._record.name, key, self._before[key], after)
                if key in self._expired:
                    self._tx.wake(channel_of(self._record.name))

    def _hand_out(self, key: SegmentKey, low: int, start: int, events_max: int, count: int) -> None:
        """Hand out events from number `low` on, delivered `count` times so far."""
        end = low + events_max
        while low < end and self._left > 0 and self._bytes_left > 0:
            runs = self._source.events(key, low, start, min(end - low, self._left), self._bytes_left)
            for run in runs:
                self._hand_out_run(key, run, count + 1)
                low, start = run.first_number + len(run), run.end
            if not runs:
                break

    def _hand_out_run(self, key: SegmentKey, run: EventRun, count: int) -> None:
        high, ttl_ms = run.first_number + len(run), self._ttls[key[0]]
        after = self._after[key].acquire(run.first_number, high, run.start, run.end, self._lock)
        self._bytes_left -= run.end - run.start
        live = [run]
        if first_expiry(run, ttl_ms) <= self._tx.now_ms:
            live = run.parts(live_ranges(run, ttl_ms, self._tx.now_ms))
            self._expired.add(key)
            after = _finish_expired(after, run, live, count, self._lock.session)
        self._after[key] = after
        for part in live:
            self.runs.append(AcquiredRun(self._names[key[0]], key[0], part, count))
            self._left -= len(part)


class _Source:
    """Reads events for one acquisition."""

    def __init__(self, tx: Tx) -> None:
        self._tx = tx
        self._ahead = tx.shared[RUNS_AHEAD]
        self._here: dict[SegmentKey, EventRun] = {}

    def events(
        self, key: SegmentKey, number: int, offset: int, events_max: int, bytes_max: int
    ) -> list[EventRun]:
        """Return events from `number` on, which lies at `offset`. They may be fewer than there are; none is the end."""
        known = self._here.get(key)
        if known is None or not known.first_number <= number < known.first_number + len(known):
            known = self._ahead.find(key, number)
        if known is not None:
            return [_part(known, number, offset, events_max, bytes_max)]
        runs: list[EventRun] = []
        wanted_bytes = min(bytes_max, events_max * EVENT_BYTES_GUESS)
        for run in read(self._tx, key[0], {key[1]: (offset, None)}, bytes_max=wanted_bytes).runs:
            if events_max <= 0 or bytes_max <= 0:
                break
            runs.append(part := _part(run, run.first_number, run.start, events_max, bytes_max))
            events_max -= len(part)
            bytes_max -= part.end - part.start
            if len(part) < len(run):
                self._here[key] = run
                self._tx.after(partial(self._ahead.keep, key, run))
                break
        return runs


def end_dead_locks(tx: Tx, db: Database, name: str) -> bool:
    """End the locks that have ended, of dead consumers among them; return whether some are left for the next call.

    Does nothing if the group or its streams were deleted. Raises what `append_letters` raises.
    """
    found = find(tx, GROUP, name)
    if found is None or found.value.kind != SHARE:
        return False
    try:
        _follow(tx, db, name)
    except ShareStreamsDeleted:
        return False
    has_ended = _EndedLocks(tx, db)
    return any(
        each.lock is not None and has_ended(each.lock)
        for ranges in read_held(tx, name).values()
        for each in ranges
    )


def settle(
    tx: Tx, db: Database, name: str, holder: Holder, settled: SettledSpans, *, strict: bool
) -> tuple[str, ...]:
    """Settle what the consumer holds; return the events that it no longer holds.

    strict: raise LockLost for those, and change nothing.
    Raises NotFound, and what `append_letters` raises.
    """
    record = get_group(tx, name, share=True)
    held, open_segments = read_held(tx, name, holder.session), read_taken_in(tx, name)
    terms = Terms(
        record.share.deliveries_max,
        until_ms=tx.monotonic_ms + record.share.lock_ms,
        since_ms=min(tx.now_ms + settled.delay_ms, DUE_MS_MAX),
    )
    lost: list[str] = []
    done = []
    for key, spans in settled.spans.items():
        taken_in = open_segments.get(key)
        if taken_in is None or record.generation != settled.generation:
            lost += (text for span in spans for text in _texts(record, key, span, ()))
            continue
        before = taken_in.deliveries(held.get(key, ()))
        result = before.settle(settled.how, spans, holder.session, terms)
        lost += (text for span in result.lost for text in _texts(record, key, span, before.ranges))
        done.append((key, before, result))
    if lost and strict:
        raise LockLost(group=name, consumer=holder.consumer, events=tuple(lost))
    for key, before, result in done:
        error = settled.error or "the consumer released the event at its last delivery"
        kind = "Rejected" if settled.how is Settlement.REJECT else "Released"
        _archive(tx, record, key, result.archived, error, kind)
        write_deliveries(tx, name, key, before, result.deliveries)
    if done and settled.how is not Settlement.RENEW:
        tx.wake(progress_channel(name))
        if settled.how is not Settlement.ACCEPT or _may_end(tx, name, [key for key, _, _ in done]):
            tx.wake(channel_of(name))
    return tuple(lost)


def _may_end(tx: Tx, name: str, keys: Iterable[SegmentKey]) -> bool:
    """Return whether one of these segments is finished now."""
    open_segments = read_taken_in(tx, name)
    states = ((open_segments[key], segment_state(tx, *key)) for key in keys)
    return any(state is None or _is_finished(taken_in, state) for taken_in, state in states)


def _is_finished(taken_in: TakenIn, state: SegmentState) -> bool:
    return state.sealed and taken_in.number >= state.tail_number


def _texts(
    record: GroupRecord, key: SegmentKey, span: DeliverySpan, held: Iterable[DeliveredRange]
) -> Iterable[str]:
    """Yield the names of those events of the span that are not in the ranges `held`, in this delivery."""
    stream = next((each.name for each in record.streams if each.stream_id == key[0]), "a deleted stream")
    same = [each for each in held if each.count == span.count]
    for number in range(span.low, span.high):
        if not any(each.low <= number < each.high for each in same):
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


def _follow(tx: Tx, db: Database, name: str) -> tuple[GroupRecord, dict[SegmentKey, TakenIn]]:
    """Follow what happened to the streams and to the holders of locks; return the group and its open segments."""
    get_group(tx, name, share=True)
    found = get(tx, GROUP, name)
    record, ids = _follow_streams(tx, found)
    stored = read_taken_in(tx, name)
    gone = [key for key in stored if key[0] not in ids]
    for each in found.value.streams:
        if any(key[0] == each.stream_id for key in gone):
            LOG.warning("%s: stream %s was deleted; the group goes on without its events", name, each.name)
    states = {key: segment_state(tx, *key) for key in stored if key[0] in ids}
    lost_events = sum(
        _drop_truncated(tx, name, key, stored[key], state)
        for key, state in states.items()
        if state is not None and stored[key].number < state.head_number
    )
    if lost_events:
        LOG.warning("%s: %d unfinished events were truncated", name, lost_events)
        record = attrs.evolve(record, lost_events=record.lost_events + lost_events)
    if _end_locks(tx, db, record, states.keys()) or lost_events:
        stored = read_taken_in(tx, name)
    kept: dict[SegmentKey, TakenIn] = {}
    for key, state in states.items():
        if state is None or _is_finished(
            stored[key], state
        ):  # truncated, and its row was removed since; or read
            gone.append(key)
        else:
            kept[key] = stored[key]
    delete_deliveries(tx, name, gone)
    if record != found.value:
        replace_share(tx, found, record)
    return record, kept


def _drop_truncated(tx: Tx, name: str, key: SegmentKey, taken_in: TakenIn, state: SegmentState) -> int:
    """Drop what lies before the head of a segment; return how many events of it were not finished."""
    before = taken_in.deliveries(read_ranges(tx, name, key, state.head_number))
    after, lost = before.truncate(state.head_number, state.head)
    write_deliveries(tx, name, key, before, after)
    return lost


def _end_locks(tx: Tx, db: Database, record: GroupRecord, keys: Container[SegmentKey]) -> bool:
    """Release what dead consumers hold, or archive it after its last delivery; return whether there was anything."""
    has_ended, has_changed = _EndedLocks(tx, db), False
    terms = Terms(record.share.deliveries_max, since_ms=tx.now_ms)
    open_segments = read_taken_in(tx, record.name)
    for key, ranges in read_held(tx, record.name).items():
        if key in keys:
            before = open_segments[key].deliveries(ranges)
            expired = before.expire(has_ended, terms, archived_bytes_max=ARCHIVED_BYTES_MAX)
            if expired.deliveries is not before:
                error = "the lock ended before a consumer accepted the event"
                _archive(tx, record, key, expired.archived, error, "LockExpired")
                write_deliveries(tx, record.name, key, before, expired.deliveries)
                has_changed = True
    if has_changed:
        tx.wake(channel_of(record.name))
        tx.wake(progress_channel(record.name))
    return has_changed


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


def _ttl_of(tx: Tx, where: GroupStream) -> int | None:
    stream = _find(tx, where.name)
    return None if stream is None else stream.config.ttl_ms


def _finish_expired(
    deliveries: SegmentDeliveries, run: EventRun, live: Sequence[EventRun], count: int, session: str
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
    return deliveries.settle(Settlement.ACCEPT, spans, session, Terms(count)).deliveries


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
