"""Submitting a request and running it: the two transactions every workflow has.

Submit records the intent and posts its event. A step runs the workflow and, with its result or its
refusal, writes the outcome, clears the intent and moves the processor's progress, all in one transaction
that is fenced by the host's owner epoch. Whatever dies in between: the event is still there, the step
recognises a finished request by its id, and nothing runs twice (architecture.md section 5).
"""

from __future__ import annotations

from functools import partial

from eventproc.store.database import Tx
from eventproc.store.model.errors import Expired, Rejected, WorkflowFailed
from eventproc.store.model.names import check_scope_name
from eventproc.store.ownership import Owner
from eventproc.store.progress import EventRef, finish_event
from eventproc.store.records import from_json, to_json
from eventproc.store.requests import (
    Request,
    RequestStatus,
    find_request,
    finish_request,
    start_request,
    submit_request,
)
from eventproc.workflows.requests import AnyRequest
from eventproc.workflows.table import WORKFLOWS


def submit(tx: Tx, request: AnyRequest, request_id: str, *, within_ms: int | None = None) -> Request:
    """Check the request, record it and post its event; return what to wait for.

    within_ms: how long from now it may be begun; once begun it runs to its end.

    Raises what the workflow's check refuses, InProgress, Expired; then nothing was recorded. The system's
    own streams are refused.
    """
    check_scope_name(request.target.partition("/")[0])
    check = partial(WORKFLOWS[request.kind].check, tx, request)
    return submit_request(
        tx,
        request_id=request_id,
        target=request.target,
        kind=request.kind,
        body=to_json(request),
        satisfied=check,
        within_ms=within_ms,
    )


def step(tx: Tx, request_id: str, event: EventRef, owner: Owner) -> bool:
    """Run one step of a request; return whether its event is finished.

    Raises OwnerFenced, with nothing changed, when this host was replaced.
    """
    owner.check(tx)
    row = find_request(tx, request_id)
    if row is None or row.status is not RequestStatus.PENDING:
        finish_event(tx, event)  # delivered again: an earlier run published, and its outcome stands
        return True
    workflow = WORKFLOWS[row.kind]
    changes = tx.total_changes()
    try:
        if row.has_expired(tx):
            raise Expired(target=row.target, request_id=request_id)
        if not workflow.apply(tx, from_json(row.body, workflow.request), request_id):
            start_request(tx, row)
            return False
    except Rejected as why:
        assert tx.total_changes() == changes, (
            f"{row.kind} of {row.target} changed something before it refused"
        )
        finish_request(tx, request_id, why)
    else:
        finish_request(tx, request_id)
    finish_event(tx, event)
    return True


def give_up(tx: Tx, request_id: str, event: EventRef, owner: Owner, reason: str) -> bool:
    """End a request whose workflow raised what it never should, so that others go on. Returns True."""
    owner.check(tx)
    row = find_request(tx, request_id)
    if row is not None and row.status is RequestStatus.PENDING:
        finish_request(tx, request_id, WorkflowFailed(target=row.target, kind=row.kind, reason=reason))
    finish_event(tx, event)
    return True
