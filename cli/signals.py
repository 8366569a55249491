"""Signals that ask a command to end: what is under way is finished or undone, and the exit code names the signal.

SIGINT (Ctrl-C), SIGTERM (a polite kill) and SIGHUP (a closed terminal) are one thing: the work on the
directory is cancelled, from the inside out, while the directory is still open and served. One that the caller
told to be ignored, as nohup does, stays ignored. What ends takes GRACE_S at most; a second signal ends the
process at once, wherever it is. The directory bears a death at any instruction.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final, TypeVar

import anyio

from eventproc.cli.failures import SIGNALLED, Signalled
from eventproc.store.tasks import BackgroundTasks

T = TypeVar("T")

ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

GRACE_S: Final = 10.0
"""How long the end may take. Higher: a command that cannot write its output, because nobody reads it, stays
longer; lower: a disk that is slow for a moment leaves a writer without its last word."""


class Ending:
    """What a signal ends, and which it was. Made by `run_to_end`."""

    def __init__(self) -> None:
        self._work = anyio.CancelScope()
        self._by: int | None = None

    async def of(self, work: Awaitable[T]) -> T:
        """Return what `work` returns; once. Raises Signalled when a signal, which may have come before, ended it."""
        with self._work:
            return await work
        assert self._by is not None, "cancelled by nobody"
        raise Signalled(self._by)

    def notice(self, number: int, _frame: object) -> None:
        """Note that a signal came; leave when it is not the first. A signal handler, which may stop any code."""
        if self._by is not None:
            os._exit(SIGNALLED + self._by)
        self._by = number
        # An end that hangs, such as in a pipe that nobody reads, is cut short.
        signal.setitimer(signal.ITIMER_REAL, GRACE_S)

    def begin(self) -> None:
        """Cancel the work."""
        self._work.cancel()


def run_to_end(action: Callable[[Ending], Awaitable[T]]) -> T:
    """Run `action` on an event loop and return what it returns; main thread only.

    A signal cancels what `action` does within `Ending.of`, and nothing around it. Raises what `action` raises.
    """
    with _restored():
        return anyio.run(partial(_watched, action))


@contextmanager
def _restored() -> Iterator[None]:
    """Give the signals back as they were found: a loop leaves those it watched with their defaults."""
    before = {number: signal.getsignal(number) for number in (*ENDING, signal.SIGALRM)}
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)


async def _watched(action: Callable[[Ending], Awaitable[T]]) -> T:
    ending = Ending()
    heeded = [number for number in ENDING if signal.getsignal(number) is not signal.SIG_IGN]
    with anyio.open_signal_receiver(*heeded) as signals:

        async def watch() -> None:
            async for _ in signals:
                ending.begin()

        # The loop hears of a signal by its descriptor, when it comes round to it; this runs at once.
        for number in (*heeded, signal.SIGALRM):
            signal.signal(number, ending.notice)
        async with BackgroundTasks() as tasks:
            tasks.start_soon(watch)
            return await action(ending)
