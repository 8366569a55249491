"""Delivering events of a share group: what one transaction hands out, and what becomes of it.

Every function runs in a transaction. `follow` ends the locks of dead consumers, archives events whose last delivery
ended, and opens new segments; `acquisition.py` locks the next events then. `settle` accepts, releases, rejects or
renews what a consumer holds. The decisions are those of `store.model.deliveries`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
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
    follow_clock,
    followed,
    get_group,
    open_new_segments,
    progress_channel,
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
    Settlement,
    Terms,
)
from eventproc.store.model.group_errors import LockLost, ShareStreamsDeleted
from eventproc.store.model.ids import format_segment
from eventproc.store.model.states import StreamState
from eventproc.store.records import Versioned, find, get
from eventproc.store.segments import (
    EventRun,
    SegmentState,
    read,
    segment_state,
)

LOG = logging.getLogger("eventproc.shares")

ARCHIVED_BYTES_MAX: Final = 4 * 2**20
"""Bytes of events that one transaction archives because their locks ended, give or take one range. The next one
archives the rest."""

DUE_LOOK_MS: Final = 10_000
"""Longest wait until an event that was set aside is looked for: its time is wall time, and the clock may jump."""


class LocalSessions:
    """The open consumers of this opening of the database. Used on the loop and on the writer's thread: look-ups."""

    def __init__(self) -> None:
        self.present: set[str] = set()


