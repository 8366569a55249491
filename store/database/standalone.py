"""Databases in a file that no process shares: a copy of one snapshot, and files that are complete without a log.

`copy_snapshot` makes such a file from an open database; `change_file` and `read_file` work on it. `read_beside` reads
an open database for a long time, and can be stopped.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from eventproc.base.clock import Clock, new_id
from eventproc.store.database.connections import PAGE_BYTES, connect
from eventproc.store.database.files import primary_code, translate_error
from eventproc.store.database.guard import LogMark, store_mark
from eventproc.store.database.locks import ForkBlocker
from eventproc.store.database.tx import Tx
from eventproc.store.model.errors import DiskFull, StoreUnusable

STEP_PAGES: Final = 256
"""Pages copied between two calls of `advance`, 4 MiB: some ms. A fork of the process waits for the end of a step."""

STEP_INSTRUCTIONS: Final = 10_000
"""Instructions of SQLite between two questions whether a read shall end, about 1 ms. Higher: a cancellation and a fork
of the process wait longer; lower: more calls."""

Advance = Callable[[int, int], None]
"""Called between steps with the bytes done and all bytes. It may raise, which ends the work."""


def copy_snapshot(source: Path, target: Path, advance: Advance) -> None:
    """Copy one snapshot of the database `source`, which this process has open, into the new file `target`.

    One read transaction lasts for the complete copy. So writes of other connections neither block the copy, nor make
    it begin again, nor show in it. Meanwhile the log of `source` cannot be reused: it grows by what is written.
    Raises CorruptRecord, DiskFull, sqlite3.Error, and what `advance` raises.
    """
    steps = ForkBlocker()

    def between_steps(_status: int, remaining: int, total: int) -> None:
        steps.__exit__()
        try:
            advance((total - remaining) * PAGE_BYTES, total * PAGE_BYTES)
        finally:
            steps.__enter__()

    try:
        with steps, closing(connect(source)) as reader, closing(sqlite3.connect(target)) as writer:
            reader.execute("PRAGMA query_only = 1")
            # Nothing uses an unfinished copy, and `sync_file` makes the finished one durable.
            writer.execute("PRAGMA journal_mode = OFF")
            writer.execute("PRAGMA synchronous = OFF")
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM meta").fetchone()
            reader.backup(writer, pages=STEP_PAGES, progress=between_steps)
            reader.execute("ROLLBACK")
    except sqlite3.Error as why:
        if primary_code(why) == sqlite3.SQLITE_FULL:
            raise DiskFull(path=str(target)) from why
        if primary_code(why) == sqlite3.SQLITE_IOERR:
            reason = f"cannot be written, or {source} cannot be read: a disk is full, or fails ({why})"
            raise StoreUnusable(path=str(target), reason=reason) from why
        raise translate_error(why, str(source)) from why


@contextmanager
def read_beside(source: Path, clock: Clock, is_stopped: Callable[[], bool]) -> Iterator[Tx]:
    """Read one snapshot of the database `source`, which this process has open, with a connection of its own.

    So it keeps no connection from other reads. is_stopped: asked every STEP_INSTRUCTIONS; when it returns True, the
    statement that runs raises sqlite3.OperationalError.
    Raises CorruptRecord, sqlite3.Error.
    """
    inside = ForkBlocker()

    def between_steps() -> bool:
        inside.__exit__()
        try:
            return is_stopped()
        finally:
            inside.__enter__()

    try:
        with inside, closing(connect(source)) as reader:
            reader.execute("PRAGMA query_only = 1")
            reader.set_progress_handler(between_steps, STEP_INSTRUCTIONS)
            reader.execute("BEGIN")
            yield Tx(reader, clock, snapshot=True)
    except sqlite3.Error as why:
        raise translate_error(why, str(source)) from why


@contextmanager
def change_file(path: Path, clock: Clock) -> Iterator[Tx]:
    """Change a file that no other connection has open, in one transaction, and leave it complete without a log.

    Raises CorruptRecord, DiskFull, sqlite3.Error.
    """
    try:
        with closing(connect(path)) as connection:
            connection.execute("PRAGMA journal_mode = DELETE")
            connection.execute("BEGIN EXCLUSIVE")
            store_mark(connection, LogMark(new_id(clock), used=False))
            yield Tx(connection, clock)
            connection.execute("COMMIT")
    except sqlite3.Error as why:
        raise translate_error(why, str(path)) from why


@contextmanager
def read_file(path: Path, clock: Clock) -> Iterator[Tx]:
    """Read a file that nobody changes meanwhile. It creates no files beside it, and works on a read-only disk.

    Raises CorruptRecord, sqlite3.Error.
    """
    try:
        uri = f"{path.absolute().as_uri()}?immutable=1"
        with closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as connection:
            connection.execute("BEGIN")
            yield Tx(connection, clock)
    except sqlite3.Error as why:
        raise translate_error(why, str(path)) from why
