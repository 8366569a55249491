"""Requests of workflows: a pending row of the table `request` is an intent, a finished row its outcome.

At most one intent per (target, kind) is pending: an equal request joins it, a different one is refused
(architecture.md section 5). Because intent and outcome share one row, one statement clears the intent and writes the
outcome.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from enum import StrEnum
from functools import partial
from typing import Final, TypeAlias

import attrs

from eventproc.base.clock import id_floor, id_time_ms
from eventproc.store.catalog import REQUEST_STREAM, post_event
from eventproc.store.database import SharedSlot, Tx, Watch
from eventproc.store.local_results import LocalResults
from eventproc.store.model import errors, group_errors, metadata_errors
from eventproc.store.model.errors import EventprocError, Expired, InProgress, InvalidArgument, NotFound
from eventproc.store.model.list_pages import ListPage, NameFilter, seen_entries
from eventproc.store.model.short_repr import short_repr_of_fields
from eventproc.store.segments import Headers

OUTCOME_MEMORY_MS: Final = 24 * 3600 * 1000
"""How long an outcome is kept. A retry with an older id is refused, so that it never runs twice. A higher value keeps
more rows; a lower one refuses slower callers."""


@attrs.frozen
class Outcome:
    """How a request ended.

    error: the reason if it was rejected, None if it is done. result: the value that the workflow reported with
    `note_result`, if any.
    """

    error: EventprocError | None
    finished_ms: int
    result: object = None


OUTCOMES: Final = ("request outcomes",)
"""Topic that every outcome of this process wakes."""

REQUEST_OUTCOMES: Final = SharedSlot(LocalResults[str, Outcome])
"""Outcomes by request id, for callers of this process that wait."""


class RequestStatus(StrEnum):
    """The state of a request."""

    PENDING = "pending"
    DONE = "done"
    REJECTED = "rejected"


class RequestOrigin(StrEnum):
    """Who asked for a change."""

    PERSON = "person"
    """A caller: a program, or the shell."""

    POLICY = "policy"
    """The policy of the stream, which the system keeps."""


@attrs.frozen
class Deadline:
    """A monotonic time of one boot, not affected by steps of the wall clock. In any other boot it has passed."""

    boot_id: str
    at_ms: int

    def has_passed(self, tx: Tx) -> bool:
        """Return whether the deadline is before the time of the transaction."""
        return self.boot_id != tx.clock.boot_id or self.at_ms <= tx.monotonic_ms

    def is_before(self, other: Deadline) -> bool:
        """Return whether `other`, a deadline of the present boot, is later."""
        return self.boot_id != other.boot_id or self.at_ms < other.at_ms


@attrs.frozen
class Request:
    """A request and its state.

    id: UUID version 7.
    target: the object that it changes, "scope/stream" or a scope.
    kind: of the workflow.
    body: the request's value as JSON.
    error: the reason if it was rejected.
    created_ms, finished_ms: wall clock.
    deadline: it does not start after that.
    started: whether its first transaction was committed.
    origin: who asked for it.
    result: the workflow's result, only if this process ran it; not stored.
    is_new: whether the call that returned it has recorded it. A request with nothing to do is done instead, and one
        that joined another caller's request is that one. Not stored.
    """

    __repr__ = short_repr_of_fields

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
    origin: RequestOrigin = RequestOrigin.PERSON
    result: object = None
    is_new: bool = attrs.field(default=False, eq=False, repr=False)

    def ended(self, outcome: Outcome) -> Request:
        """Return the request in its final state, with this outcome."""
        status = RequestStatus.DONE if outcome.error is None else RequestStatus.REJECTED
        return Request(  # not with `evolve`, which takes five times as long
            *(self.id, self.target, self.kind, self.body, status, outcome.error, self.created_ms),
            *(outcome.finished_ms, self.deadline, self.started, self.origin, outcome.result, self.is_new),
        )

    def has_expired(self, tx: Tx) -> bool:
        """Return whether it must not start any more. A started request always runs to its end."""
        return self.deadline is not None and not self.started and self.deadline.has_passed(tx)


_COLUMNS: Final = (
    "id, target, kind, body, status, error, created_ms, finished_ms, deadline_boot, deadline_ms, started,"
    " origin"
)

_STORED_ID: Final = "coalesce((SELECT request FROM joined WHERE id = ?), ?)"
"""The stored id for a given id, which may be of a joined request. Takes the given id twice."""

_Row: TypeAlias = tuple[
    str, str, str, bytes, str, str | None, int, int | None, str | None, int | None, int, str
]


def submit_request(
    tx: Tx,
    *,
    request_id: str,
    target: str,
    kind: str,
    asked: bytes,
    plan: Callable[[], bytes],
    satisfied: Callable[[], bool],
    within_ms: int | None = None,
    origin: RequestOrigin = RequestOrigin.PERSON,
    headers: Headers | None = None,
) -> Request:
    """Record the intent and post its event; return the request to wait for.

    request_id: a repeated id returns the state of the first request, if that asked for the same.
    asked: what the caller asks for. plan: makes the body of it; called for new ids only. It may raise a refusal.
    satisfied: called for new requests only. If it returns True there is nothing to do: the outcome is written in this
        transaction and no event is posted. If it raises, the request is refused with that error.
    within_ms: how long from now it may start. None (default): without a limit.
    origin: a person or a policy. A request that is joined keeps its own. headers: of the event.

    A pending request with an equal body is joined. Then the returned id is that of the other request, which
    `request_id` finds from now on, too; it may start until the later of both deadlines.
    Raises InProgress if a pending request has a different body, Expired if the id is unknown and older than
    OUTCOME_MEMORY_MS, InvalidArgument if it is no UUID of version 7.
    """
    repeated, other = _find_both(tx, request_id, target, kind)
    if repeated is not None:
        first, first_asked = repeated
        if (first.target, first.kind, first_asked) != (target, kind, asked):
            reason = f"the id belongs to a different request: {first.kind} of {first.target}"
            raise InvalidArgument(what="request id", value=request_id, reason=reason)
        return first
    _verify_new(tx, request_id, target)
    body = plan()
    stored_asked = None if asked == body else asked
    deadline = None if within_ms is None else Deadline(tx.clock.boot_id, tx.monotonic_ms + within_ms)
    if other is not None:
        if other.body != body:
            raise InProgress(target=target, kind=kind, request_id=other.id)
        return _join(tx, request_id, stored_asked, other, deadline)
    done = satisfied()
    status = RequestStatus.DONE if done else RequestStatus.PENDING
    finished_ms = tx.now_ms if done else None
    made = Request(
        *(request_id, target, kind, body, status, None, tx.now_ms, finished_ms, deadline),
        origin=origin,
        is_new=not done,
    )
    tx.execute(
        f"INSERT INTO request ({_COLUMNS}, asked) VALUES (?, ?, ?, ?, ?, NULL, ?, ?, ?, ?, 0, ?, ?)",
        (
            *(made.id, target, kind, body, status.value, made.created_ms, finished_ms),
            *((None, None) if deadline is None else (deadline.boot_id, deadline.at_ms)),
            origin.value,
            stored_asked,
        ),
    )
    if not done:
        post_event(tx, REQUEST_STREAM, target, request_id.encode(), headers)
    return made


def _join(tx: Tx, request_id: str, asked: bytes | None, other: Request, deadline: Deadline | None) -> Request:
    """Make `request_id` find `other`, too, and give `other` the later of the two deadlines."""
    tx.execute("INSERT INTO joined (id, request, asked) VALUES (?, ?, ?)", (request_id, other.id, asked))
    if other.deadline is None or (deadline is not None and not other.deadline.is_before(deadline)):
        return other
    boot_id, at_ms = (None, None) if deadline is None else (deadline.boot_id, deadline.at_ms)
    tx.execute(
        "UPDATE request SET deadline_boot = ?, deadline_ms = ? WHERE id = ?", (boot_id, at_ms, other.id)
    )
    return attrs.evolve(other, deadline=deadline)


def start_request(tx: Tx, request: Request) -> None:
    """Record that a workflow has committed its first transaction, so that its deadline no longer applies."""
    if not request.started:
        tx.execute("UPDATE request SET started = 1 WHERE id = ?", (request.id,))


def finish_request(tx: Tx, request_id: str, error: EventprocError | None = None) -> None:
    """Write the outcome of a pending request, which also clears its intent.

    A policy of retention truncates its stream up to once a minute. Its earlier outcomes for this stream are deleted, so
    that they do not hide what people asked for; except those that another caller's request has joined.
    """
    status = RequestStatus.DONE if error is None else RequestStatus.REJECTED
    plain = None if error is None else error_to_plain(error)
    body = None if plain is None else json.dumps(plain).encode()
    row = tx.execute(
        "UPDATE request SET status = ?, error = ?, finished_ms = ? WHERE id = ? AND status = 'pending'"
        " RETURNING target, kind, origin",
        (status.value, body, tx.now_ms, request_id),
    ).fetchone()
    assert row is not None, f"request {request_id} was not pending"
    if row[1:] == ("truncate", RequestOrigin.POLICY.value):
        tx.execute(
            "DELETE FROM request WHERE target = ? AND origin = 'policy' AND kind = 'truncate'"
            " AND status != 'pending' AND id != ? AND id NOT IN (SELECT request FROM joined)",
            (row[0], request_id),
        )
    result = tx.cache.pop(("request result", request_id), None)
    # A copy, because the raised error holds the frames of this transaction.
    outcome = Outcome(None if plain is None else error_from_plain(plain), tx.now_ms, result)
    tx.after(partial(tx.shared[REQUEST_OUTCOMES].deliver, request_id, outcome))
    tx.wake(("request", request_id))
    tx.wake(OUTCOMES)


def note_result(tx: Tx, request_id: str, result: object) -> None:
    """Attach the workflow's result to the outcome that this transaction writes.

    It is not stored. It saves a waiting caller of this process one read; other callers read the database.
    """
    tx.remember(("request result", request_id), result)


def find_request(tx: Tx, request_id: str) -> Request | None:
    """Return the request, or the one that it joined. None if it never existed or is forgotten."""
    row = tx.execute(
        f"SELECT {_COLUMNS} FROM request WHERE id = {_STORED_ID}", (request_id, request_id)
    ).fetchone()
    return None if row is None else _request(row)


def get_request(tx: Tx, request_id: str) -> Request:
    """Return the request. Raises NotFound."""
    if (found := find_request(tx, request_id)) is None:
        raise NotFound(kind="request", name=request_id)
    return found


def list_requests(tx: Tx, page: ListPage) -> list[Request]:
    """Return a page of the requests, the newest first, of those whose targets its reader may know.

    Cost with a filter: as `chosen_entries`.
    """

    def read(part: ListPage) -> list[Request]:
        order = "ORDER BY id DESC LIMIT ?"
        if part.after is None:
            rows = tx.execute(f"SELECT {_COLUMNS} FROM request {order}", (part.most,))
        else:
            rows = tx.execute(f"SELECT {_COLUMNS} FROM request WHERE id < ? {order}", (part.after, part.most))
        return [_request(row) for row in rows.fetchall()]

    return seen_entries(read, lambda each: page.allows(each.target), lambda each: each.id, page)


def pending_of(tx: Tx, target: str) -> list[Request]:
    """Return the pending requests that would change `target`, at most one of each kind. One look-up."""
    rows = tx.execute(
        f"SELECT {_COLUMNS} FROM request WHERE target = ? AND status = 'pending' ORDER BY kind", (target,)
    )
    return [_request(row) for row in rows.fetchall()]


def pending_requests(tx: Tx, readable: NameFilter | None = None) -> int:
    """Return the number of pending requests. Reads one index. readable: which targets count; None: all."""
    if readable is None:
        return int(tx.execute("SELECT count(*) FROM request WHERE status = 'pending'").fetchone()[0])
    targets = tx.execute("SELECT target FROM request WHERE status = 'pending'").fetchall()
    return sum(readable.allows(target) for (target,) in targets)


def count_requests(tx: Tx, readable: NameFilter | None = None) -> dict[tuple[str, str, str], int]:
    """Return how many requests are kept, by kind, status and origin. Reads all of the last day.

    readable: which targets count. None: all.
    """
    group = "kind, status, origin" if readable is None else "kind, status, origin, target"
    rows = tx.execute(f"SELECT {group}, count(*) FROM request GROUP BY {group}").fetchall()
    found: dict[tuple[str, str, str], int] = {}
    for kind, status, origin, *target, count in rows:
        if readable is None or readable.allows(target[0]):
            found[kind, status, origin] = found.get((kind, status, origin), 0) + int(count)
    return found


def watch_request(request_id: str) -> Watch:
    """Return the watch for the request's outcome, whichever process runs it."""

    def probe(tx: Tx) -> bool:
        row = tx.execute(
            f"SELECT status FROM request WHERE id = {_STORED_ID}", (request_id, request_id)
        ).fetchone()
        return row is not None and row[0] != RequestStatus.PENDING.value

    return Watch(("request", request_id), probe)


