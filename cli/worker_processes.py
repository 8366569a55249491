"""`run --workers` and `run --reload`: start the same command as processes of their own, and watch over them.

The supervisor never opens the directory and never imports the app. Each worker is a new interpreter that runs the
command line of this process, and shares the work with the others through the directory.

- A worker that ends by itself is started again, after a delay that doubles with each end in a row. With --reload it
  is started again at the next change of a source file.
- A worker that ends before it has served for the first time ends the supervisor, with its exit code: the app, the
  directory or an option is wrong, and another attempt would fail too. With --reload the next change is awaited.
- The first signal drains all workers; a second one kills them. Workers ignore Ctrl-C and hang-ups, which reach every
  process of a terminal, and SIGTERM until they serve; the supervisor tells them to drain through the link.
- A worker whose supervisor is gone drains (`worker_link`).
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import anyio
import attrs
from anyio.abc import Process

from eventproc.base.counts import counted
from eventproc.cli.exit_codes import OK, SIGNALLED
from eventproc.cli.signals import ENDING
from eventproc.cli.source_files import SourceFiles
from eventproc.cli.worker_link import SupervisorLink

LOG = logging.getLogger("eventproc.run")

RESTART_S_MIN: Final = 0.5
"""Delay before a worker is started again. Lower: a worker that ends immediately costs more."""

RESTART_S_MAX: Final = 30.0
"""Largest delay. Higher: a worker comes back later after a long failure, such as a full disk."""

STABLE_S: Final = 60.0
"""How long a worker must have served for its next delay to be the smallest again."""


REPEATED_S: Final = 0.3
"""A second signal within this time counts as the first: `timeout` sends one to the process and one to its group."""


@attrs.frozen
class Ended:
    """How a worker ended. code: its exit code, negative for a signal. served: whether it had begun to serve."""

    code: int
    served: bool
    served_s: float

    @property
    def text(self) -> str:
        """The reason, for the log."""
        if self.code < 0:
            return f"was ended by {signal.Signals(-self.code).name}"
        return f"ended with exit code {self.code}"


class WorkerSet:
    """Runs `count` workers until a signal.

    reload: whether to restart them at each change of a source file below the current directory.
    """

    def __init__(self, count: int, *, reload: bool) -> None:
        self._count = count
        self._reload = reload
        self._processes: dict[int, Process] = {}
        self._stop = anyio.Event()
        self._signal: int | None = None
        self._exit_code: int | None = None

    async def run(self) -> int:
        """Run the workers, and return the exit code. Main thread only."""
        heeded = [number for number in ENDING if signal.getsignal(number) is not signal.SIG_IGN]
        with anyio.open_signal_receiver(*heeded) as signals:
            LOG.info("running %s (supervisor pid %d)", counted(self._count, "worker"), os.getpid())
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._obey, signals)
                while self._signal is None and self._exit_code is None:
                    await self._run_until_stopped()
                tasks.cancel_scope.cancel()
        return OK if self._exit_code is None else self._exit_code

    async def _obey(self, signals: AsyncIterator[signal.Signals]) -> None:
        signalled_at = 0.0
        async for number in signals:
            now = anyio.current_time()
            if self._signal is None:
                self._signal, signalled_at = number, now
                LOG.info("draining %s; a second signal kills them", counted(len(self._processes), "worker"))
                self._stop.set()
            elif now - signalled_at >= REPEATED_S:
                self._exit_code = SIGNALLED + self._signal
                for process in self._processes.values():
                    send_signal(process, signal.SIGKILL)

    async def _run_until_stopped(self) -> None:
        """Run the workers until `_stop` is set and all have ended."""
        self._stop = anyio.Event()
        async with anyio.create_task_group() as tasks:
            if self._reload:
                tasks.start_soon(self._stop_at_change, SourceFiles(Path.cwd()))
            async with anyio.create_task_group() as workers:
                for number in range(1, self._count + 1):
                    workers.start_soon(self._keep_running, number)
            tasks.cancel_scope.cancel()

    async def _stop_at_change(self, sources: SourceFiles) -> None:
        changed = await sources.wait_change()
        LOG.info("%s changed; starting again", ", ".join(changed))
        self._stop.set()

    async def _keep_running(self, number: int) -> None:
        """Run one worker, and start it again when it ends, until `_stop` is set."""
        delay_s, has_served = RESTART_S_MIN, False
        while not self._stop.is_set():
            ended = await self._run_worker(number)
            has_served |= ended.served
            if self._stop.is_set():
                self._note_drained(number, ended)
            elif self._reload:
                LOG.warning("worker %d %s; it is started again at the next change", number, ended.text)
                await self._stop.wait()
            elif not has_served:
                LOG.error("worker %d %s before it served; ending", number, ended.text)
                self._exit_code = ended.code if ended.code >= 0 else SIGNALLED - ended.code
                self._stop.set()
            else:
                delay_s = RESTART_S_MIN if ended.served_s >= STABLE_S else delay_s
                LOG.warning("worker %d %s; starting it again in %g s", number, ended.text, delay_s)
                with anyio.move_on_after(delay_s):
                    await self._stop.wait()
                delay_s = min(delay_s * 2, RESTART_S_MAX)

    def _note_drained(self, number: int, ended: Ended) -> None:
        """Take a worker that had to cancel handlers, or was killed, into the exit code."""
        if ended.served and ended.code != OK:
            LOG.warning("worker %d %s", number, ended.text)
            if self._signal is not None and self._exit_code is None:
                self._exit_code = SIGNALLED + self._signal

    async def _run_worker(self, number: int) -> Ended:
        link, served_at, code = SupervisorLink(), [0.0], OK
        try:
            process = await anyio.open_process(
                [sys.executable, *sys.orig_argv[1:]],
                stdin=subprocess.DEVNULL,
                stdout=None,
                stderr=None,
                env={**os.environ, **link.variable(number)},
                pass_fds=(link.descriptor,),
            )
            link.started()
            self._processes[number] = process
            LOG.info("worker %d started (pid %d)", number, process.pid)

            async def note_ready() -> None:
                if await link.wait_ready():
                    served_at[0] = anyio.current_time()

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(note_ready)
                tasks.start_soon(self._drain_when_stopped, link)
                code = await process.wait()
                tasks.cancel_scope.cancel()
            if link.poll_ready() and not served_at[0]:
                served_at[0] = anyio.current_time()
        finally:
            self._processes.pop(number, None)
            link.close()
        served_s = anyio.current_time() - served_at[0] if link.is_ready else 0.0
        return Ended(code, link.is_ready, served_s)

    async def _drain_when_stopped(self, link: SupervisorLink) -> None:
        await self._stop.wait()
        link.drain()


def send_signal(process: Process, number: signal.Signals) -> None:
    """Send a signal to a process, unless it has ended: a signal to a terminal or a unit reaches workers directly."""
    try:
        process.send_signal(number)
    except ProcessLookupError:
        pass
