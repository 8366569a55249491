"""Child processes for tests: `eventproc.testing.CrashProcess`, and short ways to start one."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Self

from eventproc.base.kernel import lock_holders
from eventproc.testing import CrashProcess
from eventproc.testing.crash import PATIENCE_S, environment

__all__ = ["PATIENCE_S", "REPOSITORY", "ChildProcess", "run", "stop_outside"]

REPOSITORY = Path(__file__).parents[2]


class ChildProcess(CrashProcess):
    """A Python process. `say` sends it a line, `hear` receives one. It is killed at the end of the block."""

    @classmethod
    def running(cls, code: str, *arguments: object) -> Self:
        """Start `code` with `arguments` in sys.argv[1:]."""
        return cls(["-c", textwrap.dedent(code), *map(str, arguments)])

    def stop_outside(self, lock: Path) -> None:
        """Suspend it at a moment when it does not hold `lock`: the others would wait for its end."""
        stop_outside(self, lock)

    @classmethod
    def script(cls, path: Path, *arguments: object) -> Self:
        return cls([str(path), *map(str, arguments)])


def stop_outside(process: CrashProcess, lock: Path) -> None:
    """Suspend a process at a moment when it does not hold `lock`."""
    process.stop()
    while process.pid in lock_holders(lock):
        process.resume()
        process.stop()


def run(code: str, *arguments: object) -> str:
    """Run `code` in its own process and return its output."""
    command = [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]
    done = subprocess.run(command, env=environment(), stdout=subprocess.PIPE, check=True, timeout=PATIENCE_S)
    return done.stdout.decode().strip()
