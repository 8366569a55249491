"""What SQLite's error codes mean for a caller."""

from __future__ import annotations

import sqlite3
from typing import Final

from eventproc.store.model.errors import CorruptRecord, DiskFull

BUSY_MS: Final = 1_000
"""How long SQLite waits for its own locks. Writers queue on write.lock, so this is only a net: for programs that
open the file without our protocol, and for the moments of recovery."""

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
    return why
