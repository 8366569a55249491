"""What Spark starts in place of Python: asks the fork server for a planner, or becomes an ordinary Python.

Run as a script for each query, without site packages, so it imports nothing but small modules of Python. Arguments:
the socket of the fork server, the interpreter, and then what Spark gives to a Python. It lives as long as its planner,
because Spark ends a planner by ending the process that it started.
"""

from __future__ import annotations

import marshal
import os
import socket
import sys

RUNNER = "pyspark.sql.streaming.python_streaming_source_runner"
"""The module that Spark runs for each query with a source in Python."""


def main() -> None:
    """Stand for a planner until it ends. Everything else, and a planner without a server, is an ordinary Python."""
    path, python, *arguments = sys.argv[1:]
    if arguments == ["-m", RUNNER] and (planner := _planner_of(path)) is not None:
        planner.recv(1)  # the planner never sends anything: this returns when it has ended
        return
    os.execv(python, [python, *arguments])


def _planner_of(path: str) -> socket.socket | None:
    """Return a connection to a new planner, which has taken over the streams of this process; None without a server."""
    planner = socket.socket(socket.AF_UNIX)
    try:
        planner.connect(path)
        folder = os.getcwd()  # noqa: PTH109 - importing pathlib would take as long as the rest of this program
        request = marshal.dumps((folder, dict(os.environb)))
        socket.send_fds(planner, [len(request).to_bytes(8, "big")], [0, 1, 2])
        planner.sendall(request)
        if planner.recv(1):
            return planner
    except OSError:
        pass  # the server has ended
    planner.close()
    return None


if __name__ == "__main__":
    main()
