"""Submitting a request, and waiting for its outcome."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, TypedDict

import attrs

from eventproc.base.clock import new_id, part_id
from eventproc.base.telemetry_use import NOT_TRACED, find_traces
from eventproc.store.catalog import ROUTES
from eventproc.store.database import WRITE_WAIT_MS_MAX, Database
from eventproc.store.faults import Step
from eventproc.store.model.argument_checks import check_int, check_str, invalid_argument
from eventproc.store.model.errors import EventprocError, StillPending
from eventproc.store.model.policies import OffloadPolicy, RetentionPolicy
from eventproc.store.records import from_json, to_json
from eventproc.store.requests import REQUEST_OUTCOMES, Request, RequestStatus, get_request, watch_request
from eventproc.workflows.request_runner import submit
from eventproc.workflows.requests import (
    AnyRequest,
    CreateStream,
    DeleteScope,
    DeleteStream,
    OfStream,
    Operation,
    ScaleStream,
    SealStream,
    UpdateStream,
)

MOVING: Final[Mapping[str, type[OfStream]]] = MappingProxyType(
    {kind.kind: kind for kind in (UpdateStream, ScaleStream, SealStream, DeleteStream)}
)
"""The requests after which events go elsewhere."""

LOG: Final = logging.getLogger("eventproc.requests")

WAIT_MS: Final = 120_000
"""Default time that a call waits for its outcome (pravega.md 3.0). The request goes on afterwards."""

PATIENCE_MS_MAX: Final = 100 * 365 * 24 * 3600 * 1000
"""Longest wait, and latest deadline: a century. A longer one could exceed the 64 bits of a time."""

SUBMIT_MS_MIN: Final = 1_000
"""Shortest time that a request waits to be recorded, as `timeout_ms=0` means not to wait for its outcome."""


async def submit_request(
    db: Database,
    operation: Operation,
    *,
    request_id: str | None = None,
    planned: AnyRequest | None = None,
    within_ms: int | None = None,
    timeout_ms: int = WAIT_MS,
) -> Request:
    """Submit an operation without waiting for its outcome; return its request, or the equal pending one it joined.

    request_id: a UUID version 7 that makes a retry of this call safe.
    planned: the request that its caller has confirmed. None (default): it is planned now.
    within_ms: how long from now the request may begin; after that it is rejected as Expired.
    timeout_ms: how long to wait while another process holds the write lock, at least SUBMIT_MS_MIN.
    Raises LockHeld (nothing was recorded), and errors that refuse the request immediately.
    """
    identifier = new_id(db.clock) if request_id is None else check_str("request id", request_id)
    if within_ms is not None:
        within_ms = check_int("within_ms", within_ms, least=0, most=PATIENCE_MS_MAX, unit="ms")
    patience_ms = check_int("timeout_ms", timeout_ms, least=0, most=PATIENCE_MS_MAX, unit="ms")
    headers = None if (traces := find_traces()) is None else traces.carrying(None)
    return await db.write(
        lambda tx: submit(tx, operation, identifier, planned=planned, within_ms=within_ms, headers=headers),
        timeout_ms=min(max(patience_ms, SUBMIT_MS_MIN), WRITE_WAIT_MS_MAX),
        step=Step.REQUEST_SUBMIT,
    )


def check_request(value: object) -> Operation:
    """Return the operation, with fields of the types that it is declared with. Raises InvalidArgument.

    A request that a host would read back differently must not be recorded.
    """
    reason = "it must be an operation such as SealStream, with fields of the types declared there"
    if isinstance(value, OfStream | CreateStream | DeleteScope):
        try:
            read_back: Operation = from_json(to_json(value), type(value))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise invalid_argument("request", value, reason) from error
        if read_back == value:
            return read_back
    raise invalid_argument("request", value, reason)


async def wait_for_request(db: Database, request_id: str, *, timeout_ms: int = WAIT_MS) -> Request:
    """Return the request once it is done or rejected, in whichever process it runs.

    Raises NotFound, and StillPending when `timeout_ms` passed first.
    """
    return await _wait(db, check_str("request id", request_id), Patience.of(db, timeout_ms))


class RequestOptions(TypedDict, total=False):
    """Options of every call that makes a request.

    request_id: a UUID version 7, such as `ep.requests.new_id()` makes. A repeated call with the same id returns what
        became of the first one. None (default): a new id.
    timeout_ms: how long to wait for the outcome, in ms. Default: 120 s.
    """

    request_id: str | None
    timeout_ms: int


class CreateOptions(RequestOptions, total=False):
    """Options of every call that creates a stream or a topic; see `Eventproc.create_stream`."""

    storage: str
    retention: RetentionPolicy
    offload: OffloadPolicy
    id_window_ms: int


class ChangeOptions(RequestOptions, total=False):
    """Options of every call that changes a stream or a topic.

    if_version: the version that it must have, as `describe` shows it; in any other one the change is refused with
        StaleVersion. None (default): any.
    request_id, timeout_ms: see `RequestOptions`.
    """

    if_version: int | None


async def run_request(
    db: Database,
    operation: Operation,
    *,
    if_version: int | None = None,
    request_id: str | None = None,
    timeout_ms: int = WAIT_MS,
) -> Request:
    """Submit an operation and wait until it is done; return it. Raises what it was refused for, and StillPending.

    if_version: for a change of a stream; see `ChangeOptions`.
    request_id: as for `submit_request`. The log, and a note of the error that is raised, name it.
    When this process runs it, as its host does, the outcome comes without a read.
    """
    patience = Patience.of(db, timeout_ms)
    if isinstance(operation, OfStream) and if_version is not None:
        operation = attrs.evolve(operation, if_version=if_version)
    identifier = new_id(db.clock) if request_id is None else check_str("request id", request_id)
    what = f"request {identifier}, {operation.kind} of {operation.target}"
    traces = find_traces()
    span = NOT_TRACED if traces is None else traces.requesting(operation.kind, operation.target)
    try:
        with span:
            ended = await _run(db, operation, identifier, patience)
    except EventprocError as why:
        LOG.debug("%s: %r", what, why)
        if what not in getattr(why, "__notes__", ()):  # callers that joined one request share its error
            why.add_note(what)
        raise
    LOG.debug("%s: done", what)
    return ended


async def _run(db: Database, operation: Operation, identifier: str, patience: Patience) -> Request:
    # Subscribing before the request exists misses no change, so no read is needed to check for one.
    with (
        db.shared[REQUEST_OUTCOMES].expecting(identifier),
        db.subscribe([watch_request(identifier)]) as changes,
    ):
        ended = await submit_request(db, operation, request_id=identifier, timeout_ms=patience.timeout_ms)
        if ended.is_new:
            await changes.wait(patience.remaining_ms(db))
            outcome = db.shared[REQUEST_OUTCOMES].find(identifier)
            if outcome is not None:
                ended = ended.ended(outcome)
    if ended.status is RequestStatus.PENDING:  # run by another process, joined, or not in time
        ended = attrs.evolve(await _wait(db, ended.id, patience), is_new=ended.is_new)
    if ended.kind in MOVING:
        stream_id = from_json(ended.body, MOVING[ended.kind]).stream_id
        db.shared[ROUTES].forget(stream_id)  # the host, which forgets it as well, may be another process
    if ended.error is not None:
        raise ended.error
    return ended


def request_part_id(request_id: str, part: str) -> str:
    """Return the id of one of the requests that a call makes under one id. Raises InvalidArgument."""
    try:
        return part_id(check_str("request id", request_id), part)
    except ValueError as error:
        raise invalid_argument(
            "request id", request_id, "it is not a UUID of version 7 in lower case"
        ) from error


@attrs.frozen
class Patience:
    """How long a caller waits for all steps of an operation together, and until when, in monotonic ms."""

    timeout_ms: int
    deadline_ms: int

    @staticmethod
    def of(db: Database, timeout_ms: int) -> Patience:
        """Return that of a caller who begins to wait now. Raises InvalidArgument."""
        timeout_ms = check_int("timeout_ms", timeout_ms, least=0, most=PATIENCE_MS_MAX, unit="ms")
        return Patience(timeout_ms, db.clock.monotonic_ms() + timeout_ms)

    def remaining_ms(self, db: Database) -> int:
        """Return how long the caller still waits, at least 0."""
        return max(self.deadline_ms - db.clock.monotonic_ms(), 0)


async def _wait(db: Database, request_id: str, patience: Patience) -> Request:
    with db.subscribe([watch_request(request_id)]) as changes:
        while True:
            request = await db.read(lambda tx: get_request(tx, request_id))
            if request.id != request_id:  # it joined that one, which notifies of its end
                return await _wait(db, request.id, patience)
            if request.status is not RequestStatus.PENDING:
                return request
            if not (remaining_ms := patience.remaining_ms(db)):
                raise StillPending(
                    request_id=request_id, target=request.target, waited_ms=patience.timeout_ms
                )
            await changes.wait(remaining_ms)
