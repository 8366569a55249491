"""Checks a directory before opening: it exists, is ours or empty, is writable, and lies on a local file system.

SQLite's WAL needs shared memory and locks that work across all processes. They do not on network file systems and on
those that a virtual machine shares with its host: the database would be damaged silently. Such directories are refused
(reference pitfalls.md S2.24).
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from eventproc.store.model.errors import DiskFull, StoreMissing, StoreUnusable

DATABASE: Final = "eventproc.db"

RECORD_FILE: Final = "log.record"
"""The record of what the log holds: see `log_record`. It exists once a database was initialised."""

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
    | {"vboxsf", "virtiofs", "vmhgfs", "wslfs"}
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

_MOUNTS: Final = Path("/proc/self/mountinfo")


def check_directory(path: Path, *, create: bool, mounts: str | None = None) -> bool:
    """Return whether the directory must be initialised: it is empty, or an initialisation was interrupted.

    create: create a missing directory and its parents. This function changes nothing else.
    mounts: text in the form of /proc/self/mountinfo (proc(5)), read instead of that file.
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


def _check_directory(path: Path, create: bool, mounts: str | None) -> bool:
    if not path.exists() and not create:
        raise StoreMissing(path=str(path))
    if mounts is None:
        mounts = _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape") if _MOUNTS.exists() else ""
    # Checked before anything is created. A path whose end is missing resolves as far as it exists.
    kind = type_of(path.resolve(), mounts)
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
    # Only with stat: opening and closing the file would drop this process's locks on it (see `file_guard`).
    status = os.stat(path / DATABASE)
    if not stat.S_ISREG(status.st_mode):
        raise StoreUnusable(path=str(path), reason=f"{DATABASE} in it is not a file")
    if not os.access(path / DATABASE, os.R_OK | os.W_OK):
        raise StoreUnusable(path=str(path), reason=f"{DATABASE} in it {_not_writable(path / DATABASE)}")
    return status.st_size == 0


def _not_writable(path: Path) -> str:
    return _READ_ONLY if os.statvfs(path).f_flag & os.ST_RDONLY else "is not writable for this user"


def type_of(path: Path, mounts: str) -> str:
    """Return the type of the file system that holds an absolute, resolved path, "" if `mounts` does not list it.

    Source: proc(5), "36 35 98:0 /root /mount/point options optional... - type source options"; the
    longest mount point wins; of equal ones the last, which hides the others.
    """
    found, found_depth = "", -1
    for line in mounts.splitlines():
        before, separator, after = line.partition(" - ")
        fields = before.split(" ")
        if not separator or len(fields) < 6:
            continue
        point = Path(_unescape(fields[4]))
        if path.is_relative_to(point) and len(point.parts) >= found_depth:
            found, found_depth = after.split(" ")[0], len(point.parts)
    return found


def _unescape(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda digits: chr(int(digits[1], 8)), text)
