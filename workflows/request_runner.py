"""The two transactions that every workflow has: submit a request, and run it.

`submit` records the intent and posts its event. `step` runs the workflow; in the same transaction it writes the outcome
or the refusal, clears the intent and moves the processor's progress. The transaction is fenced by the host's owner
epoch. If a process dies in between, the event is delivered again; the step recognises a finished request by its id,
so nothing runs twice (architecture.md section 5). `workflow_table` has the workflows.
"""

from __future__ import annotations

from eventproc.store.catalog import get_stream
from eventproc.store.database import Tx
from eventproc.store.model.argument_checks import invalid_argument
from eventproc.store.model.errors import Expired, Rejected, WorkflowFailed
from eventproc.store.model.names import check_scope_name
from eventproc.store.ownership import Owner
from eventproc.store.progress import EventRef, finish_event
from eventproc.store.records import from_json, to_json
from eventproc.store.requests import (
    Request,
    RequestOrigin,
    RequestStatus,
    find_request,
    finish_request,
    start_request,
    submit_request,
)
from eventproc.store.segments import Headers
from eventproc.workflows.requests import AnyRequest, OfStream, Operation
from eventproc.workflows.workflow_table import WORKFLOWS


def check(tx: Tx, request: AnyRequest) -> bool:
    """Return whether there is nothing to do. Raises StaleVersion, and the refusals of the workflow's check."""
    _verify_version(tx, request)
    return WORKFLOWS[request.kind].check(tx, request)


def asked_of(operation: Operation) -> bytes:
    """Return what a caller asks for, to be compared with a repeated call: of a plain request, its own JSON."""
    try:
        body = to_json(operation)
    except UnicodeEncodeError:
        reason = "it contains half of a surrogate pair, which no text does"
        raise invalid_argument("operation", operation, reason) from None
    is_plain = type(operation) is WORKFLOWS[operation.kind].request
    return body if is_plain else f"{type(operation).__name__} ".encode() + body


def submit(
    tx: Tx,
    operation: Operation,
    request_id: str,
    *,
    planned: AnyRequest | None = None,
    within_ms: int | None = None,
    origin: RequestOrigin = RequestOrigin.PERSON,
    headers: Headers | None = None,
) -> Request:
    """Plan the operation, check and record its request and post its event; return the pending request.

    planned: the request that its caller has seen planned, and confirmed. None (default): it is planned now.
    within_ms: how long from now the request may begin, in ms; a request that has begun runs to its end.
    origin: a person or a policy. headers: of its event; None: it has none.

    Raises the refusals of `check`, InProgress and Expired, and InvalidArgument for the system's own
    streams; then nothing is recorded.
    """
    check_scope_name(operation.target.partition("/")[0])
    asked = asked_of(operation)
    request = planned

    def plan() -> bytes:
        nonlocal request
        request = request or operation.plan(tx)
        return asked if request is operation else to_json(request)

    def satisfied() -> bool:
        assert request is not None, "it was planned before"
        return check(tx, request)

    return submit_request(
        tx,
        request_id=request_id,
        target=operation.target,
        kind=operation.kind,
        asked=asked,
        plan=plan,
        satisfied=satisfied,
        within_ms=within_ms,
        origin=origin,
        headers=headers,
    )


def step(tx: Tx, request_id: str, event: EventRef, owner: Owner) -> bool:
    """Run one step of a request; return whether its event is finished.

    Raises OwnerFenced before any change if another process has replaced this host.
    """
    owner.check(tx)
    row = find_request(tx, request_id)
    if row is None or row.status is not RequestStatus.PENDING:
        finish_event(tx, event)  # delivered again: an earlier run has written the outcome
        return True
    workflow = WORKFLOWS[row.kind]
    changes = tx.total_changes()
    try:
        if row.has_expired(tx):
            raise Expired(target=row.target, request_id=request_id)
        request = from_json(row.body, workflow.request)
        if not row.started:  # its own steps make new versions
            _verify_version(tx, request)
        if not workflow.apply(tx, request, request_id):
            start_request(tx, row)
            return False
    except Rejected as why:
        assert tx.total_changes() == changes, (
            f"{row.kind} of {row.target} changed the database before it refused"
        )
        finish_request(tx, request_id, why)
    else:
        finish_request(tx, request_id)
    finish_event(tx, event)
    return True


def _verify_version(tx: Tx, request: AnyRequest) -> None:
    """Raise StaleVersion if the request names another version than the stream has; NotFound, StreamReplaced."""
    if isinstance(request, OfStream) and request.if_version is not None:
        get_stream(tx, request.stream, stream_id=request.stream_id, if_version=request.if_version)


def give_up(tx: Tx, request_id: str, event: EventRef, owner: Owner, reason: str) -> bool:
    """End a request whose workflow raised an unexpected error, so that other requests run. Returns True."""
    owner.check(tx)
    row = find_request(tx, request_id)
    if row is not None and row.status is RequestStatus.PENDING:
        finish_request(tx, request_id, WorkflowFailed(target=row.target, kind=row.kind, reason=reason))
    finish_event(tx, event)
    return True
