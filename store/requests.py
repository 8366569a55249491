"""The table `request`: a pending row is the intent of a workflow, a finished one its outcome.

One intent per (target, kind): an equal one joins it, a different one is refused while it lasts
(architecture.md section 5). Keeping intent and outcome in one row makes "clear the intent and write the
outcome" one statement, which cannot be half done.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from enum import StrEnum
from functools import partial
from typing import Final, TypeAlias

import attrs

from eventproc.store.catalog import REQUEST_STREAM, post_event
from eventproc.store.clock import id_floor, id_time_ms
from eventproc.store.database import SharedSlot, Tx, Watch
from eventproc.store.local_results import LocalResults
from eventproc.store.model.errors import EventprocError, Expired, InProgress, InvalidArgument, NotFound
from eventproc.store.model.failures import error_from_plain, error_to_plain

OUTCOME_MEMORY_MS: Final = 24 * 3600 * 1000
"""How long an outcome is kept. A retry with an id older than this is refused, so that it never runs
twice; longer keeps more rows, shorter refuses slower callers."""


@attrs.frozen
class Outcome:
    """How a request ended.

    error: the reason if it was rejected, None if it is done. result: the value that the workflow reported with
    `note_result`, if any.
    """

    error: EventprocError | None
    finished_ms: int
    result: object = None


REQUEST_OUTCOMES: Final = SharedSlot(LocalResults[str, Outcome])
"""Outcomes by request id, for callers of this process that wait."""


class RequestStatus(StrEnum):
    """What became of a request."""

    PENDING = "pending"
    DONE = "done"
    REJECTED = "rejected"


@attrs.frozen
class Deadline:
    """A moment of one boot, immune to steps of the wall clock; it has passed in every other boot."""

    boot_id: str
    at_ms: int

    def has_passed(self, tx: Tx) -> bool:
        """Return whether the moment lies behind the transaction's."""
        return self.boot_id != tx.clock.boot_id or self.at_ms <= tx.monotonic_ms

    def is_before(self, other: Deadline) -> bool:
        """Return whether `other`, of the present boot, comes later."""
        return self.boot_id != other.boot_id or self.at_ms < other.at_ms


@attrs.frozen
class Request:
    """A request and what became of it.

    id: UUID version 7. target: what it is about, "scope/stream" or a scope. kind: of the workflow.
    body: the request's value as JSON. error: why it was rejected. Times in wall ms. deadline: it is not
    begun after that. started: its first transaction was made. result: what the workflow made, for a caller
    whose own process ran it; not stored.
    """

    id: str
    target: str
    kind: str
    body: bytes
    status: RequestStatus
    error: EventprocError | None
    created_ms: int
    finished_ms: int | None
    deadline: Deadline | None = None
    started: bool = False
    result: object = None

    def ended(self, outcome: Outcome) -> Request:
        """Return the request as it is after it ended so."""
        status = RequestStatus.DONE if outcome.error is None else RequestStatus.REJECTED
        return Request(  # by hand: `evolve` takes five times as long, for each request that anyone waits for
            *(self.id, self.target, self.kind, self.body, status, outcome.error, self.created_ms),
            *(outcome.finished_ms, self.deadline, self.started, outcome.result),
        )

    def has_expired(self, tx: Tx) -> bool:
        """Return whether it must not be begun any more; once begun it always runs to its end."""
        return self.deadline is not None and not self.started and self.deadline.has_passed(tx)


_COLUMNS: Final = (
    "id, target, kind, body, status, error, created_ms, finished_ms, deadline_boot, deadline_ms, started"
)

_STANDS_FOR: Final = "coalesce((SELECT request FROM joined WHERE id = ?), ?)"
"""The id under which the request lies that two parameters name, both of them by the same id."""

_Row: TypeAlias = tuple[str, str, str, bytes, str, str | None, int, int | None, str | None, int | None, int]


