"""The rows of delayed events: durable when they are written, appended to their streams when they are due.

Who appends them does that in the transaction that deletes their rows, so that each is appended once. See
docs/design/delayed-events.md.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import attrs

from eventproc.store.catalog import get_stream, get_writable_stream
from eventproc.store.database import Tx, Watch, find_number
from eventproc.store.model.delays import Delay, DelayedEvent
from eventproc.store.model.errors import InvalidArgument, NotFound
from eventproc.store.payload_pages import page_of_rows
from eventproc.store.segments import ID_HEADER

P = TypeVar("P")

DELAYED_CHANNEL: Final = "delayed events"

DUE_BYTES_A_STEP: Final = 4 * 2**20
"""Bytes of events, with keys and headers, that one transaction appends when they are due. Half of a commit's limit."""

_COLUMNS: Final = (
    "event_id, stream, due_ms, payload, routing_key, event_time, headers, partition_number, failure"
)

_FIRST_DUE: Final = "SELECT due_ms FROM delayed_event WHERE due_ms IS NOT NULL"


@attrs.define(eq=False)
class NewDelayedEvent:
    """An event that a call writes with a delay, checked and encoded. due_ms: noted when it is stored."""

    id: str
    delay: Delay
    payload: bytes
    key: str | None
    event_time: int | None
    headers: Mapping[str, str] | None
    partition: int | None = None
    due_ms: int = 0

    def replace_headers(self, headers: Mapping[str, str]) -> None:
        """Let it have other headers."""
        self.headers = headers

    @property
    def own_id(self) -> str | None:
        """The id that the caller gave the event; None without one."""
        return None if self.headers is None else self.headers.get(ID_HEADER)

    def described(self, stream: str, payload: P) -> DelayedEvent[P]:
        """Return what its caller gets, once it is stored."""
        return DelayedEvent(
            id=self.id,
            stream=stream,
            due_ms=self.due_ms,
            payload=payload,
            key=self.key,
            event_time=self.event_time,
            headers=self.headers or {},
            partition=self.partition,
        )


def store_delayed(tx: Tx, stream: str, stream_id: int, events: Sequence[NewDelayedEvent]) -> None:
    """Store events, and note when they are due. Raises NotFound, StreamReplaced, StreamSealed.

    Cost: a look-up, and a row in three indexes for each event.
    """
    get_writable_stream(tx, stream, stream_id=stream_id)
    rows = []
    for each in events:
        each.due_ms = each.delay.due_ms(tx.now_ms)
        key = None if each.key is None else each.key.encode()
        headers = json.dumps(each.headers, separators=(",", ":")) if each.headers else None
        size_bytes = len(each.payload) + len(key or b"") + len(headers or "")
        place = (each.id, stream_id, stream, each.due_ms, size_bytes)
        rows.append((*place, each.payload, key, each.event_time, headers, each.partition))
    tx.executemany(
        "INSERT INTO delayed_event (event_id, stream_id, stream, due_ms, size_bytes, payload, routing_key, event_time,"
        " headers, partition_number) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        rows,
    )
    tx.wake(DELAYED_CHANNEL)


def first_due_ms(tx: Tx) -> int | None:
    """Return when the next event, or tick of a schedule, is due; None if none waits. One look-up."""
    return find_number(tx, f"{_FIRST_DUE} ORDER BY due_ms LIMIT 1")


def first_once_due_ms(tx: Tx) -> int | None:
    """Return when the next event that no schedule repeats is due; None if none waits. Passes the schedules' rows."""
    return find_number(tx, f"{_FIRST_DUE} AND schedule IS NULL ORDER BY due_ms LIMIT 1")


class DueRow(NamedTuple):
    """A row that is due. schedule: of which it is a tick; None: it is an event that was written with a delay."""

    stream_id: int
    schedule: str | None
    event: DelayedEvent[bytes]


WATCH: Final = Watch(DELAYED_CHANNEL, first_due_ms)
"""Notices that another event is the next one."""


def due_rows(tx: Tx, *, limit: int, bytes_max: int) -> list[DueRow]:
    """Return the rows that are due, in the order in which they are.

    Of many, as many as the bounds admit, and at least one.
    """
    sizes = tx.execute(
        "SELECT due_ms, id, size_bytes FROM delayed_event WHERE due_ms <= ? ORDER BY due_ms, id LIMIT ?",
        (tx.now_ms, limit),
    ).fetchall()
    left, last = bytes_max, None
    for due_ms, id, size in sizes:
        left -= size
        if last is not None and left < 0:
            break
        last = due_ms, id
    if last is None:
        return []
    rows = tx.execute(
        f"SELECT stream_id, schedule, {_COLUMNS} FROM delayed_event WHERE due_ms IS NOT NULL AND (due_ms, id) <= (?, ?)"
        " ORDER BY due_ms, id",
        last,
    ).fetchall()
    return [DueRow(stream_id, schedule, _event(row)) for stream_id, schedule, *row in rows]


