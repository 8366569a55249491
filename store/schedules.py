"""Schedules: records that say which event is appended when, again and again.

The next tick of a schedule is a row of `delayed_event` with its name. The transaction that appends it moves the row to
the tick behind it, so that each tick happens once over all processes. See docs/design/delayed-events.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from eventproc.base.clock import new_id
from eventproc.store.catalog import get_scope, get_writable_stream, record_names, verify_active
from eventproc.store.database import Tx
from eventproc.store.delayed_events import DELAYED_CHANNEL
from eventproc.store.model.delays import DelayedEvent
from eventproc.store.model.errors import AlreadyExists
from eventproc.store.model.list_pages import COMPLETE, ListPage, seen_entries
from eventproc.store.model.schedules import TICKS_A_STEP, MissedTicks, next_tick_ms, ticks_now
from eventproc.store.model.short_repr import short_repr_of_fields
from eventproc.store.records import RecordKind, create, delete, find, get, replace

SCHEDULE_HEADER: Final = "ep-schedule"
"""Header of the events of a schedule: its name. Their event time is the tick."""

TICK_BYTES_A_STEP: Final = 4 * 2**20
"""Bytes of missed ticks that one transaction appends, but for the first one of each schedule. Half of a commit's
limit."""

ENDED: Final = "no time of the next 50 years fits its expression"
STREAM_DELETED: Final = "its stream was deleted; create it again"


@attrs.frozen(kw_only=True)
class ScheduleRecord:
    """A schedule, as it is stored; `ScheduleInfo` says what its fields mean."""

    name: str
    stream: str
    stream_id: int
    cron: str
    tz: str
    payload: bytes = b""
    key: str | None = None
    headers: Mapping[str, str] = attrs.field(factory=dict)
    missed: MissedTicks = MissedTicks.LATEST
    paused: bool = False
    created_ms: int = 0


SCHEDULE: Final = RecordKind(name="schedule", value=ScheduleRecord)


@attrs.frozen(kw_only=True)
class ScheduleInfo(ScheduleRecord):
    """A schedule, and its next tick.

    Attributes:
        name: full name, "scope/name".
        stream: full name of the stream that gets an event at each tick.
        stream_id: its id when the schedule began to tick.
        cron: the expression, with five fields, or six that begin with the second.
        tz: name of the time zone of the expression.
        missed: what becomes of ticks that no process could append.
        payload: of the events.
        key: their routing key; None without one.
        headers: their headers, beside `ep-schedule`, the name of the schedule.
        created_ms: when it was created, wall clock, in ms since 1970.
        paused: whether it was paused.
        due_ms: its next tick; None if there is none.
        failure: why there is none, unless it is paused.
    """

    __repr__ = short_repr_of_fields

    due_ms: int | None
    failure: str | None


def create_schedule(tx: Tx, asked: ScheduleRecord, *, replaces: bool) -> ScheduleInfo:
    """Store a schedule, which ticks from now on; an equal one stays as it is.

    asked: without the id of the stream and the time of creation. replaces: whether it takes the place of another one of
    its name. Raises NotFound (the scope or stream), IllegalTransition, StreamSealed, AlreadyExists.
    """
    verify_active(get_scope(tx, asked.name.partition("/")[0]).value, "create a schedule")
    stream_id = get_writable_stream(tx, asked.stream).value.stream_id
    found = find(tx, SCHEDULE, asked.name)
    if found is None:
        create(tx, SCHEDULE, asked.name, attrs.evolve(asked, stream_id=stream_id, created_ms=tx.now_ms))
    else:
        before = found.value
        after = attrs.evolve(asked, stream_id=stream_id, created_ms=before.created_ms, paused=before.paused)
        if after == before:
            return get_schedule(tx, asked.name)
        if not replaces and attrs.evolve(after, stream_id=before.stream_id) != before:
            fields = (each.name for each in attrs.fields(ScheduleRecord))
            raise AlreadyExists(
                kind="schedule",
                name=asked.name,
                differing=tuple(each for each in fields if getattr(before, each) != getattr(after, each)),
                remedy="replace it, or take another name",
            )
        replace(tx, SCHEDULE, found, after)
    _begin(tx, asked.name)
    return get_schedule(tx, asked.name)


def get_schedule(tx: Tx, name: str) -> ScheduleInfo:
    """Return a schedule. Raises NotFound. Two look-ups."""
    record = get(tx, SCHEDULE, name).value
    row = tx.execute("SELECT due_ms, failure FROM delayed_event WHERE schedule = ?", (name,)).fetchone()
    due_ms, failure = (None, None if record.paused else STREAM_DELETED) if row is None else row
    return ScheduleInfo(**attrs.asdict(record, recurse=False), due_ms=due_ms, failure=failure)


def list_schedules(tx: Tx, scope: str | None = None, page: ListPage = COMPLETE) -> list[ScheduleInfo]:
    """Return the schedules of a scope, or of all, sorted by scope and name. Raises NotFound. Two look-ups each.

    A reader that `page` names may know a schedule and its stream, or does not see it.
    """

    def read(part: ListPage) -> list[ScheduleInfo]:
        return [get_schedule(tx, each) for each in schedule_names(tx, scope, part)]

    return seen_entries(read, lambda each: page.allows(each.stream), lambda each: each.name, page)


def schedule_names(tx: Tx, scope: str | None = None, page: ListPage = COMPLETE) -> list[str]:
    """Return the names of the schedules of a scope, or of all. Raises NotFound."""
    return record_names(tx, SCHEDULE, scope, page)


def pause_schedule(tx: Tx, name: str) -> ScheduleInfo:
    """Let a schedule tick no more. Raises NotFound."""
    found = get(tx, SCHEDULE, name)
    replace(tx, SCHEDULE, found, attrs.evolve(found.value, paused=True))
    _forget_tick(tx, name)
    return get_schedule(tx, name)


def resume_schedule(tx: Tx, name: str) -> ScheduleInfo:
    """Let a schedule tick from now on, also one whose tick could not be appended; one that ticks stays as it is.

    Raises NotFound (also the stream), StreamSealed.
    """
    found = get(tx, SCHEDULE, name)
    if get_schedule(tx, name).due_ms is None:
        stream_id = get_writable_stream(tx, found.value.stream).value.stream_id
        replace(tx, SCHEDULE, found, attrs.evolve(found.value, paused=False, stream_id=stream_id))
        _begin(tx, name)
    return get_schedule(tx, name)


def delete_schedule(tx: Tx, name: str) -> None:
    """Remove a schedule; its next tick does not happen. Raises NotFound."""
    delete(tx, SCHEDULE, get(tx, SCHEDULE, name))
    _forget_tick(tx, name)


def tick(tx: Tx, name: str, due_ms: int, *, schedules: int) -> list[DelayedEvent[bytes]]:
    """Return the events of a tick that has come, and move the row of the schedule to its next tick.

    Those of missed ticks are as the schedule's rule says: none, the last one, or all. schedules: how many this
    transaction makes tick; they share what it may append.
    """
    found = find(tx, SCHEDULE, name)
    if found is None or found.value.paused:  # a row that nobody owns
        _forget_tick(tx, name)
        return []
    record = found.value
    limit = max(1, min(TICKS_A_STEP, TICK_BYTES_A_STEP // max(len(record.payload), 1)) // schedules)
    ticks, next_ms = ticks_now(
        record.cron, record.tz, record.missed, due_ms=due_ms, now_ms=tx.now_ms, limit=limit
    )
    tx.execute(
        "UPDATE delayed_event SET due_ms = ?, failure = ? WHERE schedule = ?",
        (next_ms, ENDED if next_ms is None else None, name),
    )
    headers = {**record.headers, SCHEDULE_HEADER: name}
    return [
        DelayedEvent(
            id=name,
            stream=record.stream,
            due_ms=each,
            payload=record.payload,
            key=record.key,
            event_time=each,
            headers=headers,
        )
        for each in ticks
    ]


def _begin(tx: Tx, name: str) -> None:
    """Write the row of the schedule's next tick."""
    record = get(tx, SCHEDULE, name).value
    _forget_tick(tx, name)
    if not record.paused:
        next_ms = next_tick_ms(record.cron, record.tz, tx.now_ms)
        tx.execute(
            "INSERT INTO delayed_event (event_id, stream_id, stream, due_ms, size_bytes, payload, schedule, failure)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                *(new_id(tx.clock), record.stream_id, record.stream, next_ms, len(record.payload), b"", name),
                ENDED if next_ms is None else None,
            ),
        )
        tx.wake(DELAYED_CHANNEL)


def _forget_tick(tx: Tx, name: str) -> None:
    tx.execute("DELETE FROM delayed_event WHERE schedule = ?", (name,))
