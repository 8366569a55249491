"""Keeps other connections from acting as the last one to close the database.

The danger: POSIX locks belong to the process, and closing *any* descriptor of a file drops all of them. A second SQLite
library in this process, or a plain open() and close() of the database, removes the locks of our connections. Then the
next connection that closes the database, in any process, believes that it is the last one. It unlinks the WAL or
truncates `-shm` while we use them: commits are acknowledged and lost (reference pitfalls.md S1.3).

The guard: `FileGuard` takes shared open-file-description locks, which no close of another descriptor drops, on the
bytes that a last closer must lock exclusively: SQLite's SHARED range of the database, and the "dead man switch" of
`-shm`. SQLite itself takes shared locks there all the time, so they do not disturb other connections.
The detector: `ReplacedFileDetector` compares the inodes of the files. Without such locks it is the only protection.

Invariants:
- The guard's own descriptors obey the same rule: they are closed only if no other descriptor of this process has the
  database open. Until then they stay open, unlocked.
- The process has one pair of descriptors per database file, regardless of the number of handles.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
from pathlib import Path
from typing import Final, Self

import attrs

from eventproc.store.clock import Clock
from eventproc.store.database import fork_safety
from eventproc.store.database.directory_watch import DirectoryWatch
from eventproc.store.model.errors import DatabaseStopped

SHARED_FIRST: Final = 0x40000002
SHARED_SIZE: Final = 510
"""The bytes of the database file that every connection locks shared: os_unix.c, SHARED_FIRST and SHARED_SIZE."""

DEAD_MAN_SWITCH: Final = 128
"""The byte of -shm that every connection locks shared: os_unix.c, UNIX_SHM_DMS = (22 + SQLITE_SHM_NLOCK) * 4 + 8."""

FILES: Final = ("", "-wal", "-shm")
"""Suffixes of the files of an open database in WAL mode."""

_SUPPORTED: Final = hasattr(fcntl, "F_OFD_SETLK")

# struct flock with 64-bit offsets, in the machine's own alignment: type, whence, start, length, pid (must be 0).
_FLOCK: Final = struct.Struct("@hhqqi4x")


@attrs.define
class _GuardDescriptors:
    """The two descriptors of one database, and the number of handles of this process that use them."""

    database_fd: int
    shm_fd: int | None = None
    handles: int = 0


_registry: Final[dict[tuple[int, int], _GuardDescriptors]] = {}

_unsupported: Final[set[tuple[int, int]]] = set()
"""Databases for which the kernel does not support such locks."""


class FileGuard(fork_safety.ProcessBound):
    """The guard of a database file, as held by one handle."""

    def __init__(self, key: tuple[int, int] | None) -> None:
        super().__init__()
        self._key = key

    @classmethod
    def hold(cls, db_path: Path) -> Self:
        """Guard the database from now on. Call it after a connection has read in WAL mode, so that `-shm` exists.

        That first connection was not protected and may use another WAL or `-shm` than the guard finds. So write only
        through a connection that is opened afterwards. A second handle of the process shares the descriptors of the
        first. Raises FileNotFoundError if another program closed the database as its last user meanwhile, and
        BlockingIOError while another program holds it exclusively, perhaps to do so. 20 us.
        """
        if not _SUPPORTED:
            return cls(None)
        with fork_safety.mutex:
            status = os.stat(db_path)
            key = (status.st_dev, status.st_ino)
            if key in _unsupported:
                return cls(None)
            held = _registry.get(key) or _GuardDescriptors(_open(db_path))
            _registry[key] = held
            if held.handles == 0:
                try:
                    supported = _lock(held, Path(f"{db_path}-shm"))
                except OSError:
                    _unlock(held)
                    raise
                if not supported:
                    # Closing drops the locks of this process, so do it only once per file: now the only connection is
                    # that of the caller, which is not used any more.
                    _unsupported.add(key)
                    _drop(key)
                    return cls(None)
            held.handles += 1
            return cls(key)

    @property
    def active(self) -> bool:
        """Whether the kernel guards the file; False if it has no open-file-description locks."""
        return self._key is not None

    @property
    def shm_fd(self) -> int | None:
        """A descriptor of `-shm`, for reading only (closing it drops locks), or None if the guard is not active."""
        return None if self._key is None or self.forked else _registry[self._key].shm_fd

    def release(self) -> None:
        """Release this handle's guard. Call it after its last connection was closed.

        A second call, or a call in a forked child, does nothing.
        """
        if self._key is None or self.forked:
            return
        with fork_safety.mutex:
            key, self._key = self._key, None
            held = _registry[key]
            held.handles -= 1
            if held.handles == 0:
                _unlock(held)
                _drop_unused()


class ReplacedFileDetector:
    """Detects that another program removed or replaced a file of an open database, so that later commits are lost.

    They are lost if the WAL is gone, if the next opener uses another WAL or `-shm`, or if a checkpoint copies the WAL
    into a deleted file.

    The detector checks the directory, and the files only after entries changed. Kernels from 6.13 on record the next
    change of a file exactly once a program has asked for its times, and write its inode with the next sync. On ext4
    without a journal that was a third wait for the disk in each commit.
    """

    def __init__(self, db_path: Path, clock: Clock) -> None:
        """Remember the present files. Raises DatabaseStopped if one is missing, because WAL mode needs all of them."""
        self._path = db_path
        self._directory_watch = DirectoryWatch(db_path.parent, clock)
        self._expected: dict[str, tuple[int, int]] = {}
        for suffix in FILES:
            if (found := self._find(suffix)) is None:
                reason = f"{db_path.name}{suffix} is missing although the database is open"
                raise DatabaseStopped(path=str(db_path), reason=reason)
            self._expected[suffix] = found

    def check(self) -> None:
        """Raise DatabaseStopped if a file was removed or replaced. Called before every acknowledgement. 2 us."""
        if not self._directory_watch.may_have_changed():
            return
        for suffix, expected in self._expected.items():
            if (found := self._find(suffix)) != expected:
                how = "removed" if found is None else "replaced"
                reason = (
                    f"{self._path.name}{suffix} was {how} by another program while the database was open, so its last "
                    f"commits may be lost; do not open, copy or delete these files while a process has them open"
                )
                raise DatabaseStopped(path=str(self._path), reason=reason)
        self._directory_watch.mark_seen()

    def _find(self, suffix: str) -> tuple[int, int] | None:
        try:
            status = os.stat(f"{self._path}{suffix}")
        except FileNotFoundError:
            return None
        return status.st_dev, status.st_ino


def _open(path: Path) -> int:
    return fork_safety.open_private(path, os.O_RDONLY)


def _follow_shm(held: _GuardDescriptors, path: Path) -> None:
    """Open the present `-shm`. It may be a new one if no handle of this process guarded the database meanwhile."""
    if held.shm_fd is not None:
        kept, present = os.fstat(held.shm_fd), os.stat(path)
        if (kept.st_dev, kept.st_ino) == (present.st_dev, present.st_ino):
            return
        fork_safety.close_private(held.shm_fd)
        held.shm_fd = None
    held.shm_fd = _open(path)


def _lock(held: _GuardDescriptors, shm: Path) -> bool:
    """Take both locks; return False if the kernel does not implement them (as in some sandboxes)."""
    try:
        # In this order: while the first lock is held no process removes -shm, so the opened one is the present one.
        _request(held.database_fd, fcntl.F_RDLCK, SHARED_FIRST, SHARED_SIZE)
    except OSError as why:
        if why.errno in (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
            return False
        raise
    _follow_shm(held, shm)
    assert held.shm_fd is not None, "no -shm to lock"
    _request(held.shm_fd, fcntl.F_RDLCK, DEAD_MAN_SWITCH, 1)
    return True


def _unlock(held: _GuardDescriptors) -> None:
    _request(held.database_fd, fcntl.F_UNLCK, SHARED_FIRST, SHARED_SIZE)
    if held.shm_fd is not None:
        _request(held.shm_fd, fcntl.F_UNLCK, DEAD_MAN_SWITCH, 1)


def _request(descriptor: int, kind: int, start: int, length: int) -> None:
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _FLOCK.pack(kind, os.SEEK_SET, start, length, 0))


def _drop_unused() -> None:
    """Close the pairs without a handle, if this process has no other descriptor of the database open."""
    unused = [key for key, held in _registry.items() if held.handles == 0]
    if unused:
        opened = _open_files()
        for key in unused:
            if opened.count(key) <= 1:
                _drop(key)


def _drop(key: tuple[int, int]) -> None:
    held = _registry.pop(key)
    if held.shm_fd is not None:
        fork_safety.close_private(held.shm_fd)
    fork_safety.close_private(held.database_fd)


def _open_files() -> list[tuple[int, int]]:
    """Return (device, inode) of every descriptor of this process. About 2 us each; Linux, as the locks are."""
    found: list[tuple[int, int]] = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(
            OSError
        ):  # the listing's own descriptor, and descriptors that other threads close
            status = os.fstat(int(name))
            found.append((status.st_dev, status.st_ino))
    return found


def _forget_registry() -> None:
    _registry.clear()


fork_safety.when_forked(_forget_registry)
