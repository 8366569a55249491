"""Translates SQLite's error codes, and operating system errors while opening, into errors of this library."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Final

from eventproc.store.database.filesystem import ANOTHER, DATABASE, MORE_FILES, translate_file_errors
from eventproc.store.model.errors import CorruptRecord, DiskFull, StoreUnusable

BUSY_MS: Final = 1_000
"""How long SQLite waits for its own locks. Writers queue on write.lock, so this matters only for programs that ignore
write.lock, and during recovery."""

LOCKED: Final = "another program keeps the database locked; end it first"

UNREADABLE: Final = (sqlite3.Error, UnicodeDecodeError)
"""What reading a damaged value raises."""

ENDS_TRANSACTION: Final = frozenset(
    {
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_INTERRUPT,
    }
)
"""Codes after which SQLite may have rolled back the transaction and not only the statement."""


def primary_code(why: BaseException) -> int | None:
    """Return SQLite's primary result code of `why`, or None if `why` is not an error of SQLite."""
    code = getattr(why, "sqlite_errorcode", None) if isinstance(why, sqlite3.Error) else None
    return None if code is None else code & 0xFF


def translate_error(why: Exception, path: str) -> Exception:
    """Return the library's error for `why`, or `why` itself if there is none."""
    code = primary_code(why)
    if code == sqlite3.SQLITE_FULL:
        return DiskFull(path=path)
    if _is_damaged_text(why):
        return CorruptRecord(key=path, reason=f"a text in the database is damaged ({why})")
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return CorruptRecord(key=path, reason=str(why))
    if code == sqlite3.SQLITE_CANTOPEN:  # SQLite reports neither the file nor the reason
        what = f"{DATABASE} in it, or one of its companion files, cannot be opened"
        return StoreUnusable(path=path, reason=f"{what}: check the permissions, and {MORE_FILES}")
    if code == sqlite3.SQLITE_IOERR:
        return StoreUnusable(path=path, reason=f"its disk is full, or fails ({why})")
    return why


def _is_damaged_text(why: BaseException) -> bool:
    """Return whether a text in the database is not UTF-8: of a value, or of the schema, which SQLite then quotes."""
    return isinstance(why, UnicodeDecodeError) or (
        isinstance(why, sqlite3.OperationalError) and str(why).startswith("Could not decode to UTF-8")
    )


@contextmanager
def translate_opening_errors(path: Path) -> Iterator[None]:
    """Translate errors of the block, which opens the directory `path`, into errors of this library."""
    try:
        with translate_file_errors(path):
            yield
    except UNREADABLE as why:
        raise _opening_failed(why, path) from why


def _opening_failed(why: sqlite3.Error | UnicodeDecodeError, path: Path) -> Exception:
    code = primary_code(why)
    if code == sqlite3.SQLITE_NOTADB:
        return StoreUnusable(path=str(path), reason=f"{DATABASE} in it is not a database; {ANOTHER}")
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
        return StoreUnusable(path=str(path), reason=f"cannot be written ({why})")
    if code == sqlite3.SQLITE_BUSY:
        return StoreUnusable(path=str(path), reason=LOCKED)
    return translate_error(why, str(path))


DISK_ERRORS: Final[Mapping[str, tuple[int, str]]] = MappingProxyType(
    {
        "fail": (sqlite3.SQLITE_IOERR, "disk I/O error"),
        "full": (sqlite3.SQLITE_FULL, "database or disk is full"),
        "busy": (sqlite3.SQLITE_BUSY, "database is locked"),
    }
)
"""Errors of SQLite that a test injects, by what happened: their code and text."""


def disk_error(kind: str, note: str) -> sqlite3.OperationalError:
    """Return the error that SQLite raises when that happened. kind: a key of DISK_ERRORS. note: ends its text."""
    code, text = DISK_ERRORS[kind]
    error = sqlite3.OperationalError(f"{text} ({note})")
    error.sqlite_errorcode = code
    return error
