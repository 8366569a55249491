"""What SQLite's error codes, and the system's refusals while a directory is opened, mean for a caller."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from eventproc.store.database.filesystem import ANOTHER, DATABASE, MORE_FILES, unusable
from eventproc.store.model.errors import CorruptRecord, DiskFull, StoreUnusable

BUSY_MS: Final = 1_000
"""How long SQLite waits for its own locks. Writers queue on write.lock, so this is only a net: for programs that
open the file without our protocol, and for the moments of recovery."""

LOCKED: Final = "another program keeps the database locked; end it first"

ENDS_TRANSACTION: Final = frozenset(
    {
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_INTERRUPT,
    }
)
"""Codes after which SQLite may have rolled back the whole transaction and not only the statement."""


def primary_code(why: BaseException) -> int | None:
    """Return SQLite's primary result code of `why`, None if `why` is not an error of SQLite."""
    code = getattr(why, "sqlite_errorcode", None) if isinstance(why, sqlite3.Error) else None
    return None if code is None else code & 0xFF


def explained(why: Exception, path: str) -> Exception:
    """Return the error of ours that says what `why` means, `why` itself if there is none."""
    code = primary_code(why)
    if code == sqlite3.SQLITE_FULL:
        return DiskFull(path=path)
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return CorruptRecord(key=path, reason=str(why))
    if code == sqlite3.SQLITE_CANTOPEN:  # SQLite says neither which nor why
        what = f"{DATABASE} in it, or what is beside that, cannot be opened"
        return StoreUnusable(path=path, reason=f"{what}: look at the permissions, and {MORE_FILES}")
    return why


@contextmanager
def opening(path: Path) -> Iterator[None]:
    """Raise why the directory `path` could not be opened as an error of ours."""
    try:
        yield
    except sqlite3.Error as why:
        raise _opening_failed(why, path) from why
    except OSError as why:
        if why.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFull(path=str(path)) from why
        raise unusable(path, why) from why


def _opening_failed(why: sqlite3.Error, path: Path) -> Exception:
    code = primary_code(why)
    if code == sqlite3.SQLITE_NOTADB:
        return StoreUnusable(path=str(path), reason=f"{DATABASE} in it is not a database; {ANOTHER}")
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
        return StoreUnusable(path=str(path), reason=f"cannot be written ({why})")
    if code == sqlite3.SQLITE_IOERR:
        return StoreUnusable(path=str(path), reason=f"its disk is full, or fails ({why})")
    if code == sqlite3.SQLITE_BUSY:
        return StoreUnusable(path=str(path), reason=LOCKED)
    return explained(why, str(path))
