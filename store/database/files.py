"""The directory of a database and what its file system reports: checks before opening, errors, changed entries.

Before it is opened, a directory is checked: it exists, is ours or empty, is writable, and is local. SQLite's WAL needs
shared memory and locks that work across all processes. They do not on network file systems and on those that a virtual
machine shares with its host: the database would be damaged silently. Such directories are refused (reference
pitfalls.md S2.24).

Errors of SQLite, and of the operating system while opening, are translated into errors of this library. A
`DirectoryWatch` detects changes with one `stat`, so that a commit need not list the directory.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Final

from eventproc.base import kernel
from eventproc.base.clock import Clock
from eventproc.store.model.errors import CorruptRecord, DiskFull, StoreMissing, StoreUnusable

DATABASE: Final = "eventproc.db"

RECORD_FILE: Final = "log.record"
"""The record of what the log holds: see `guard`. It exists once a database was initialised."""

BACKUP_MANIFEST: Final = "backup.json"
"""The file that makes a directory a complete backup."""

OUR_FILES: Final = frozenset(
    {
        f"{DATABASE}-wal",
        f"{DATABASE}-shm",
        f"{DATABASE}-journal",
        "write.lock",
        "format.lock",
        "controller.lock",
        "instances",
    }
)
"""Files that an interrupted initialisation may leave. A new store may be created only beside these."""

REFUSED_TYPES: Final = frozenset(
    {
        "9p",
        "afpfs",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "coda",
        "drvfs",
        "fakeowner",
        "fuse",
        "fuseblk",
        "gfs2",
        "glusterfs",
    }
    | {"gpfs", "lustre", "ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "prl_fs", "smb2", "smb3", "smbfs"}
    | {"macfuse", "osxfuse", "vboxsf", "virtiofs", "vmhgfs", "webdav", "wslfs"}
)
"""File system types whose shared memory or locks do not reach every process. `fuse.*` is refused, too."""

MORE_FILES: Final = "see how many files this process may open (ulimit -n)"

_READ_ONLY: Final = (
    "is on a read-only file system; choose a directory that can be written, or mount it writable"
)

RESTORE_PART: Final = "restore.part"
"""Folder of a directory in which `restore` keeps what is not complete yet."""

ANOTHER: Final = "choose another directory, or restore a backup of this one"
"""What to do about a database that is not ours, or no longer."""

_EMPTY: Final = "choose a new or empty directory"
_OURS: Final = "say which directory is meant (at a shell, with -C DIR or EVENTPROC_DIR)"
"""What to do about a directory that is not ours: when creating a store, and when opening one."""


def check_directory(path: Path, *, create: bool, mounts: kernel.Mounts | None = None) -> bool:
    """Return whether the directory must be initialised: it is empty, or an initialisation was interrupted.

    create: create a missing directory and its parents. This function changes nothing else.
    mounts: looked at instead of those of the machine.
    Raises StoreMissing if the directory is no store and `create` is False, StoreUnusable with the reason.
    """
    try:
        return _check_directory(path, create, mounts)
    except (FileExistsError, NotADirectoryError) as why:
        file = next((each for each in (path, *path.parents) if each.is_file()), path)
        there = "is a file" if file == path else f"would lie in {file}, which is a file"
        reason = f"{there}; {_EMPTY if create else _OURS}"
        raise StoreUnusable(path=str(path), reason=reason) from why
    except OSError as why:
        raise unusable(path, why) from why


@contextmanager
def remove_created_on_error(path: Path) -> Iterator[None]:
    """If the block raises, remove the directories that it created on the way to `path`, unless they hold files."""
    missing = [each for each in (path, *path.parents) if _is_missing(each)]
    try:
        yield
    except BaseException:
        with suppress(OSError):  # not created, or in use: the same holds for its parents
            for each in missing:
                each.rmdir()
        raise


def _is_missing(path: Path) -> bool:
    try:
        return not path.exists()
    except OSError:  # such as a name that is too long: creating it will report that
        return False


@contextmanager
def translate_file_errors(path: Path) -> Iterator[None]:
    """Translate operating system errors of the block, which works on the files of `path`, into our own errors."""
    try:
        yield
    except OSError as why:
        if why.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFull(path=str(path)) from why
        raise unusable(path, why) from why


def unusable(path: Path, why: OSError) -> StoreUnusable:
    """Return the error for an operating system error about the directory or a file in it."""
    if why.errno == errno.EROFS:
        return StoreUnusable(path=str(path), reason=_READ_ONLY)
    remedy = f"; {MORE_FILES}" if why.errno in (errno.EMFILE, errno.ENFILE) else ""
    return StoreUnusable(path=str(path), reason=f"cannot be used: {why.strerror or why}{remedy}")


def _check_directory(path: Path, create: bool, mounts: kernel.Mounts | None) -> bool:
    if not path.exists() and not create:
        raise StoreMissing(path=str(path))
    # Checked before anything is created. A path whose end is missing resolves as far as it exists.
    kind = kernel.file_system_of(path.resolve(), kernel.mounts() if mounts is None else mounts)
    if kind in REFUSED_TYPES or kind.startswith("fuse."):
        reason = (
            f"is on a {kind} file system, where several processes cannot share a database; use a local disk"
        )
        raise StoreUnusable(path=str(path), reason=reason)
    if create:
        path.mkdir(parents=True, exist_ok=True)
    names = set(os.listdir(path))
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        raise StoreUnusable(path=str(path), reason=_not_writable(path))
    fresh = DATABASE not in names or _check_database(path)
    if fresh and RECORD_FILE in names:
        how = "is empty" if DATABASE in names else "is missing"
        reason = (
            f"{DATABASE} in it {how}, although {RECORD_FILE} shows that it was in use: its content is lost. Put the"
            " file back, restore a backup into another directory with `eventproc restore`, or remove this directory"
        )
        raise StoreUnusable(path=str(path), reason=reason)
    if BACKUP_MANIFEST in names:
        reason = "is a backup; make a directory of it with `eventproc restore`"
        raise StoreUnusable(path=str(path), reason=reason)
    if DATABASE not in names and RESTORE_PART in names:
        reason = "a backup was not restored into it completely; run the same `eventproc restore` again"
        raise StoreUnusable(path=str(path), reason=reason)
    if DATABASE not in names and (strangers := names - OUR_FILES - {"lost+found"}):
        reason = (
            f"holds {min(strangers)!r} and no {DATABASE}, so it is not ours; {_EMPTY if create else _OURS}"
        )
        raise StoreUnusable(path=str(path), reason=reason)
    if fresh and not create:
        raise StoreMissing(path=str(path))
    return fresh


def _check_database(path: Path) -> bool:
    # Only with stat: opening and closing the file would drop this process's locks on it (see `guard`).
    status = os.stat(path / DATABASE)
    if not stat.S_ISREG(status.st_mode):
        raise StoreUnusable(path=str(path), reason=f"{DATABASE} in it is not a file")
    if not os.access(path / DATABASE, os.R_OK | os.W_OK):
        raise StoreUnusable(path=str(path), reason=f"{DATABASE} in it {_not_writable(path / DATABASE)}")
    return status.st_size == 0


def _not_writable(path: Path) -> str:
    return _READ_ONLY if os.statvfs(path).f_flag & os.ST_RDONLY else "is not writable for this user"


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


SETTLED_MS: Final = 100
"""Age from which the time of a directory's last change is trusted. File times advance in steps of up to 10 ms, so a
change right after a listing may have the same time. A higher value means more listings after each change."""

COARSE_SETTLED_MS: Final = 2_100
"""The same for file systems that store times in steps of one or two seconds, such as those with small inodes."""

_Change = tuple[int, int, int]
"""Device, inode and ctime. Programs cannot set the ctime; tools that restore backups set the other times."""


class DirectoryWatch:
    """Remembers when the entries of a directory last changed. For use by one thread."""

    def __init__(self, directory: Path, clock: Clock) -> None:
        self._name = str(directory)  # `os.stat` of a str costs half of that of a Path
        self._clock = clock
        self._found: _Change | None = None
        self._noted: _Change | None = None

    def may_have_changed(self) -> bool:
        """Return whether an entry may have been added, removed or replaced since the last `mark_seen`. 1.5 us."""
        try:
            status = os.stat(self._name)
        except OSError:  # deleted, or not accessible
            self._found = None
            return True
        found = status.st_dev, status.st_ino, status.st_ctime_ns
        if found == self._noted:
            return False
        # Decided before the caller lists the entries: a change after the listing must not count as seen.
        self._found = found if self._is_settled(status.st_ctime_ns) else None
        return True

    def mark_seen(self) -> None:
        """Record that the caller listed the entries after the last call of `may_have_changed`."""
        self._noted = self._found

    def _is_settled(self, changed_ns: int) -> bool:
        enough_ms = SETTLED_MS if changed_ns % 1_000_000_000 else COARSE_SETTLED_MS
        return abs(self._clock.wall_ms() - changed_ns // 1_000_000) > enough_ms