def submit_request(
    tx: Tx,
    *,
    request_id: str,
    target: str,
    kind: str,
    body: bytes,
    satisfied: Callable[[], bool],
    within_ms: int | None = None,
) -> Request:
    """Record the intent and post its event; return the request to wait for.

    within_ms: how long from now it may be begun; for ever unless given.
    satisfied: returns whether there is nothing to do, and then the outcome is written at once and no event
    is posted; what it raises refuses the request. It is asked for new requests only. A repeated
    `request_id` returns what became of the first; a pending request with an equal body is joined: the
    returned id is then that of the other, which `request_id` finds from now on too, and it may be begun for as
    long as either allows. Raises InProgress for one with a different body, Expired for an
    id older than OUTCOME_MEMORY_MS that is not known any more, InvalidArgument for no UUIDv7.
    """
    repeated, other = _find_both(tx, request_id, target, kind)
    if repeated is not None:
        if (repeated.target, repeated.kind, repeated.body) != (target, kind, body):
            raise InvalidArgument(
                what="request id", value=request_id, reason="it belongs to a different request"
            )
        return repeated
    try:
        age_ms = tx.now_ms - id_time_ms(request_id)
    except ValueError as error:
        raise InvalidArgument(
            what="request id", value=request_id, reason="it is not a UUID of version 7"
        ) from error
    if age_ms > OUTCOME_MEMORY_MS:
        raise Expired(target=target, request_id=request_id)
    deadline = None if within_ms is None else Deadline(tx.clock.boot_id, tx.monotonic_ms + within_ms)
    if other is not None:
        if other.body != body:
            raise InProgress(target=target, kind=kind, request_id=other.id)
        return _join(tx, request_id, other, deadline)
    done = satisfied()
    status = RequestStatus.DONE if done else RequestStatus.PENDING
    finished_ms = tx.now_ms if done else None
    made = Request(request_id, target, kind, body, status, None, tx.now_ms, finished_ms, deadline)
    tx.execute(
        f"INSERT INTO request ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, NULL, ?, ?, ?, ?, 0)",
        (
            *(made.id, target, kind, body, status.value, made.created_ms, finished_ms),
            *((None, None) if deadline is None else (deadline.boot_id, deadline.at_ms)),
        ),
    )
    if not done:
        post_event(tx, REQUEST_STREAM, target, request_id.encode())
    return made


def _join(tx: Tx, request_id: str, other: Request, deadline: Deadline | None) -> Request:
    """Let `request_id` stand for `other` too, which waits to be begun until the later of the two deadlines."""
    tx.execute("INSERT INTO joined (id, request) VALUES (?, ?)", (request_id, other.id))
    if other.deadline is None or (deadline is not None and not other.deadline.is_before(deadline)):
        return other
    boot_id, at_ms = (None, None) if deadline is None else (deadline.boot_id, deadline.at_ms)
    tx.execute(
        "UPDATE request SET deadline_boot = ?, deadline_ms = ? WHERE id = ?", (boot_id, at_ms, other.id)
    )
    return attrs.evolve(other, deadline=deadline)


def start_request(tx: Tx, request: Request) -> None:
    """Note that a workflow of several transactions has made its first: its deadline is over."""
    if not request.started:
        tx.execute("UPDATE request SET started = 1 WHERE id = ?", (request.id,))


def finish_request(tx: Tx, request_id: str, error: EventprocError | None = None) -> None:
    """Write the outcome of a pending request and thereby clear its intent."""
    status = RequestStatus.DONE if error is None else RequestStatus.REJECTED
    plain = None if error is None else error_to_plain(error)
    body = None if plain is None else json.dumps(plain)
    done = tx.execute(
        "UPDATE request SET status = ?, error = ?, finished_ms = ? WHERE id = ? AND status = 'pending'",
        (status.value, body, tx.now_ms, request_id),
    )
    assert done.rowcount == 1, f"request {request_id} was not pending"
    # Made anew: the one that was raised holds the frames of this transaction.
    outcome = Outcome(None if plain is None else error_from_plain(plain), tx.now_ms)
    tx.after(partial(tx.shared[REQUEST_OUTCOMES].deliver, request_id, outcome))
    tx.wake(("request", request_id))


