"""Child processes for tests: they exchange lines with the test, which stops, continues and kills them at known points.

Nothing here waits for a duration. The time limit only turns a hanging test into a failure.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Self

REPOSITORY = Path(__file__).parents[2]
PATIENCE_S = 60


class ChildProcess:
    """A Python process. `say` sends it a line, `hear` receives one. It is killed at the end of the block."""

    def __init__(self, command: list[str]) -> None:
        environment = os.environ | {"PYTHONPATH": str(REPOSITORY), "PYTHONUNBUFFERED": "1"}
        self._process = subprocess.Popen(
            [sys.executable, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            bufsize=0,
        )
        self._heard = b""

    @classmethod
    def running(cls, code: str, *arguments: object) -> Self:
        """Start `code` with `arguments` in sys.argv[1:]."""
        return cls(["-c", textwrap.dedent(code), *map(str, arguments)])

    @classmethod
    def script(cls, path: Path, *arguments: object) -> Self:
        return cls([str(path), *map(str, arguments)])

    @property
    def pid(self) -> int:
        return self._process.pid

    def say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")

    def hear(self) -> str:
        """Return the next line, or "" at the end of the output, when all its writers are dead."""
        assert self._process.stdout is not None
        while b"\n" not in self._heard:
            ready, _, _ = select.select([self._process.stdout], [], [], PATIENCE_S)
            assert ready, f"process {self.pid} said nothing for {PATIENCE_S} s"
            more = os.read(self._process.stdout.fileno(), 65536)
            if not more:
                break
            self._heard += more
        line, _, self._heard = self._heard.partition(b"\n")
        return line.decode()

    def ask(self, line: str) -> str:
        self.say(line)
        return self.hear()

    def stop(self) -> None:
        """Stop it (SIGSTOP), and return when all its threads are stopped, or it is dead."""
        self._process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kill it (SIGKILL) and wait for its death."""
        self._process.kill()
        self._process.wait(PATIENCE_S)

    def finish(self) -> int:
        """Close its input, wait for its end, and return its exit code."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        return self._process.wait(PATIENCE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


def run(code: str, *arguments: object) -> str:
    """Run `code` in its own process and return its output."""
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True, timeout=PATIENCE_S)
    return done.stdout.decode().strip()
