"""Commands that change a stream: check, submit a request, wait for its outcome, or only for its id."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
import attrs
import click

from eventproc.cli import session
from eventproc.cli.settings import Settings, note
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


def ask(settings: Settings, make: Ask, waiting: Waiting, done: str | Tell) -> None:
    """Submit the request that `make` returns, and wait for its outcome; raise what it was refused for.

    done: what to say afterwards, or what to do then. Without waiting, only the request's id is printed, and
    whoever serves the directory runs it: this process does not.
    """

    async def act(ep: Eventproc) -> None:
        request = await ep.submit(await make(ep), timeout_ms=waiting.timeout_ms)
        if waiting.no_wait:
            click.echo(request.id)
            return
        request = await wait_for(settings, ep, request, waiting.timeout_ms)
        if isinstance(done, str):
            note(settings, done)
        else:
            await done(ep, request)

    session.run(settings, act, host=not waiting.no_wait)


async def wait_for(settings: Settings, ep: Eventproc, request: Request, timeout_ms: int) -> Request:
    """Return the request when it is done. Raises what it was refused for, StillPending."""
    if request.status is RequestStatus.PENDING:
        try:
            request = await ep.wait_request(request.id, timeout_ms=timeout_ms)
        except anyio.get_cancelled_exc_class():
            note(settings, f"eventproc: request {request.id} goes on")
            raise
    if request.error is not None:
        raise request.error
    return request
