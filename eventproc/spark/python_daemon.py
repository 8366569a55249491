"""Spark's daemon of Python processes, without a pause of 40 ms in each task; for `spark.python.daemon.module`.

Spark sends a task over TCP as two small writes. The second one waits until the first is acknowledged, which Linux
delays by 40 ms on a connection that answers requests. TCP_QUICKACK ends that mode until the next answer, so each task
sets it.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import Final

from pyspark import daemon

QUICKACK: Final[int | None] = getattr(socket, "TCP_QUICKACK", None)
"""The option, which only Linux has."""

_worker = daemon.worker


def prompt_worker(sock: socket.socket, authenticated: bool) -> int:
    """Run a task, as Spark's function of that place does, and acknowledge its parts immediately."""
    if QUICKACK is not None:
        with suppress(OSError):  # Spark talks through a socket file
            sock.setsockopt(socket.IPPROTO_TCP, QUICKACK, 1)
    return int(_worker(sock, authenticated))


def main() -> None:
    """Run the daemon until Spark ends it."""
    daemon.worker = prompt_worker
    daemon.manager()


if __name__ == "__main__":
    main()
