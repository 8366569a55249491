"""Commands that change a stream: check, submit a request, wait for its outcome, or only for its id."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
import attrs

from eventproc.cli import session
from eventproc.cli.settings import Settings, note
from eventproc.cli.show import show_done, show_pending
from eventproc.runtime import Eventproc
from eventproc.store.requests import Request, RequestStatus
from eventproc.workflows.requests import AnyRequest


@attrs.frozen
class Waiting:
    """Whether to wait for the outcome, and for how long; from `waiting_options`."""

    no_wait: bool
    timeout_s: float

    @property
    def timeout_ms(self) -> int:
        """How long to wait, ms."""
        return round(self.timeout_s * 1000)


Ask = Callable[[Eventproc], Awaitable[AnyRequest]]
Tell = Callable[[Eventproc, Request], Awaitable[None]]


def ask(settings: Settings, make: Ask, waiting: Waiting, done: str | Tell, output: str) -> None:
    """Submit the request that `make` returns, and wait for its outcome. Raises the error that refused it.

    done: the note to print afterwards, or a function to call then. With --no-wait only the request's id is printed;
    this process does not run the request, the server of the directory does.
    """

    async def act(ep: Eventproc) -> None:
        request = await ep.requests.submit(await make(ep), timeout_ms=waiting.timeout_ms)
        if waiting.no_wait:
            show_pending(request.id, output)
            return
        request = await wait_for(settings, ep, request, waiting.timeout_ms)
        if isinstance(done, str):
            show_done(
                settings,
                {"done": request.kind, "target": request.target, "request_id": request.id},
                output,
                done,
            )
        else:
            await done(ep, request)

    session.run(settings, act, host=not waiting.no_wait)


async def wait_for(settings: Settings, ep: Eventproc, request: Request, timeout_ms: int) -> Request:
    """Return the request when it is done. Raises what it was refused for, StillPending."""
    if request.status is RequestStatus.PENDING:
        try:
            request = await ep.requests.wait(request.id, timeout_ms=timeout_ms)
        except anyio.get_cancelled_exc_class():
            note(settings, f"eventproc: request {request.id} goes on")
            raise
    if request.error is not None:
        raise request.error
    return request
