"""Spark's daemon of Python processes for `spark.python.daemon.module`, without a stack trace when its session ends.

Spark and Python talk through a socket file if `spark.python.unix.domain.socket.enabled` is set. When the session ends,
Spark closes it while a process waits for its next task. The process ends, as it should, but prints a BrokenPipeError.
"""

from __future__ import annotations

from socket import socket
from typing import Final

from pyspark import daemon

ENDED: Final = 1
"""Answer of a process that takes no more tasks."""

_worker = daemon.worker


def quiet_worker(sock: socket, authenticated: bool) -> int:
    """Run a task, as Spark's function of that place does. Returns ENDED if Spark has closed the socket."""
    try:
        return int(_worker(sock, authenticated))
    except BrokenPipeError:
        return ENDED


def main() -> None:
    """Run the daemon until Spark ends it."""
    daemon.worker = quiet_worker
    daemon.manager()


if __name__ == "__main__":
    main()
