"""Runs functions on the event loop on behalf of the database's threads.

It replaces asyncio's `call_soon_threadsafe`, which creates a handle and a copy of the context per call and drains its
socket with two system calls. A thread that has just waited for a disk pays twice for each of them, because its core is
cold. An awaited write takes 30 us less through this pipe.

A caller that expects a function within a fraction of a millisecond lets the event loop wait for it in naps (`wait`). A
sleeping event loop costs 50 us more: its core goes to sleep, too, or to another process.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections import deque
from collections.abc import Callable
from contextvars import Context
from threading import Lock
from typing import Final

LOG = logging.getLogger(__name__)

_PIPE_BYTES: Final = 65536
"""Capacity of a pipe on Linux; one read of this size empties it."""

NAP_S: Final = 1e-6
"""Length of a nap, in s. The kernel adds about 50 us, before which a virtual core does not go to sleep. Higher: results
are noticed later; lower: no difference."""


NAPS_S: Final = 300e-6
"""How long before the expected end of a wait the naps begin, in s: the length of a wait for a small write. Before that
the thread runs Python, and a nap that ends takes the interpreter from it: 40 us of a transaction over four segments.
Higher: more of that; lower: what takes less time than the wait before is noticed later."""

LONGER_S: Final = 20e-6
"""By how much a wait may be expected to take longer than the one before, in s, so that one slow sync does not delay the
waits after it."""


class LoopCallbacks:
    """Functions that threads want to run on the event loop in which this object was created."""

    def __init__(self) -> None:
        self._calls: deque[Callable[[], None]] = deque()
        self._waits = False
        self._expected_s = 0.0  # length of a wait
        self._nap = Lock()
        self._nap.acquire()  # and never released, so that to wait for it is a nap
        self._context = (
            Context()
        )  # empty: the context variables of one caller must not leak into another's callbacks
        self._loop = asyncio.get_running_loop()
        self._read_fd, self._write_fd = os.pipe()
        os.set_blocking(self._read_fd, False)
        os.set_blocking(self._write_fd, False)
        self._context.run(self._loop.add_reader, self._read_fd, self._run)

    def call(self, function: Callable[[], None]) -> None:
        """Run `function` on the event loop, after the ones added before. Callable from any thread.

        If the loop was closed, the function never runs.
        """
        self._calls.append(function)
        if not self._waits:
            self._wake()

    def wait(self, timeout_s: float) -> bool:
        """Block the event loop until a function was added, at most `timeout_s`, and run it; return whether one was."""
        began = self._loop.time()
        until, rest_s = began + timeout_s, min(self._expected_s, timeout_s) - NAPS_S
        try:
            self._waits = True
            if rest_s > 0 and not self._calls:
                self._nap.acquire(timeout=rest_s)
            while not self._calls and self._loop.time() < until:
                self._nap.acquire(timeout=NAP_S)
            # Before the look at the functions: one that was added without a wake-up is found by it.
            self._waits = False
        except BaseException:  # interrupted, as by Ctrl-C: what was added without a wake-up still runs
            self._waits = False
            if self._calls:
                self._wake()
            raise
        self._expected_s = min(self._loop.time() - began, self._expected_s + LONGER_S)
        if not self._calls:
            return False
        self._context.run(self._run_all)
        return True

    def close(self) -> None:
        """Run the remaining functions and close the pipe. Call it on the event loop, after the last `call`."""
        self._loop.remove_reader(self._read_fd)
        self._run()
        self.abandon()

    def abandon(self) -> None:
        """Close the pipe after the loop was closed."""
        os.close(self._read_fd)
        os.close(self._write_fd)

    def _run(self) -> None:
        # The pipe is drained first: a function added after the loop below writes to the pipe again.
        with contextlib.suppress(BlockingIOError):
            os.read(self._read_fd, _PIPE_BYTES)
        self._run_all()

    def _run_all(self) -> None:
        try:
            while self._calls:
                function = self._calls.popleft()
                try:
                    function()
                except Exception:
                    LOG.exception("a call from a thread to the event loop failed")
        finally:
            if self._calls:  # one was interrupted, as by Ctrl-C: the others still run
                self._wake()

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):  # full: the loop wakes up anyway
            os.write(self._write_fd, b"\0")
