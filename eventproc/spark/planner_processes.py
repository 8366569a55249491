"""Makes the planners of a driver's queries start fast: by forks of one process instead of a new Python for each.

See docs/design/spark-embedding.md.
"""

from __future__ import annotations

import atexit
import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

from pyspark import SparkContext

from eventproc.base.kernel import LINUX
from eventproc.spark import planner_launcher

SOCKET_CHARS_MAX: Final = 100
"""Longest path of a socket, a little below the limit of Linux (107 bytes)."""

END_S: Final = 5.0
"""How long the fork server may take to end. It has nothing to finish, so more would only delay the end of a program
whose server hangs."""

_LAUNCHER: Final = """\
#!/bin/sh
exec {python} -I -S {script} {socket} {python} "$@"
"""


class PlannerProcesses:
    """The fork server of a SparkContext, and the launcher that Spark starts as its Python."""

    def __init__(self, server: subprocess.Popen[bytes], launcher: Path) -> None:
        self.launcher = launcher
        self._server = server
        atexit.register(self.end)

    @classmethod
    def begin(cls, context: SparkContext) -> PlannerProcesses | None:
        """Start a fork server, which imports in the background. None where planners must be ordinary processes.

        That is so on other systems than Linux, on a cluster, with another Python than this one, and if the folder for
        temporary files does not allow programs.
        """
        is_local = (context.master or "").startswith("local")
        if not LINUX or not is_local or context.pythonExec != sys.executable:
            return None
        folder = Path(tempfile.mkdtemp(prefix="eventproc-planners-"))
        try:
            return cls._begin(context, folder)
        except OSError:
            shutil.rmtree(folder, ignore_errors=True)
            return None

    @classmethod
    def _begin(cls, context: SparkContext, folder: Path) -> PlannerProcesses:
        path, launcher, script = folder / "socket", folder / "python", Path(planner_launcher.__file__)
        launcher.write_text(
            _LAUNCHER.format(
                python=shlex.quote(sys.executable),
                script=shlex.quote(str(script)),
                socket=shlex.quote(str(path)),
            )
        )
        launcher.chmod(0o700)
        # A package in an archive has no files.
        is_runnable = os.access(launcher, os.X_OK) and script.is_file()
        if not is_runnable or len(os.fsencode(path)) > SOCKET_CHARS_MAX:
            raise OSError(f"{folder} cannot be used for a program and a socket")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
            listener.listen()
            server = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "eventproc.spark.planner_fork_server",
                    str(listener.fileno()),
                    str(folder),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[listener.fileno()],
                start_new_session=True,  # it ends with its stdin, also if a signal ends the driver's process group
                # As Spark starts a planner: these are read when Python starts or a module is imported.
                env={
                    **os.environ,
                    **context.environment,
                    "SPARK_PYTHON_RUNTIME": "PYTHON_WORKER",
                    "PYTHONUNBUFFERED": "YES",
                },
            )
        return cls(server, launcher)

    def end(self) -> None:
        """End the server, which deletes the launcher. Planners that still run are not affected."""
        atexit.unregister(self.end)
        try:
            self._end_server()
        finally:  # also if the server did not end by itself
            shutil.rmtree(self.launcher.parent, ignore_errors=True)

    def _end_server(self) -> None:
        assert self._server.stdin is not None, "the server was started with a pipe"
        self._server.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._server.wait(END_S)
            return
        self._server.kill()
        self._server.wait()
