"""`eventproc run`: serve a directory."""

from __future__ import annotations

import logging
import os
import signal
from typing import Final

import anyio
import click

from eventproc.cli import session
from eventproc.cli.settings import Command, Settings, note, pass_settings
from eventproc.runtime import Eventproc
from eventproc.store.background import Background
from eventproc.store.database import Tx
from eventproc.store.model.errors import Retryable

LOG = logging.getLogger("eventproc.run")

LOOK_MS: Final = 10_000
"""Pause between two looks whether this handle can still write: one that cannot serves nobody, and ends.
Lower: more idle cost; higher: a disk that failed is told of later."""


@click.command(cls=Command)
@pass_settings
def run(settings: Settings) -> None:
    """Serve the directory until SIGTERM or Ctrl-C; a second one stops at once.

    Runs what others request of it. Commands work without it too, each serving while it waits.
    """

    async def serve(ep: Eventproc) -> None:
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            note(settings, f"serving {ep.path} (durability {ep.durability}, pid {os.getpid()})")
            async with Background() as tasks:
                tasks.start_soon(_look, ep)
                async for _ in signals:
                    break
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)

    session.run(settings, serve, host=True, serving=True)


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
