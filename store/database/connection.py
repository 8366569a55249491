"""A SQLite connection on a thread of its own: the only module that knows aiosqlite.

aiosqlite gives the thread and its queue. Two things are added: the thread is a daemon, so that a program that
crashes before it closes its database still exits; and a function can be posted without a future, because a
group's results go back to the event loop in one crossing and not in one for each caller.
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
"""Set when a file is made, for ever. 16384 reads and checkpoints large events faster, 4096 commits small things
faster."""

STATEMENTS_MAX: Final = 512
"""Prepared statements kept by a connection; more than the library has."""


class ThreadConnection(aiosqlite.Connection):
    """A connection whose functions run on its own daemon thread, one after the other."""

    def __init__(self, connector: Callable[[], sqlite3.Connection]) -> None:
        super().__init__(connector, iter_chunk_size=64)
        self._thread.daemon = True
        self.busy: Final = ForkBlocker()
        """To be held by the thread while it is inside SQLite and waits for nobody: forks wait for it."""

    @classmethod
    async def start(cls, connector: Callable[[], sqlite3.Connection]) -> Self:
        """Start the thread and let it open the connection."""
        connection = cls(connector)
        await connection
        return connection

    @property
    def raw(self) -> sqlite3.Connection:
        """The connection itself, to be used on its thread."""
        return self._conn

    def post(self, function: Callable[[], object]) -> None:
        """Run `function` on the thread; it reports by itself, and must not raise. From any thread."""
        self._tx.put_nowait((None, function))

    async def call(self, function: Callable[[sqlite3.Connection], T]) -> T:
        """Run `function` on the thread and return its result. For opening and closing, not for the hot path."""
        return cast("T", await self._execute(function, self._conn))  # type: ignore[no-untyped-call]

    async def close(self) -> None:
        """Close the connection after what was posted before, and end the thread. Twice: nothing."""
        await super().close()
        self.join()

    def join(self) -> None:
        """Wait for the end of the thread, after `close` was called."""
        if self._thread.is_alive():
            self._thread.join()


async def open_reader(db_path: Path) -> ThreadConnection:
    """Open a connection that only reads, of a database in WAL mode."""

    def connector() -> sqlite3.Connection:
        with ExitStack() as undo:
            connection = connect(db_path)
            undo.callback(connection.close)
            connection.execute("PRAGMA query_only = 1")
            connection.execute("PRAGMA schema_version")  # opens all of its files now, or says that it cannot
            undo.pop_all()
        return connection

    return await ThreadConnection.start(connector)


def connect(db_path: Path) -> sqlite3.Connection:
    """Open the file with the settings that every connection has."""
    connection = sqlite3.connect(
        db_path,
        timeout=BUSY_MS / 1000,
        isolation_level=None,  # transactions are begun and ended by us alone
        cached_statements=STATEMENTS_MAX,
        check_same_thread=False,  # made on its thread, but its counters are looked at from others
    )
    connection.execute("PRAGMA mmap_size = 0")  # a truncated file would be a SIGBUS, not an error
    return connection


def prepare_file(connection: sqlite3.Connection) -> None:
    """Give a file that holds nothing yet the settings that it keeps for ever, and WAL mode."""
    connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    assert mode == "wal", f"journal mode is {mode}"


def prepare_writer(connection: sqlite3.Connection, durability: Durability) -> None:
    """Set what an acknowledged commit survives; checkpoints are run by us, never inside a commit."""
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    connection.execute(f"PRAGMA synchronous = {'FULL' if durability is Durability.FSYNC else 'NORMAL'}")
    if sys.platform == "darwin":
        connection.execute("PRAGMA fullfsync = 1")
        connection.execute("PRAGMA checkpoint_fullfsync = 1")
