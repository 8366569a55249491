"""Runs functions on the event loop on behalf of the database's threads.

It replaces asyncio's `call_soon_threadsafe`, which creates a handle and a copy of the context per call and drains its
socket with two system calls. A thread that has just waited for a disk pays twice for each of them, because its core is
cold. An awaited write takes 30 us less through this pipe.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections import deque
from collections.abc import Callable
from contextvars import Context
from typing import Final

LOG = logging.getLogger(__name__)

_PIPE_BYTES: Final = 65536
"""Capacity of a pipe on Linux; one read of this size empties it."""


class LoopCallbacks:
    """Functions that threads want to run on the event loop in which this object was created."""

    def __init__(self) -> None:
        self._calls: deque[Callable[[], None]] = deque()
        self._loop = asyncio.get_running_loop()
        self._read_fd, self._write_fd = os.pipe()
        os.set_blocking(self._read_fd, False)
        os.set_blocking(self._write_fd, False)
        # With an empty context: the context variables of the opener must not leak into callbacks of other callers.
        Context().run(self._loop.add_reader, self._read_fd, self._run)

    def call(self, function: Callable[[], None]) -> None:
        """Run `function` on the event loop, after the ones added before. Callable from any thread.

        If the loop was closed, the function never runs.
        """
        self._calls.append(function)
        self._wake()

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