LOCAL_SESSIONS: Final = SharedSlot(LocalSessions)


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
class Outlook:
    """What a consumer may expect of the group now.

    is_ready: events may be acquired, or the group must follow a change of its streams.
    is_ended: all streams are sealed, and all their events are finished.
    ends_ms: monotonic time at which the first lock ends, or an event that was set aside may be available. None without
        any, and while the group is paused.
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


def look_ahead(tx: Tx, db: Database, name: str) -> Outlook:
    """Return what a consumer may expect now; changes nothing. Raises NotFound.

    Cost: three queries, and two look-ups for each open segment.
    """
    record = get_group(tx, name, share=True)
    present = [
        (each, stream) for each in record.streams if (stream := find_record(tx, each.name)) is not None
    ]
    sealed = all(stream.state is StreamState.SEALED for _, stream in present)
    is_ready = not present or any(_has_changed(*each) for each in present)
    finished = True
    for key, taken_in in read_taken_in(tx, name).items():
        state = segment_state(tx, *key)
        if state is None or taken_in.number < state.head_number or taken_in.next_number < state.tail_number:
            is_ready = True
        is_ready = is_ready or taken_in.is_ahead_of(tx.now_ms)
        finished = finished and (state is None or _is_finished(taken_in, state))
    locks = [each.lock for ranges in read_held(tx, name).values() for each in ranges if each.lock is not None]
    boot = db.clock.boot_id
    ends_ms = [lock.until_ms for lock in locks if lock.boot == boot]
    if (first_ms := first_available_ms(tx, name)) is not None:
        is_ready = is_ready or first_ms <= tx.now_ms
        ends_ms.append(tx.monotonic_ms + min(first_ms - tx.now_ms, DUE_LOOK_MS))
    return Outlook(
        is_ready=not record.paused and (is_ready or any(map(_EndedLocks(tx, db), locks))),
        is_ended=sealed and finished,
        ends_ms=None if record.paused else min(ends_ms, default=None),
        instances=frozenset(lock.instance for lock in locks) - {db.instance_id},
        stream_ids=frozenset(stream.stream_id for _, stream in present),
        awaits_streams=len(present) < len(record.streams),
        generation=record.generation,
    )


def end_dead_locks(tx: Tx, db: Database, name: str, *, offline: str | None = None) -> bool:
    """End the locks that have ended, of dead consumers among them; return whether some are left for the next call.

    offline: a consumer that counts as dead. None: only those that are.
    Does nothing if the group or its streams were deleted. Raises what `append_letters` raises.
    """
    found = find(tx, GROUP, name)
    if found is None or found.value.kind != SHARE:
        return False
    try:
        follow(tx, db, name, offline=offline)
    except ShareStreamsDeleted:
        return False
    has_ended = _EndedLocks(tx, db, offline)
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
    follow_clock(tx, name, open_segments)
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
    states = {key: segment_state(tx, *key) for key in keys}
    if not any(state is None or state.sealed for state in states.values()):
        return False
    open_segments = read_taken_in(tx, name)
    return any(state is None or _is_finished(open_segments[key], state) for key, state in states.items())


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
    """Whether a lock has ended: by the clock, or because its holder died. Looks once at each instance.

    offline: a consumer that counts as dead.
    """

    def __init__(self, tx: Tx, db: Database, offline: str | None = None) -> None:
        self._offline = offline
        self._tx = tx
        self._db = db
        self._present = db.shared[LOCAL_SESSIONS].present
        self._alive: dict[str, bool] = {}

    def __call__(self, lock: DeliveryLock) -> bool:
        db = self._db
        if lock.boot != db.clock.boot_id or lock.until_ms <= self._tx.monotonic_ms:
            return True
        if lock.consumer == self._offline:
            return True
        if lock.instance == db.instance_id:
            return lock.session not in self._present
        if lock.instance not in self._alive:
            self._alive[lock.instance] = db.peers.is_alive(lock.instance)
        return not self._alive[lock.instance]


def find_record(tx: Tx, name: str) -> StreamRecord | None:
    """Return the record of a stream; None if there is none of that name."""
    found = find_stream(tx, name)
    return None if found is None else found.value


def _has_changed(where: GroupStream, stream: StreamRecord) -> bool:
    """Return whether the stream has segments that the group has not opened: it scaled, or was created again."""
    return stream.stream_id != where.stream_id or stream.epoch > where.epoch


def follow(
    tx: Tx, db: Database, name: str, *, offline: str | None = None
) -> tuple[GroupRecord, dict[SegmentKey, TakenIn]]:
    """Follow what happened to the streams and to the holders of locks; return the group and its open segments.

    offline: a consumer that counts as dead.
    """
    get_group(tx, name, share=True)
    found = get(tx, GROUP, name)
    record, ids = _follow_streams(tx, found)
    stored = read_taken_in(tx, name)
    follow_clock(tx, name, stored)
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
        stored = read_taken_in(tx, name)
    if _end_locks(tx, _EndedLocks(tx, db, offline), record, {key: stored[key] for key in states}):
        stored = read_taken_in(tx, name)
    kept: dict[SegmentKey, TakenIn] = {}
    for key, state in states.items():
        # Its row was removed after a truncation, or all of it is finished.
        if state is None or _is_finished(stored[key], state):
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


def _end_locks(
    tx: Tx, has_ended: _EndedLocks, record: GroupRecord, open_segments: Mapping[SegmentKey, TakenIn]
) -> bool:
    """Release what dead consumers hold, or archive it after its last delivery; return whether there was anything."""
    has_changed = False
    terms = Terms(record.share.deliveries_max, since_ms=tx.now_ms)
    for key, ranges in read_held(tx, record.name).items():
        if key in open_segments:
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
        where, stream = each, find_record(tx, each.name)
        if stream is not None:
            ids.add(stream.stream_id)
            where = followed(each, stream.stream_id)
            if _has_changed(where, stream):
                where, _ = open_new_segments(tx, name, where, stream)
        streams.append(where)
    if not ids:
        raise ShareStreamsDeleted(group=name)
    return attrs.evolve(record, streams=tuple(streams)), ids


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
        for part in run.without_removed()  # what a compaction removed meanwhile has nothing to redrive
        for event in part.events(stream)
    ]
    append_letters(tx, record.name, record.dead_letters, letters)


def _read_all(tx: Tx, key: SegmentKey, start: int, end: int) -> Iterable[EventRun]:
    """Yield the events in bytes [start, end) of a segment that were not truncated."""
    state = segment_state(tx, *key)
    offset = end if state is None else max(start, state.head)
    while offset < end:
        for run in read(tx, key[0], {key[1]: (offset, end)}, bytes_max=end - offset).runs:
            yield run
            offset = run.end
