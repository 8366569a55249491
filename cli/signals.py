"""Signals that end a command: the work in progress is finished or undone, and the exit code names the signal.

SIGINT (Ctrl-C), SIGTERM and SIGHUP (a closed terminal) have the same effect: the work on the directory is cancelled
while the directory is still open and served. A signal that the parent process set to be ignored, as nohup does, stays
ignored. The clean-up takes at most GRACE_S; a second signal ends the process immediately. The directory stays
consistent wherever the process ends.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final, TypeVar

import anyio

from eventproc.base.tasks import BackgroundTasks
from eventproc.cli.exit_codes import SIGNALLED, Signalled

T = TypeVar("T")

ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

GRACE_S: Final = 10.0
"""How long the clean-up may take. Higher: a command whose output is not read stays longer. Lower: on a slow disk
a writer ends before it has printed its last number."""


class SignalScope:
    """Work that a signal cancels, and the number of that signal. Made by `run_with_signals`."""

    def __init__(self) -> None:
        self._work = anyio.CancelScope()
        self._by: int | None = None

    async def run(self, work: Awaitable[T]) -> T:
        """Return what `work` returns. Call it once. Raises Signalled if a signal came, before or during the work."""
        with self._work:
            return await work
        assert self._by is not None, "cancelled without a signal"
        raise Signalled(self._by)

    def notice(self, number: int, _frame: object) -> None:
        """Note the first signal; end the process at the second. It is a signal handler, and may interrupt any code."""
        if self._by is not None:
            os._exit(SIGNALLED + self._by)
        self._by = number
        # Ends a clean-up that hangs, such as a write into a pipe that is not read.
        signal.setitimer(signal.ITIMER_REAL, GRACE_S)

    def cancel(self) -> None:
        """Cancel the work."""
        self._work.cancel()


def run_with_signals(action: Callable[[SignalScope], Awaitable[T]]) -> T:
    """Run `action` on an event loop and return what it returns. Main thread only.

    A signal cancels what `action` does within `SignalScope.run`, and nothing around it. Raises what `action` raises.
    """
    with _restored():
        return anyio.run(partial(_watched, action))


@contextmanager
def _restored() -> Iterator[None]:
    """Restore the signal handlers at the end: an event loop leaves the default handlers behind."""
    before = {number: signal.getsignal(number) for number in (*ENDING, signal.SIGALRM)}
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)


async def _watched(action: Callable[[SignalScope], Awaitable[T]]) -> T:
    signal_scope = SignalScope()
    heeded = [number for number in ENDING if signal.getsignal(number) is not signal.SIG_IGN]
    with anyio.open_signal_receiver(*heeded) as signals:

        async def watch() -> None:
            async for _ in signals:
                signal_scope.cancel()

        # The loop notices a signal at its next turn; these handlers run immediately.
        for number in (*heeded, signal.SIGALRM):
            signal.signal(number, signal_scope.notice)
        async with BackgroundTasks() as tasks:
            tasks.start_soon(watch)
            return await action(signal_scope)
