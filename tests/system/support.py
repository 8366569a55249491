"""The processes of one test on one directory, and what was acknowledged to them."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from time import monotonic
from typing import TypeVar

import anyio

import eventproc
from eventproc.testing import CrashDirectory
from tests.support.child_process import PATIENCE_S, ChildProcess
from tests.system.protocol import STREAM, check_rows

T = TypeVar("T")


class WorkerProcesses:
    """The directory of one test and its processes. Each process is a worker (worker.py) with one role."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.directory = base / "store"
        self.journal = base / "journal"
        self.journal.mkdir()
        self._crash = CrashDirectory(self.directory)

    def start(self, role: str, *arguments: object, ready: str = "open") -> ChildProcess:
        """Start a worker and return when it has the directory open."""
        with ExitStack() as undo:
            worker = ChildProcess(["-m", "tests.system.worker", str(self.base), role, *map(str, arguments)])
            undo.enter_context(worker)
            if ready:
                hear(worker, ready)
            undo.pop_all()
        return worker

    def call(self, fn: Callable[[eventproc.Eventproc], Awaitable[T]], *, host: bool = True) -> T:
        """Open the directory in this process, call `fn` with it, and return what it returns."""

        async def main() -> T:
            async with eventproc.open(self.directory, host=host) as ep:
                return await fn(ep)

        return anyio.run(main)

    def found(self, *, durability: str = "fsync", segments: int = 1) -> None:
        """Make the directory, and STREAM in it."""

        async def main() -> None:
            async with eventproc.open(self.directory, durability=durability) as ep:
                await ep.create_scope(STREAM.partition("/")[0])
                await ep.create_stream(STREAM, scaling=eventproc.ScalingPolicy.fixed(segments))

        anyio.run(main)

    def acked(self) -> dict[str, int]:
        """Return {writer: rows that were acknowledged to it}."""
        return {
            path.stem: int((path.read_text().split() or ["0"])[-1]) for path in self.journal.glob("*.acks")
        }

    def check(self) -> dict[str, int]:
        """Assert that the invariants hold and that STREAM has what was acknowledged; return {writer: rows}."""

        async def main(ep: eventproc.Eventproc) -> dict[str, int]:
            return check_rows(await read_all(ep, STREAM), self.acked())

        self._crash.check()
        return self._crash.run(main)


def hear(worker: ChildProcess, expected: str) -> str:
    """Return the next line that begins with `expected`; notes of progress, and of the log, may come before."""
    heard: list[str] = []
    while not (line := worker.hear()).startswith(expected):
        assert line, f"process {worker.pid} ended instead of saying {expected!r}; it said {heard}"
        heard.append(line)
        assert line.split()[0] in ("log", "seen", "written", "eventproc:"), (
            f"{line!r} came instead of {expected!r}"
        )
    return line


def wait_dead(worker: ChildProcess) -> None:
    """Wait until a worker that kills itself, and every child of it that has its output open, has ended."""
    while worker.hear():
        pass
    worker.kill()


async def read_all(ep: eventproc.Eventproc, name: str) -> list[tuple[str | None, bytes]]:
    """Return (key, payload) of everything that is in a stream now, in the order of a reader of the whole stream."""
    stream = await ep.stream(name)
    async with stream.reader() as reader:
        return [(event.key, event.payload) async for event in reader.until(await stream.tail())]


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Poll until `condition` holds, for a state without a notification. The time limit ends a test that would hang."""
    deadline = monotonic() + PATIENCE_S
    while not condition():
        assert monotonic() < deadline, f"for {PATIENCE_S} s not {what}"
        os.sched_yield()


def waits_for_flock(pid: int, path: Path) -> bool:
    """Return whether a process is blocked in flock on `path`; source: /proc/locks, "1: -> FLOCK ADVISORY …"."""
    inode = str(path.stat().st_ino)
    for line in Path("/proc/locks").read_text(encoding="ascii").splitlines():
        words = line.split()
        if words[1] == "->" and int(words[5]) == pid and words[6].rsplit(":", 1)[1] == inode:
            return True
    return False


def state_of(worker: ChildProcess) -> str:
    """Return a process's state; source: proc(5), the word after the name in parentheses."""
    stat = Path(f"/proc/{worker.pid}/stat").read_text(encoding="ascii")
    return stat.rpartition(")")[2].split()[0]
