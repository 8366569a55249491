"""Asking for a workflow: submit, wait for the outcome, raise what it was refused for."""

from __future__ import annotations

from typing import Final

from eventproc.store.clock import new_id
from eventproc.store.database import Database
from eventproc.store.model.errors import StillPending
from eventproc.store.requests import Request, RequestStatus, get_request, watch_request
from eventproc.workflows.requests import AnyRequest
from eventproc.workflows.run import submit

WAIT_MS: Final = 120_000
"""How long a call waits for its outcome, unless told otherwise (pravega.md 3.0). The request goes on."""


async def post(
    db: Database, request: AnyRequest, *, request_id: str | None = None, within_ms: int | None = None
) -> Request:
    """Submit a request without waiting; return it, or the equal pending one it joined.

    request_id: a UUID version 7 to make a retry of this call safe. within_ms: how long from now it may be
    begun; after that it is rejected as Expired. Raises what is refused at once.
    """
    identifier = request_id or new_id(db.clock)
    return await db.write(lambda tx: submit(tx, request, identifier, within_ms=within_ms))


async def wait(db: Database, request_id: str, *, timeout_ms: int = WAIT_MS) -> Request:
    """Return the request once it is done or rejected; whoever runs it, in whatever process.

    Raises NotFound, and StillPending when `timeout_ms` passed first.
    """
    deadline_ms = db.clock.monotonic_ms() + timeout_ms
    with db.subscribe([watch_request(request_id)]) as changes:
        while True:
            request = await db.read(lambda tx: get_request(tx, request_id))
            if request.status is not RequestStatus.PENDING:
                return request
            remaining_ms = deadline_ms - db.clock.monotonic_ms()
            if remaining_ms <= 0:
                raise StillPending(request_id=request_id, target=request.target, waited_ms=timeout_ms)
            await changes.wait(remaining_ms)


async def perform(db: Database, request: AnyRequest, *, timeout_ms: int = WAIT_MS) -> Request:
    """Submit a request and wait until it is done; return it. Raises what it was refused for, and StillPending."""
    submitted = await post(db, request)
    if submitted.status is RequestStatus.PENDING:
        submitted = await wait(db, submitted.id, timeout_ms=timeout_ms)
    if submitted.error is not None:
        raise submitted.error
    return submitted