def forget_outcomes(tx: Tx, *, limit: int = 1000) -> bool:
    """Delete at most `limit` outcomes older than OUTCOME_MEMORY_MS. Return whether there may be more."""
    old = tx.execute(
        "SELECT id FROM request WHERE id < ? AND finished_ms < ? ORDER BY id LIMIT ?",
        (id_floor(tx.now_ms - OUTCOME_MEMORY_MS), tx.now_ms - OUTCOME_MEMORY_MS, limit),
    ).fetchall()
    tx.executemany("DELETE FROM request WHERE id = ?", old)
    tx.executemany("DELETE FROM joined WHERE request = ?", old)
    return len(old) == limit


def _verify_new(tx: Tx, request_id: str, target: str) -> None:
    """Raise Expired if the outcome of an unknown id may be forgotten, InvalidArgument for a text that is no id."""
    try:
        age_ms = tx.now_ms - id_time_ms(request_id)
    except ValueError as error:
        raise InvalidArgument(
            what="request id", value=request_id, reason="it is not a UUID of version 7 in lower case"
        ) from error
    if age_ms > OUTCOME_MEMORY_MS:
        raise Expired(target=target, request_id=request_id)


def _find_both(
    tx: Tx, request_id: str, target: str, kind: str
) -> tuple[tuple[Request, bytes] | None, Request | None]:
    """Return the request of the id with what its caller asked for, and the pending one of (target, kind)."""
    joined_asked = "SELECT coalesce(joined.asked, body) FROM joined WHERE id = ?"
    rows = tx.execute(
        f"SELECT coalesce(({joined_asked}), asked, body), {_COLUMNS} FROM request WHERE id = {_STORED_ID}"
        f" UNION ALL SELECT NULL, {_COLUMNS} FROM request"
        " WHERE target = ? AND kind = ? AND status = 'pending'",
        (request_id, request_id, request_id, target, kind),
    ).fetchall()
    repeated, other = None, None
    for asked, *row in rows:
        if asked is None:
            other = _request(tuple(row))
        else:
            repeated = _request(tuple(row)), bytes(asked)
    return repeated, other


