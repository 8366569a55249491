"""Submit a request to change a stream or a scope, and wait for its outcome or print its id; or submit a task."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
import attrs

from eventproc import Operation
from eventproc.cli import session
from eventproc.cli.options import Settings, note
from eventproc.cli.output.tables import Row, show_done, show_pending
from eventproc.cluster import AnyTask
from eventproc.describe import Request, RequestPreview, RequestStatus, TaskInfo
from eventproc.runtime import Eventproc
from eventproc.streams.request_calls import submit_request


@attrs.frozen
class WaitOptions:
    """Whether to wait for the outcome, and for how long; from `waiting_options`.

    request_id: from `request_id_option`; None: a new one.
    """

    no_wait: bool
    timeout_s: float
    request_id: str | None = None

    @property
    def timeout_ms(self) -> int:
        """How long to wait, ms."""
        return round(self.timeout_s * 1000)


MakeOperation = Callable[[Eventproc], Awaitable[Operation]]
OnDone = Callable[[Eventproc, Request], Awaitable[None]]


def submit_and_wait(
    settings: Settings,
    asked: Operation | MakeOperation,
    waiting: WaitOptions,
    done: str | OnDone,
    output: str,
    *,
    existing: str | None = None,
    confirmed: RequestPreview | None = None,
) -> None:
    """Submit an operation, and wait for its outcome. Raises the error that refused it.

    asked: the operation, or a function that makes it of what the directory has.
    done: the note to print when it is done, or a function to call then.
    confirmed: what a person has agreed to; None: the operation is planned now.
    existing: for a request that creates something: the note to print if it exists already.
    With --no-wait only the request's id is printed. This process does not run the request then; the process that
    serves the directory does.
    """

    async def act(ep: Eventproc) -> None:
        operation = await asked(ep) if callable(asked) else asked
        request = await submit_request(
            ep.db,
            operation,
            request_id=waiting.request_id,
            planned=None if confirmed is None else confirmed.request,
            timeout_ms=waiting.timeout_ms,
        )
        changes = request.is_new
        if waiting.no_wait:
            show_pending(request.id, output)
            return
        request = await wait_for_outcome(settings, ep, request, waiting.timeout_ms)
        if isinstance(done, str):
            row: Row = {"done": request.kind, "target": request.target, "request_id": request.id}
            if existing is not None:
                row = {**row, "created": changes}
            show_done(settings, row, output, done if changes or existing is None else existing)
        else:
            await done(ep, request)

    session.run(settings, act, host=not waiting.no_wait)


async def wait_for_outcome(settings: Settings, ep: Eventproc, request: Request, timeout_ms: int) -> Request:
    """Return the request when it is done. Raises the error that refused it, and StillPending after the timeout."""
    if request.status is RequestStatus.PENDING:
        try:
            request = await ep.requests.wait(request.id, timeout_ms=timeout_ms)
        except anyio.get_cancelled_exc_class():
            note(settings, f"eventproc: request {request.id} goes on")
            raise
    if request.error is not None:
        raise request.error
    return request


def submit_in_background(
    settings: Settings, task: AnyTask | Callable[[Eventproc], Awaitable[AnyTask]], output: str
) -> None:
    """Submit a task and print its id, without waiting for it. task: or a function that checks, and returns it."""

    async def act(ep: Eventproc) -> TaskInfo:
        return await ep.tasks.submit(await task(ep) if callable(task) else task)

    made = session.run(settings, act)
    row: Row = {"done": "submit", "target": made.resource, "task_id": made.id}
    text = f"submitted task {made.id}: `eventproc task wait {made.id}` waits for its end"
    show_done(settings, row, output, text)
