"""The server of `eventproc run`: serve an open directory and run apps on it, until a signal arrives."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Final

import anyio

from eventproc.base.counts import counted
from eventproc.base.tasks import BackgroundTasks
from eventproc.cli import session
from eventproc.cli.exit_codes import Signalled
from eventproc.cli.live_status import show_live_status
from eventproc.cli.options import Settings
from eventproc.cli.worker_link import WorkerLink
from eventproc.errors import Retryable
from eventproc.processors import App, ProcessorFailed, Running
from eventproc.runtime import Eventproc

LOG = logging.getLogger("eventproc.run")

DRAINING: Final = (signal.SIGTERM, signal.SIGINT)
"""Signals that end a server in order."""

PROBE_MS: Final = 10_000
"""Interval between two checks that this process can still write; one that cannot ends.
Lower: more idle cost. Higher: a failed disk is reported later."""


@asynccontextmanager
async def no_endpoints(_: Eventproc) -> AsyncIterator[None]:
    """Listen nowhere."""
    yield


class DirectoryServer:
    """Serves one open directory until a signal arrives or a processor fails.

    shows_status: whether to show the live table on a terminal.
    link: to the supervisor if this process is a worker: its first signal drains, and only the supervisor kills.
    endpoints: what listens for other programs until the end begins.
    """

    def __init__(
        self,
        settings: Settings,
        apps: Sequence[App],
        *,
        grace_ms: int,
        shows_status: bool = True,
        link: WorkerLink | None = None,
        endpoints: Callable[[Eventproc], AbstractAsyncContextManager[None]] = no_endpoints,
    ) -> None:
        self._settings = settings
        self._apps = apps
        self._grace_ms = grace_ms
        self._shows_status = shows_status
        self._link = link
        self._endpoints = endpoints
        self._signalled: int | None = None
        self._has_begun = False

    def run(self, *, host: bool) -> None:
        """Open the directory and serve it. Raises as `serve`, and Signalled for a signal that does not drain.

        A signal before the server has begun ends it as one afterwards does: nothing runs that it would have to drain.
        host: whether this process may be the host.
        """
        try:
            session.run(self._settings, self.serve, host=host, has_log=True)
        except Signalled as why:
            if self._has_begun or why.number not in DRAINING:
                raise
            LOG.info("ended by a signal before it served")

    async def serve(self, ep: Eventproc) -> None:
        """Serve. Raises ProcessorFailed, and Signalled if the grace period was too short."""
        async with AsyncExitStack() as stack:
            running = [
                await stack.enter_async_context(ep.run(app, grace_ms=self._grace_ms)) for app in self._apps
            ]
            async with BackgroundTasks() as tasks:
                heeded = DRAINING if self._link is None else (signal.SIGTERM,)
                with anyio.open_signal_receiver(*heeded) as signals:
                    self._has_begun = True
                    if self._link is not None:
                        self._link.report_ready()
                    LOG.info("serving %s (durability %s, pid %d)", ep.db.name, ep.durability, os.getpid())
                    tasks.start_soon(_probe, ep)
                    if self._shows_status:
                        tasks.start_soon(show_live_status, self._settings, running)
                    async with self._endpoints(ep):
                        await self._wait_end(signals, running)
                for number in heeded:
                    signal.signal(number, signal.SIG_DFL if self._link is None else signal.SIG_IGN)
                await self._drain(running)

    async def _wait_end(self, signals: AsyncIterator[signal.Signals], running: Sequence[Running]) -> None:
        """Return after a signal, or when a processor failed; leaving its block raises the failure."""
        over = anyio.Event()

        async def wait_signal() -> None:
            async for number in signals:
                self._signalled = number
                break
            over.set()

        async def wait_supervisor(link: WorkerLink) -> None:
            if await link.wait_end():
                LOG.warning("the supervisor is gone; draining")
            self._signalled = signal.SIGTERM
            over.set()

        async def wait_failure(each: Running) -> None:
            try:
                await each.wait()
            except ProcessorFailed:
                over.set()

        async with BackgroundTasks() as tasks:
            tasks.start_soon(wait_signal)
            if self._link is not None:
                tasks.start_soon(wait_supervisor, self._link)
            for each in running:
                tasks.start_soon(wait_failure, each)
            await over.wait()

    async def _drain(self, running: Sequence[Running]) -> None:
        """Drain all apps concurrently, and cancel the calls that are left."""
        calls = sum(each.in_flight for each in running)
        if calls:
            remedy = "" if self._link else "; a second signal ends the process"
            seconds = self._grace_ms / 1000
            LOG.info(
                "draining: %s may run for at most %g s%s", counted(calls, "handler call"), seconds, remedy
            )
        async with anyio.create_task_group() as tasks:

            async def drain(each: Running) -> None:
                await each.stop(grace_ms=self._grace_ms)
                each.cancel_now()

            for each in running:
                tasks.start_soon(drain, each)
        if (cancelled := sum(each.in_flight for each in running)) and self._signalled is not None:
            LOG.warning(
                "cancelled: %s, whose events will be handled again", counted(cancelled, "handler call")
            )
            raise Signalled(self._signalled)


async def _probe(ep: Eventproc) -> None:
    """Run an empty transaction every PROBE_MS. Raises DatabaseStopped when the database cannot be written."""
    while True:
        await anyio.sleep(PROBE_MS / 1000)
        try:
            await ep.db.write(lambda _: None)
        except Retryable as why:
            LOG.warning("%s", why)
