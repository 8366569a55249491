"""The connection between `run --workers` or `run --reload` and each process that it starts.

It is a pair of sockets. The worker sends one byte when it serves the directory. It drains when it receives one, and
when the other side closes, which happens also if the supervisor is killed. The worker finds its end in an environment
variable, which it removes, so that no program that a handler starts takes itself for a worker.
"""

from __future__ import annotations

import os
import socket
from typing import Final

import anyio

WORKER_VARIABLE: Final = "_EVENTPROC_WORKER"
"""NUMBER:DESCRIPTOR of a worker process."""


class WorkerLink:
    """The worker's end. number: of the worker, from 1."""

    def __init__(self, number: int, end: socket.socket) -> None:
        self.number = number
        self._end = end

    @classmethod
    def find(cls) -> WorkerLink | None:
        """Return the link of this process; None if it was not started as a worker."""
        text = os.environ.pop(WORKER_VARIABLE, None)
        if text is None:
            return None
        number, _, descriptor = text.partition(":")
        end = socket.socket(fileno=int(descriptor))
        end.set_inheritable(False)
        end.setblocking(False)
        return cls(int(number), end)

    def report_ready(self) -> None:
        """Tell the supervisor that this process serves."""
        try:
            self._end.send(b"\n")
        except OSError:  # the supervisor is gone, which `wait_end` reports
            pass

    async def wait_end(self) -> bool:
        """Return when this process is to drain: True if the supervisor is gone, False if it said so."""
        await anyio.wait_readable(self._end)
        try:
            return not self._end.recv(1)
        except OSError:
            return True


class SupervisorLink:
    """The supervisor's end of the link to one worker."""

    def __init__(self) -> None:
        self._ours, self._theirs = socket.socketpair()
        self._ours.setblocking(False)
        self.is_ready = False

    @property
    def descriptor(self) -> int:
        """The descriptor that the worker inherits."""
        return self._theirs.fileno()

    def variable(self, number: int) -> dict[str, str]:
        """Return the environment variable for the worker of this number."""
        return {WORKER_VARIABLE: f"{number}:{self.descriptor}"}

    def started(self) -> None:
        """Close the worker's end in this process."""
        self._theirs.close()

    def drain(self) -> None:
        """Let the worker drain, as soon as it serves; a signal could arrive before it is prepared for one."""
        try:
            self._ours.send(b"\n")
        except OSError:  # it has ended
            pass

    async def wait_ready(self) -> bool:
        """Return whether the worker serves; False if it ended before."""
        await anyio.wait_readable(self._ours)
        return self.poll_ready()

    def poll_ready(self) -> bool:
        """Return whether the worker has begun to serve, also if it has ended since."""
        if not self.is_ready:
            try:
                self.is_ready = bool(self._ours.recv(1))
            except OSError:  # nothing was sent
                pass
        return self.is_ready

    def close(self) -> None:
        """Close the link; a worker that still runs drains."""
        self._ours.close()
        self._theirs.close()
