"""The process that the planners of a driver's queries are forked from: it has imported what they need.

`python -m eventproc.spark.planner_fork_server SOCKET FOLDER`, started by `planner_processes.py`: the number of a
listening socket, and a folder to delete at the end. It ends when its stdin is closed, as the death of the driver does.
"""

from __future__ import annotations

import gc
import marshal
import os
import runpy
import select
import shutil
import signal
import socket
import sys
from importlib import import_module
from threading import Thread
from typing import Final

from eventproc.spark.planner_launcher import RUNNER

NEEDED: Final = (
    RUNNER,
    "anyio._backends._asyncio",  # the loop of PlannerDirectory
    "eventproc.spark.chunk_cleanup",
    "eventproc.spark.planner",
    "eventproc.spark.planner_directory",
    "eventproc.spark.source",
    "pyspark.core.broadcast",
    "pyspark.core.files",
)
"""What a planner imports. It may import more: then it takes longer."""


def main() -> None:
    """Fork a planner for each connection until stdin is closed."""
    listener = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the driver, which ends this process
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system buries the planners
    for each in NEEDED:
        import_module(each)
    gc.freeze()  # else a planner's first collection would copy the pages of all modules
    launcher = _serve(listener)
    listener.close()
    if launcher is None:
        shutil.rmtree(sys.argv[2], ignore_errors=True)
    else:
        _become_planner(launcher)


def _serve(listener: socket.socket) -> socket.socket | None:
    """Return None when stdin was closed; in each forked planner, its connection to its launcher."""
    ready = select.poll()
    ready.register(0, select.POLLIN)
    ready.register(listener, select.POLLIN)
    while True:
        if any(file == 0 for file, _ in ready.poll()):
            return None
        connection, _ = listener.accept()
        if os.fork() == 0:
            return connection
        connection.close()


def _become_planner(launcher: socket.socket) -> None:
    """Run Spark's program in the environment of the launcher, as long as the launcher lives."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    prefix, files, _, _ = socket.recv_fds(launcher, 8, 3)
    with launcher.makefile("rb") as rest:
        folder, environment = marshal.loads(rest.read(int.from_bytes(prefix, "big")))
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(folder)
    os.environb.clear()
    os.environb.update(environment)
    added = [each for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each]
    sys.path[:] = [folder, *added, *(each for each in sys.path[1:] if each not in added)]
    launcher.sendall(b"1")
    Thread(target=_end_with, args=[launcher], daemon=True).start()
    sys.argv[1:] = []
    del sys.modules[RUNNER]  # it runs as the main module, as in a Python of its own
    runpy.run_module(RUNNER, run_name="__main__", alter_sys=True)


def _end_with(launcher: socket.socket) -> None:
    """End this process as Spark ended the launcher."""
    launcher.recv(1)  # it never sends anything
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
