"""Delayed events: the handle that lists, cancels and moves them, and the step that appends those that are due."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Final

from eventproc.store.catalog import KeyRoutes, current_router, get_writable_stream
from eventproc.store.database import Database, Tx
from eventproc.store.delayed_events import (
    DUE_BYTES_A_STEP,
    DueRow,
    cancel_delayed,
    due_rows,
    forget_delayed,
    get_delayed,
    list_delayed,
    move_delayed,
    note_failure,
)
from eventproc.store.event_ids import note_places
from eventproc.store.faults import Step
from eventproc.store.jobs import cancel_job_of, move_job_of
from eventproc.store.model.argument_checks import check_int, check_str, invalid_argument
from eventproc.store.model.delays import Delay, DelayedEvent
from eventproc.store.model.errors import EventprocError, NotFound, Retryable, StreamReplaced
from eventproc.store.model.names import StreamName
from eventproc.store.schedules import tick
from eventproc.store.segments import JOB_HEADER, ReservedHeaders, append
from eventproc.streams.segment_buffers import SegmentBuffers, add_event

DUE_EVENTS_A_STEP: Final = 2_000
"""Events that one transaction appends when they are due: some 20 ms in a directory. Higher: others wait longer."""


class DelayedEvents:
    """The events of a store that are not due yet; `ep.delayed`."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def __repr__(self) -> str:
        return f"DelayedEvents({self._db.name!r})"

    async def list(
        self, *, stream: str | None = None, after: str | None = None, limit: int = 100
    ) -> builtins.list[DelayedEvent[bytes]]:
        """Return a page of events that wait; an empty page is the end.

        They are in the order of their ids: that of writing, to the ms, but for events of jobs.

        Args:
            stream: only those of the stream of this name. None (default): of all.
            after: id of the last event of the previous page. None (default): the first page.
            limit: how many at most. Default: 100. The page also ends at about 4 MiB of payloads.

        Raises:
            NotFound: there is no such stream.
            InvalidArgument: `limit` is less than 1, `stream` is no full name, or an argument has the wrong type.
        """
        step = partial(
            list_delayed,
            stream=None if stream is None else str(StreamName.parse(stream, internal=True)),
            after=None if after is None else check_str("after", after),
            limit=check_int("limit", limit, least=1),
        )
        return await self._db.read(step)

    async def get(self, event_id: str) -> DelayedEvent[bytes]:
        """Return an event that waits.

        Args:
            event_id: its id, or the one that was given when it was written.

        Raises:
            NotFound: no event of that id waits; it may have been appended.
            InvalidArgument: events of several streams were given that id.
        """
        return await self._db.read(partial(get_delayed, id=check_str("event id", event_id)))

    async def cancel(self, event_id: str) -> DelayedEvent[bytes]:
        """Forget an event, and return it: it is never appended. If it is that of a job, the job is cancelled.

        Args:
            event_id: its id, or the one that was given when it was written; another event may have that one then.

        Raises:
            NotFound: no event of that id waits; it may have been appended.
            InvalidArgument: events of several streams were given that id.
        """
        step = partial(_cancel, id=check_str("event id", event_id))
        return await self._db.write(step, step=Step.DELAYED_CHANGE)

    async def move(
        self, event_id: str, *, delay_ms: int | None = None, at: datetime | int | None = None
    ) -> DelayedEvent[bytes]:
        """Let an event be due at another time, and return it. One that could not be appended is tried again.

        If it is that of a job, `Job.describe` shows the new time.

        Args:
            event_id: its id, or the one that was given when it was written.
            delay_ms: how long from now, in ms.
            at: when instead: a time with its zone, or ms since 1970. A time that has passed means now.

        Raises:
            NotFound: no event of that id waits; it may have been appended.
            InvalidArgument: neither or both times are given, or one is not valid; or events of several streams were
                given that id.
        """
        delay = Delay.make(delay_ms, at)
        if delay is None:
            raise invalid_argument("at", at, "give it or delay_ms")
        step = partial(_move, id=check_str("event id", event_id), delay=delay)
        return await self._db.write(step, step=Step.DELAYED_CHANGE)


def _cancel(tx: Tx, id: str) -> DelayedEvent[bytes]:
    found = cancel_delayed(tx, id)
    if (job := found.headers.get(JOB_HEADER)) is not None:
        cancel_job_of(tx, found.id, job)
    return found


def _move(tx: Tx, id: str, delay: Delay) -> DelayedEvent[bytes]:
    moved = move_delayed(tx, id, delay)
    if (job := moved.headers.get(JOB_HEADER)) is not None:
        move_job_of(tx, moved.id, job, moved.due_ms)
    return moved


def append_due(tx: Tx) -> int:
    """Append events that are due to their streams, and delete their rows; return how many rows were due.

    Those of one stream keep their order. An event whose stream is sealed, or that its stream does not take, stays as a
    row with the reason, and none behind it waits for it. Rows of a stream that was deleted go.
    Cost: about 10 us an event.
    """
    found = due_rows(tx, limit=DUE_EVENTS_A_STEP, bytes_max=DUE_BYTES_A_STEP)
    by_stream: dict[tuple[str, int], list[DueRow]] = {}
    for row in found:
        by_stream.setdefault((row.event.stream, row.stream_id), []).append(row)
    schedules = sum(row.schedule is not None for row in found)
    for (stream, stream_id), rows in by_stream.items():
        _append(tx, stream, stream_id, rows, schedules)
    return len(found)


def _append(tx: Tx, stream: str, stream_id: int, rows: Sequence[DueRow], schedules: int) -> None:
    ids = [row.event.id for row in rows]
    try:
        record = get_writable_stream(tx, stream, stream_id=stream_id).value
    except (NotFound, StreamReplaced):
        forget_delayed(tx, ids)
        return
    except EventprocError as why:
        note_failure(tx, ids, str(why))
        return
    spread = int.from_bytes(tx.clock.random_bytes(4), "big")
    appended = []
    try:
        buffers = SegmentBuffers(KeyRoutes(current_router(tx, record)), spread)
        for row in rows:
            try:
                for each in _events_of(tx, row, schedules):
                    headers = ReservedHeaders(each.headers)
                    add_event(
                        buffers, each.payload, each.key, each.event_time, headers, each.partition, stream
                    )
            except Retryable:
                raise
            except EventprocError as why:
                note_failure(tx, [row.event.id], str(why))
            else:
                appended += [row.event.id] if row.schedule is None else []
        if parts := buffers.parts(buffers.take()):
            where = append(tx, stream, stream_id, parts)
            note_places(tx, stream, stream_id, parts, where, window_ms=record.config.id_window_ms)
    except Retryable:
        raise
    except EventprocError as why:  # its rows are damaged: other streams must not wait for a person
        note_failure(tx, ids, str(why))
    else:
        forget_delayed(tx, appended)


def _events_of(tx: Tx, row: DueRow, schedules: int) -> list[DelayedEvent[bytes]]:
    if row.schedule is None:
        return [row.event]
    assert row.event.due_ms is not None, "a row that is due has a time"
    return tick(tx, row.schedule, row.event.due_ms, schedules=schedules)
