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
from eventproc.cli.apps import load_app
from eventproc.cli.failures import FAILED, Signalled
from eventproc.cli.live import live
from eventproc.cli.settings import Command, Number, Settings, note, pass_settings
from eventproc.processors import GRACE_MS, App, ProcessorFailed, Running
from eventproc.runtime import Eventproc
from eventproc.store.database import Tx
from eventproc.store.model.errors import Retryable
from eventproc.store.tasks import BackgroundTasks

LOG = logging.getLogger("eventproc.run")

LOOK_MS: Final = 10_000
"""Pause between two looks whether this handle can still write: one that cannot serves nobody, and ends.
Lower: more idle cost; higher: a disk that failed is told of later."""


@click.command(cls=Command)
@click.argument("apps", metavar="[MODULE:APP]...", nargs=-1)
@click.option(
    "--grace",
    type=Number(),
    default=GRACE_MS / 1000,
    show_default=True,
    metavar="SECONDS",
    help="How long handlers that run get to return at the end.",
)
@click.option(
    "--host/--no-host",
    default=True,
    show_default=True,
    help="Whether it runs what others request of the system.",
)
@pass_settings
def run(settings: Settings, apps: tuple[str, ...], grace: float, host: bool) -> None:
    """Serve the directory, and run the processors of apps, until SIGTERM or Ctrl-C.

    Then handlers that run finish, within the grace period, and what they finished is durable: exit code 0. When the
    grace period is over the rest is cancelled, to be handled again: 143, or 130. A second signal stops at once. A
    processor that fails ends the others in the same way: 1. Apps are imported from the current folder. Commands
    work without a server too, each serving while it waits.
    """
    if not (apps or host):
        raise click.UsageError("with --no-host and without an app there is nothing to do")
    server = _Server(settings, [load_app(name) for name in dict.fromkeys(apps)], round(grace * 1000))
    try:
        session.run(settings, server.serve, host=host, serving=True)
    except ProcessorFailed:  # the log told it
        if settings.debug:
            raise
        raise click.exceptions.Exit(FAILED) from None


class _Server:
    """Serves one open directory, until a signal comes or a processor fails."""

    def __init__(self, settings: Settings, apps: Sequence[App], grace_ms: int) -> None:
        self._settings = settings
        self._apps = apps
        self._grace_ms = grace_ms
        self._signalled: int | None = None

    async def serve(self, ep: Eventproc) -> None:
        """Serve; raises ProcessorFailed, and Signalled when the grace period was too short."""
        async with AsyncExitStack() as stack:
            running = [
                await stack.enter_async_context(ep.run(app, grace_ms=self._grace_ms)) for app in self._apps
            ]
            async with BackgroundTasks() as tasks:
                with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
                    note(self._settings, self._greeting(ep))
                    tasks.start_soon(_look, ep)
                    tasks.start_soon(live, self._settings, ep.db.clock, running)
                    await self._wait_end(signals, running)
                for number in (signal.SIGTERM, signal.SIGINT):
                    signal.signal(number, signal.SIG_DFL)
                await self._drain(running)

    async def _wait_end(self, signals: AsyncIterator[signal.Signals], running: Sequence[Running]) -> None:
        """Return when a signal came, or a processor failed: the end of its block raises that."""
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
        """Let all apps drain side by side, and cancel what is left."""
        calls = sum(each.in_flight for each in running)
        if calls:
            seconds = self._grace_ms / 1000
            note(
                self._settings,
                f"draining: {calls} calls run, for {seconds:g} s at most; a second signal stops at once",
            )
        async with anyio.create_task_group() as tasks:

            async def drain(each: Running) -> None:
                await each.stop(grace_ms=self._grace_ms)
                each.cut()

            for each in running:
                tasks.start_soon(drain, each)
        if (cut := sum(each.in_flight for each in running)) and self._signalled is not None:
            note(self._settings, f"cancelled: {cut} calls, whose events will be handled again")
            raise Signalled(self._signalled)


async def _look(ep: Eventproc) -> None:
    """Raise DatabaseStopped when the handle has stopped; an empty transaction writes nothing."""
    while True:
        await anyio.sleep(LOOK_MS / 1000)
        try:
            await ep.db.write(_nothing)
        except Retryable as why:
            LOG.warning("%s", why)


def _nothing(_: Tx) -> None:
    """An empty transaction."""
