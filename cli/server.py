"""`eventproc run`: serve a directory, and run apps on it."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from typing import Final

import anyio
import click

from eventproc.cli import session
from eventproc.cli.app_loader import load_app
from eventproc.cli.exit_codes import FAILED, Signalled
from eventproc.cli.live_status import show_live_status
from eventproc.cli.options import Command, DurationParam, Settings, note, pass_settings
from eventproc.processors import GRACE_MS, App, ProcessorFailed, Running
from eventproc.runtime import Eventproc
from eventproc.store.database import Tx
from eventproc.store.model.counts import counted
from eventproc.store.model.errors import Retryable
from eventproc.store.tasks import BackgroundTasks

LOG = logging.getLogger("eventproc.run")

PROBE_MS: Final = 10_000
"""Interval between two checks that this process can still write; one that cannot ends.
Lower: more idle cost. Higher: a failed disk is reported later."""


@click.command(cls=Command)
@click.argument("apps", metavar="[MODULE:APP]...", nargs=-1)
@click.option(
    "--grace",
    type=DurationParam(),
    default=GRACE_MS / 1000,
    show_default=True,
    metavar="SECONDS",
    help="How long running handlers may take to finish when the command ends.",
)
@click.option(
    "--host/--no-host",
    default=True,
    show_default=True,
    help="Whether this process may be the host, which runs requests of all processes.",
)
@pass_settings
def run(settings: Settings, apps: tuple[str, ...], grace: float, host: bool) -> None:
    """Serve the directory, and run the processors of apps, until SIGTERM or Ctrl-C.

    After a signal, running handlers finish within the grace period, and their progress is durable (exit code 0).
    Handlers that take longer are cancelled, and their events are handled again later (exit code 143 or 130). A second
    signal ends the process immediately. If a processor fails, the others end in the same way (exit code 1).

    Apps are imported from the current directory, such as `eventproc run shop:app`. Other commands work without a
    server too: each of them is the host while it waits.

    Examples:
        eventproc run
        eventproc run shop.mail:app --grace 30
    """
    if not (apps or host):
        raise click.UsageError("nothing to do: name an app MODULE:APP, or leave --no-host out")
    server = _Server(settings, [load_app(name) for name in dict.fromkeys(apps)], round(grace * 1000))
    try:
        session.run(settings, server.serve, host=host, serving=True)
    except ProcessorFailed:  # the log has the reason
        if settings.debug:
            raise
        raise click.exceptions.Exit(FAILED) from None


class _Server:
    """Serves one open directory until a signal arrives or a processor fails."""

    def __init__(self, settings: Settings, apps: Sequence[App], grace_ms: int) -> None:
        self._settings = settings
        self._apps = apps
        self._grace_ms = grace_ms
        self._signalled: int | None = None

    async def serve(self, ep: Eventproc) -> None:
        """Serve. Raises ProcessorFailed, and Signalled if the grace period was too short."""
        async with AsyncExitStack() as stack:
            running = [
                await stack.enter_async_context(ep.run(app, grace_ms=self._grace_ms)) for app in self._apps
            ]
            async with BackgroundTasks() as tasks:
                with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
                    note(self._settings, self._greeting(ep))
                    tasks.start_soon(_probe, ep)
                    tasks.start_soon(show_live_status, self._settings, ep.db.clock, running)
                    await self._wait_end(signals, running)
                for number in (signal.SIGTERM, signal.SIGINT):
                    signal.signal(number, signal.SIG_DFL)
                await self._drain(running)

    async def _wait_end(self, signals: AsyncIterator[signal.Signals], running: Sequence[Running]) -> None:
        """Return after a signal, or when a processor failed; leaving its block raises the failure."""
        over = anyio.Event()

        async def wait_signal() -> None:
            async for number in signals:
                self._signalled = number
                break
            over.set()

        async def wait_failure(each: Running) -> None:
            try:
                await each.wait()
            except ProcessorFailed:
                over.set()

        async with BackgroundTasks() as tasks:
            tasks.start_soon(wait_signal)
            for each in running:
                tasks.start_soon(wait_failure, each)
            await over.wait()

    def _greeting(self, ep: Eventproc) -> str:
        text = f"serving {ep.path} (durability {ep.durability}, pid {os.getpid()})"
        names = [
            f"{each.options.name} ({each.options.group})" for app in self._apps for each in app.processors
        ]
        return f"{text}, running {', '.join(names)}" if names else text

    async def _drain(self, running: Sequence[Running]) -> None:
        """Drain all apps concurrently, and cancel the calls that are left."""
        calls = sum(each.in_flight for each in running)
        if calls:
            seconds = self._grace_ms / 1000
            note(
                self._settings,
                f"draining: {counted(calls, 'handler call')} may run for at most {seconds:g} s; "
                "a second signal ends the process",
            )
        async with anyio.create_task_group() as tasks:

            async def drain(each: Running) -> None:
                await each.stop(grace_ms=self._grace_ms)
                each.cancel_now()

            for each in running:
                tasks.start_soon(drain, each)
        if (cancelled := sum(each.in_flight for each in running)) and self._signalled is not None:
            note(
                self._settings,
                f"cancelled: {counted(cancelled, 'handler call')}, whose events will be handled again",
            )
            raise Signalled(self._signalled)


async def _probe(ep: Eventproc) -> None:
    """Run an empty transaction every PROBE_MS. Raises DatabaseStopped when the database cannot be written."""
    while True:
        await anyio.sleep(PROBE_MS / 1000)
        try:
            await ep.db.write(_nothing)
        except Retryable as why:
            LOG.warning("%s", why)


def _nothing(_: Tx) -> None:
    """An empty transaction."""
