"""A SQLite connection on its own thread. This is the only module that uses aiosqlite.

aiosqlite provides the thread and its queue. This module adds two things. The thread is a daemon, so that a program
that crashes before it closes its database still exits. And a function can be posted without a future, because the
results of a batch return to the event loop in one callback instead of one per caller.
Source: architecture.md section 1, "Driver"; reference pitfalls.md S2.22.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Self, TypeVar, cast

import aiosqlite

from eventproc.store.database.database import Durability
from eventproc.store.database.fork_safety import ForkBlocker
from eventproc.store.database.sqlite_errors import BUSY_MS

T = TypeVar("T")

PAGE_BYTES: Final = 16384
"""Page size, fixed when the file is created. 16384 reads and checkpoints large events faster; 4096 commits small
changes faster."""

WRITER_CACHE_KIB: Final = 8 * 1024
"""Page cache of the writer. A transaction that changes more pages writes some of them to the log early, and reads them
again: with SQLite's own 2 MiB, half of the time under the write lock of a step that moves 1 MiB was spent so. Higher:
memory, kept until the end; lower: longer holds of the lock."""

STATEMENTS_MAX: Final = 512
"""Prepared statements kept by a connection; more than the library uses."""


class ThreadConnection(aiosqlite.Connection):
    """A connection that runs functions on its own daemon thread, one after the other."""

    def __init__(self, connector: Callable[[], sqlite3.Connection]) -> None:
        super().__init__(connector, iter_chunk_size=64)
        self._thread.daemon = True
        self.busy: Final = ForkBlocker()
        """The thread holds it while it is inside SQLite and not waiting for a lock. Forks wait for it."""

    @classmethod
    async def start(cls, connector: Callable[[], sqlite3.Connection]) -> Self:
        """Start the thread and open the connection on it."""
        connection = cls(connector)
        await connection
        return connection

    @property
    def raw(self) -> sqlite3.Connection:
        """The connection itself, for use on its thread."""
        return self._conn

    def post(self, function: Callable[[], object]) -> None:
        """Run `function` on the thread. It reports its result itself and must not raise. Callable from any thread."""
        self._tx.put_nowait((None, function))

    async def call(self, function: Callable[[sqlite3.Connection], T]) -> T:
        """Run `function` on the thread and return its result. For opening and closing, not for the hot path."""
        return cast("T", await self._execute(function, self._conn))  # type: ignore[no-untyped-call]

    async def close(self) -> None:
        """Close the connection after the functions posted before, and end the thread. A second call does nothing."""
        await super().close()
        self.join()

    def close_without_loop(self) -> None:
        """Do as `close` does, and block. Call it on a thread without an event loop.

        `close` reports to its event loop, which may be closed before the functions posted before have run.
        """
        self.stop()
        self.join()

    def join(self) -> None:
        """Wait for the end of the thread. Call it after `close`."""
        if self._thread.is_alive():
            self._thread.join()


async def open_reader(db_path: Path) -> ThreadConnection:
    """Open a read-only connection to a database in WAL mode."""

    def connector() -> sqlite3.Connection:
        with ExitStack() as undo:
            connection = connect(db_path)
            undo.callback(connection.close)
            connection.execute("PRAGMA query_only = 1")
            connection.execute("PRAGMA schema_version")  # opens all files now, or fails now
            undo.pop_all()
        return connection

    return await ThreadConnection.start(connector)


def connect(db_path: Path) -> sqlite3.Connection:
    """Open the file with the settings of every connection."""
    connection = sqlite3.connect(
        db_path,
        timeout=BUSY_MS / 1000,
        isolation_level=None,  # only this library begins and ends transactions
        cached_statements=STATEMENTS_MAX,
        check_same_thread=False,  # other threads read its counters
    )
    connection.execute("PRAGMA mmap_size = 0")  # a truncated file would be a SIGBUS, not an error
    return connection


def prepare_file(connection: sqlite3.Connection) -> None:
    """Set the permanent settings of a new file, before its tables are created."""
    connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")


def use_wal(connection: sqlite3.Connection) -> None:
    """Set WAL mode, after the tables were created: so the file alone has them from the beginning."""
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    assert mode == "wal", f"journal mode is {mode}"


def prepare_writer(connection: sqlite3.Connection, durability: Durability) -> None:
    """Set the durability of commits, and disable checkpoints inside a commit (`checkpoint.py` runs them)."""
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    connection.execute(f"PRAGMA cache_size = -{WRITER_CACHE_KIB}")
    connection.execute(f"PRAGMA synchronous = {'FULL' if durability is Durability.FSYNC else 'NORMAL'}")
    if sys.platform == "darwin":
        connection.execute("PRAGMA fullfsync = 1")
        connection.execute("PRAGMA checkpoint_fullfsync = 1")
