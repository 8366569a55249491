"""The table of workflows, and the two transactions that every workflow has: submit a request, and run it.

`submit` records the intent and posts its event. `step` runs the workflow; in the same transaction it writes the outcome
or the refusal, clears the intent and moves the processor's progress. The transaction is fenced by the host's owner
epoch. If a process dies in between, the event is delivered again; the step recognises a finished request by its id,
so nothing runs twice (architecture.md section 5). A new workflow is a row of WORKFLOWS and a module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Final

import attrs

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
from eventproc.workflows import (
    create_stream,
    delete_stream,
    scale_stream,
    scopes,
    seal_stream,
    truncate_stream,
    update_stream,
)
from eventproc.workflows.requests import (
    AnyRequest,
    CreateStream,
    DeleteScope,
    DeleteStream,
    ScaleStream,
    SealStream,
    TruncateStream,
    UpdateStream,
)


@attrs.frozen
class Workflow:
    """The two functions of one kind of request.

    check(tx, request): returns True if there is nothing to do. Raises a Rejected. Changes nothing.
    apply(tx, request, request_id): does one step and returns whether it was the last. Raises a Rejected before it
        has changed anything.
    """

    request: type[AnyRequest]
    check: Callable[[Tx, Any], bool]
    apply: Callable[[Tx, Any, str], bool]


WORKFLOWS: Final[Mapping[str, Workflow]] = MappingProxyType(
    {
        workflow.request.kind: workflow
        for workflow in (
            Workflow(CreateStream, create_stream.check, create_stream.apply),
            Workflow(UpdateStream, update_stream.check, update_stream.apply),
            Workflow(ScaleStream, scale_stream.check, scale_stream.apply),
            Workflow(TruncateStream, truncate_stream.check, truncate_stream.apply),
            Workflow(SealStream, seal_stream.check, seal_stream.apply),
            Workflow(DeleteStream, delete_stream.check, delete_stream.apply),
            Workflow(DeleteScope, scopes.check, scopes.apply),
        )
    }
)
"""The workflow of each kind of request, by `kind`."""


def submit(tx: Tx, request: AnyRequest, request_id: str, *, within_ms: int | None = None) -> Request:
    """Check the request, record it and post its event; return the pending request.

    within_ms: how long from now the request may begin, in ms; a request that has begun runs to its end.

    Raises the refusals of the workflow's check, InProgress and Expired, and InvalidArgument for the system's own
    streams; then nothing is recorded.
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
        if not workflow.apply(tx, from_json(row.body, workflow.request), request_id):
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


def give_up(tx: Tx, request_id: str, event: EventRef, owner: Owner, reason: str) -> bool:
    """End a request whose workflow raised an unexpected error, so that other requests run. Returns True."""
    owner.check(tx)
    row = find_request(tx, request_id)
    if row is not None and row.status is RequestStatus.PENDING:
        finish_request(tx, request_id, WorkflowFailed(target=row.target, kind=row.kind, reason=reason))
    finish_event(tx, event)
    return True