def forget_delayed(tx: Tx, ids: Iterable[str]) -> None:
    """Delete rows, in the transaction that appends their events, or because their stream is gone."""
    tx.executemany("DELETE FROM delayed_event WHERE event_id = ?", [(each,) for each in ids])


def note_failure(tx: Tx, ids: Iterable[str], failure: str) -> None:
    """Keep rows that cannot be appended, for a person: they are due no more."""
    tx.executemany(
        "UPDATE delayed_event SET due_ms = NULL, failure = ? WHERE event_id = ?",
        [(failure, each) for each in ids],
    )


def list_delayed(tx: Tx, *, stream: str | None, after: str | None, limit: int) -> list[DelayedEvent[bytes]]:
    """Return a page of delayed events in the order of their ids. Two queries by an index.

    stream: only those of the stream of this name. after: only those behind this id. limit: how many at most.
    """
    of_stream = "" if stream is None else f"stream_id = {get_stream(tx, stream).value.stream_id} AND "
    found = f"FROM delayed_event WHERE {of_stream}event_id > ? AND schedule IS NULL ORDER BY event_id"
    return [
        _event(row) for row in page_of_rows(tx, _COLUMNS, "length(payload)", found, (after or "",), limit)
    ]


def count_delayed(tx: Tx, stream_id: int) -> int:
    """Return how many events of a stream wait, or could not be appended. Reads an index over them, and all ticks."""
    (count,) = tx.execute("SELECT count(*) FROM delayed_event WHERE stream_id = ?", (stream_id,)).fetchone()
    return int(count) - _count_ticks(tx)[stream_id]


def count_all_delayed(tx: Tx) -> dict[int, int]:
    """Return how many events wait, or could not be appended, by the id of their stream. Reads an index over all."""
    rows = tx.execute("SELECT stream_id, count(*) FROM delayed_event GROUP BY stream_id").fetchall()
    ticks = _count_ticks(tx)
    return {stream_id: int(count) - ticks[stream_id] for stream_id, count in rows}


def _count_ticks(tx: Tx) -> Counter[int]:
    """Return how many of the rows of each stream are ticks of schedules, which are no events. One row a schedule."""
    rows = tx.execute("SELECT stream_id FROM delayed_event WHERE schedule IS NOT NULL").fetchall()
    return Counter(stream_id for (stream_id,) in rows)


def get_delayed(tx: Tx, id: str) -> DelayedEvent[bytes]:
    """Return a delayed event by its id, or by the one that its caller gave it. At most three look-ups.

    Raises NotFound: there is none of that id, or it was appended; and InvalidArgument: several streams have one.
    """
    query = f"SELECT {_COLUMNS} FROM delayed_event WHERE event_id {{}} AND schedule IS NULL LIMIT 2"
    rows = (
        tx.execute(query.format("= ?"), (id,)).fetchall()
        or tx.execute(
            query.format("IN (SELECT delayed FROM event_id WHERE id = ? AND delayed IS NOT NULL)"), (id,)
        ).fetchall()
    )
    if not rows:
        raise NotFound(kind="delayed event", name=id)
    if len(rows) > 1:
        reason = (
            "delayed events of several streams have it; use the id by which `delayed.list` shows the event"
        )
        raise InvalidArgument(what="event id", value=id, reason=reason)
    return _event(rows[0])


def cancel_delayed(tx: Tx, id: str) -> DelayedEvent[bytes]:
    """Forget an event, which is never appended then, and its caller's id; return it. Raises as `get_delayed`."""
    found = get_delayed(tx, id)
    forget_delayed(tx, [found.id])
    if (own := found.headers.get(ID_HEADER)) is not None:
        tx.execute("DELETE FROM event_id WHERE id = ? AND delayed = ?", (own, found.id))
    tx.wake(DELAYED_CHANNEL)
    return found


def move_delayed(tx: Tx, id: str, delay: Delay) -> DelayedEvent[bytes]:
    """Let an event be due at another time, also one that could not be appended; return it. Raises as `get_delayed`."""
    found = get_delayed(tx, id)
    tx.execute(
        "UPDATE delayed_event SET due_ms = ?, failure = NULL WHERE event_id = ?",
        (delay.due_ms(tx.now_ms), found.id),
    )
    tx.wake(DELAYED_CHANNEL)
    return get_delayed(tx, found.id)


def _event(row: Sequence[Any]) -> DelayedEvent[bytes]:
    id, stream, due_ms, payload, key, event_time, headers, partition, failure = row
    return DelayedEvent(
        id=id,
        stream=stream,
        due_ms=due_ms,
        payload=bytes(payload),
        key=None if key is None else bytes(key).decode(),
        event_time=event_time,
        headers={} if headers is None else json.loads(headers),
        partition=partition,
        failure=failure,
    )
