"""What other code of a process may do to the files of a directory while eventproc uses them.

Closing any descriptor of a file drops the POSIX locks that the process has on it; a second SQLite library does that
too when it closes its connection; a forked child has copies of everything.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import apsw

from tests.support.forked import run_forked
from tests.system.protocol import say

FORKED_SENDS = 10


class Interference:
    """Threads that disturb the files until the input ends."""

    def __init__(self, directory: Path, write: Callable[[str, int], Awaitable[None]]) -> None:
        """write: writes the rows of a name, that many sends; it is called in a forked child."""
        self.ended = threading.Event()
        self._directory = directory
        self._write = write
        self._threads = [
            threading.Thread(target=target)
            for target in (self._open_and_close, self._use_other_library, self._obey)
        ]
        self._turns = {target.__name__: 0 for target in (self._open_and_close, self._use_other_library)}

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        for thread in self._threads:
            thread.join()
        assert all(self._turns.values()), f"a thread did nothing: {self._turns}"

    def _open_and_close(self) -> None:
        while not self.ended.is_set():
            for suffix in ("", "-shm", "-wal"):
                # Before the database is open, there may be no log.
                with (
                    suppress(FileNotFoundError),
                    (self._directory / f"eventproc.db{suffix}").open("rb") as file,
                ):
                    file.read(4096)
            self._turns["_open_and_close"] += 1

    def _use_other_library(self) -> None:
        while not self.ended.is_set():
            connection = apsw.Connection(str(self._directory / "eventproc.db"))
            connection.setbusytimeout(10_000)
            connection.execute("SELECT count(*) FROM extent").fetchall()
            connection.close()
            self._turns["_use_other_library"] += 1

    def _obey(self) -> None:
        for line in sys.stdin:
            match line.split():
                case ["fork", name]:
                    self._fork(name)
                case unknown:
                    raise ValueError(unknown)
        self.ended.set()

    def _fork(self, name: str) -> None:
        code = run_forked(partial(self._run, name))
        say("forked" if code == 0 else f"the forked child {name} ended with {code}")

    async def _run(self, name: str) -> None:
        await self._write(name, FORKED_SENDS)