def _request(row: _Row) -> Request:
    key, target, kind, body, status, error, created_ms, finished_ms, boot_id, at_ms, started, origin = row
    return Request(
        id=key,
        target=target,
        kind=kind,
        body=bytes(body),
        status=RequestStatus(status),
        error=None if error is None else error_from_plain(json.loads(error)),
        created_ms=created_ms,
        finished_ms=finished_ms,
        deadline=None if boot_id is None or at_ms is None else Deadline(boot_id, at_ms),
        started=bool(started),
        origin=RequestOrigin(origin),
    )


_ERROR: Final = "error"

_KINDS: Final[dict[str, type[EventprocError]]] = {
    name: kind
    for module in (errors, group_errors, metadata_errors)
    for name, kind in vars(module).items()
    if isinstance(kind, type) and issubclass(kind, EventprocError)
}


def error_to_plain(error: EventprocError) -> dict[str, object]:
    """Return the error's class name and fields, made of JSON's types."""
    return {_ERROR: type(error).__name__, **attrs.asdict(error, recurse=False)}  # type: ignore[arg-type]


def error_from_plain(plain: dict[str, object]) -> EventprocError:
    """Return the error that `error_to_plain` described. Raises ValueError for an unknown class."""
    name = plain.get(_ERROR)
    if not isinstance(name, str) or name not in _KINDS:
        raise ValueError(f"unknown kind of error: {name!r}")
    fields = {key: tuple(value) if isinstance(value, list) else value for key, value in plain.items()}
    del fields[_ERROR]
    return _KINDS[name](**fields)