def note_result(tx: Tx, request_id: str, result: object) -> None:
    """Attach the workflow's result to the outcome that this transaction writes.

    It is not stored. It saves a waiting caller of this process one read; other callers read the database.
    """
    tx.remember(("request result", request_id), result)


def find_request(tx: Tx, request_id: str) -> Request | None:
    """Return the request, that which it joined if it did, or None when it never was or is forgotten."""
    row = tx.execute(
        f"SELECT {_COLUMNS} FROM request WHERE id = {_STANDS_FOR}", (request_id, request_id)
    ).fetchone()
    return None if row is None else _request(row)


def get_request(tx: Tx, request_id: str) -> Request:
    """Return the request. Raises NotFound."""
    if (found := find_request(tx, request_id)) is None:
        raise NotFound(kind="request", name=request_id)
    return found


def list_requests(tx: Tx, *, limit: int = 100) -> list[Request]:
    """Return the newest requests, newest first."""
    rows = tx.execute(f"SELECT {_COLUMNS} FROM request ORDER BY id DESC LIMIT ?", (limit,))
    return [_request(row) for row in rows.fetchall()]


def pending_requests(tx: Tx) -> int:
    """Return how many requests are pending; one index."""
    row = tx.execute("SELECT count(*) FROM request WHERE status = 'pending'").fetchone()
    return int(row[0])


def watch_request(request_id: str) -> Watch:
    """Return what to subscribe to in order to learn of the request's outcome, whoever runs it."""

    def probe(tx: Tx) -> bool:
        row = tx.execute(
            f"SELECT status FROM request WHERE id = {_STANDS_FOR}", (request_id, request_id)
        ).fetchone()
        return row is not None and row[0] != RequestStatus.PENDING.value

    return Watch(("request", request_id), probe)


def forget_outcomes(tx: Tx, *, limit: int = 1000) -> bool:
    """Drop outcomes older than OUTCOME_MEMORY_MS, at most `limit`. Return whether there may be more."""
    old = tx.execute(
        "SELECT id FROM request WHERE id < ? AND finished_ms < ? ORDER BY id LIMIT ?",
        (id_floor(tx.now_ms - OUTCOME_MEMORY_MS), tx.now_ms - OUTCOME_MEMORY_MS, limit),
    ).fetchall()
    tx.executemany("DELETE FROM request WHERE id = ?", old)
    tx.executemany("DELETE FROM joined WHERE request = ?", old)
    return len(old) == limit


def _find_both(tx: Tx, request_id: str, target: str, kind: str) -> tuple[Request | None, Request | None]:
    """Return the request that the id stands for, and the intent of (target, kind); one statement."""
    rows = tx.execute(
        f"SELECT 1, {_COLUMNS} FROM request WHERE id = {_STANDS_FOR}"
        f" UNION ALL SELECT 0, {_COLUMNS} FROM request"
        " WHERE target = ? AND kind = ? AND status = 'pending'",
        (request_id, request_id, target, kind),
    ).fetchall()
    found = {row[0]: _request(row[1:]) for row in rows}
    return found.get(1), found.get(0)


def _request(row: _Row) -> Request:
    identifier, target, kind, body, status, error, created_ms, finished_ms, boot_id, at_ms, started = row
    return Request(
        id=identifier,
        target=target,
        kind=kind,
        body=bytes(body),
        status=RequestStatus(status),
        error=None if error is None else error_from_plain(json.loads(error)),
        created_ms=created_ms,
        finished_ms=finished_ms,
        deadline=None if boot_id is None or at_ms is None else Deadline(boot_id, at_ms),
        started=bool(started),
    )
