"""A process of the torture tests: writes numbered rows, notes what was acknowledged, disturbs its files on command.

    worker.py DIRECTORY ACKS NAME [DEATH POINT COUNT]

Each number is one write of two rows, so that half a write shows. Outcomes are appended to the file ACKS, one
line each. The file keeps what a killed process has written. It prints "open", "rows" after every few acknowledgements,
"done" after each command, "closed" at the end of its input. DEATH is "kill" or "stop": what it does to itself when
it reaches the fault POINT for the COUNTth time after opening.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import anyio
import apsw

from eventproc.store.clock import SystemClock
from eventproc.store.database import Durability, Migration, Tx
from eventproc.store.database.file_database import open_database
from eventproc.store.faults import Faults
from eventproc.store.model.errors import Retryable
from eventproc.testing import SignalAt
from eventproc.testing.faults import SignalName
from tests.support.forked import run_forked

WRITERS = 3
ROWS_PER_LINE = 15
FORK_ROWS = 20


def create(tx: Tx) -> None:
    # No unique key: it would hide a row that was written twice.
    tx.execute("CREATE TABLE row (writer TEXT, number INTEGER, part INTEGER, filler BLOB)")


def write_row(tx: Tx, writer: str, number: int) -> None:
    for part in (0, 1):
        tx.execute("INSERT INTO row VALUES (?, ?, ?, zeroblob(?))", (writer, number, part, number % 3000))


MIGRATIONS = [Migration(1, create)]


class TortureWorker:
    def __init__(self, directory: Path, acks: Path, name: str, faults: Faults) -> None:
        self._directory = directory
        self._acks_path = acks
        self._acks = os.open(acks, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._name = name
        self._faults = faults
        self._ended = False
        self._written = 0
        self._acked_max = -1

    async def run(self, numbers: Iterator[int]) -> None:
        """Write `numbers`, until there are no more or the input ends."""
        durability = None if (self._directory / "eventproc.db").exists() else Durability.OS
        async with open_database(
            self._directory,
            migrations=MIGRATIONS,
            durability=durability,
            clock=SystemClock(),
            faults=self._faults,
        ) as database:
            say("open")
            if isinstance(self._faults, SignalAt):
                self._faults.arm()

            async def write_numbers() -> None:
                for number in numbers:
                    if self._ended:
                        break
                    try:
                        await database.write(functools.partial(write_row, writer=self._name, number=number))
                    except Retryable:
                        self._note("refused", number)
                    else:
                        self._note("acked", number)
                        self._acked_max = max(self._acked_max, number)

            async def read_numbers() -> None:
                """Check continuously that every acknowledged write is found."""
                while True:
                    known = self._acked_max
                    assert await database.read(self._newest) >= known, (
                        f"{known} was acknowledged and not found"
                    )

            async with anyio.create_task_group() as readers:
                readers.start_soon(read_numbers)
                async with anyio.create_task_group() as writers:
                    # One writer notes each outcome before its next write: the state at death is exact.
                    for _ in range(1 if isinstance(self._faults, SignalAt) else WRITERS):
                        writers.start_soon(write_numbers)
                readers.cancel_scope.cancel()

    def _newest(self, tx: Tx) -> int:
        """Return the highest number of this worker: numbers are queued, and so written, in their order."""
        row = tx.execute(
            "SELECT number FROM row WHERE writer = ? ORDER BY rowid DESC", (self._name,)
        ).fetchone()
        return -1 if row is None else int(row[0])

    def _note(self, outcome: str, number: int) -> None:
        os.write(self._acks, f"{outcome} {self._name} {number}\n".encode())
        self._written += 1
        if self._written % ROWS_PER_LINE == 0:
            say("rows")

    def obey(self) -> None:
        """Obey the commands on standard input until it ends. Runs in its own thread."""
        for line in sys.stdin:
            match line.split():
                case ["read"]:
                    for suffix in ("", "-shm", "-wal"):
                        (self._directory / f"eventproc.db{suffix}").read_bytes()
                case ["library"]:
                    self._use_second_library()
                case ["fork", name]:
                    self._fork(name)
                case unknown:
                    raise ValueError(unknown)
            say("done")
        self._ended = True

    def _use_second_library(self) -> None:
        connection = apsw.Connection(str(self._directory / "eventproc.db"))
        connection.setbusytimeout(1000)
        # A read of this process that ends meanwhile releases the lock on its snapshot, too, because POSIX locks belong
        # to the process. A checkpoint then changes the pages that it reads, and it takes them for damaged.
        with contextlib.suppress(apsw.CorruptError):
            connection.execute("SELECT count(*) FROM row").fetchall()
        connection.close()

    def _fork(self, name: str) -> None:
        """Let a forked child open the directory again, write some rows, and end."""
        forked = TortureWorker(self._directory, self._acks_path, name, Faults())
        code = run_forked(functools.partial(forked.run, iter(range(FORK_ROWS))))
        if code != 0:
            say(f"the forked child ended with {code}")


def say(line: str) -> None:
    os.write(1, line.encode() + b"\n")


def mortality(death: str = "", point: str = "", count: str = "0") -> SignalAt | None:
    """Return the fault "kill" or "stop" at a point, which is not armed yet. None without arguments."""
    return SignalAt(point, int(count), signal=cast("SignalName", death), armed=False) if death else None


def main(directory: str, acks: str, name: str, *mortal: str) -> None:
    faults = mortality(*mortal) or Faults()
    worker = TortureWorker(Path(directory), Path(acks), name, faults)
    threading.Thread(target=worker.obey, daemon=True).start()
    asyncio.run(worker.run(itertools.count()))
    say("closed")


if __name__ == "__main__":
    main(*sys.argv[1:])
