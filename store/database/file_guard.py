"""Nobody else may believe to be the last connection to the database.

The danger: POSIX locks belong to the process, and closing *any* descriptor of a file drops all of them. A second
SQLite library in this process, or a plain open() and close() of the database, disarms our connections; then
whoever closes the database next believes to be the last, and unlinks the WAL under us or truncates `-shm`:
commits are acknowledged and lost (reference pitfalls.md S1.3).

The guard: shared open-file-description locks, which no close of another descriptor drops, on the bytes that a
closer must lock exclusively: SQLite's SHARED range of the database, and the "dead man switch" of `-shm`.
SQLite itself takes shared locks there all the time, so they disturb nothing else.
The alarm: `ReplacedFileDetector` compares the inodes of the files; where such locks are missing it is the only guard.

Invariants:
- the guard's own descriptors are subject to the same rule, so they are closed only when no other descriptor of
  this process has the database open; until then they are kept, unlocked;
- per database file one pair of descriptors in the process, however many handles hold it.
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
"""What follows the database's name in those of the files that an open database in WAL mode has."""

_SUPPORTED: Final = hasattr(fcntl, "F_OFD_SETLK")

# struct flock with 64-bit offsets, in the machine's own alignment: type, whence, start, length, pid (must be 0).
_FLOCK: Final = struct.Struct("@hhqqi4x")


@attrs.define
class _GuardDescriptors:
    """The two descriptors of one database, and how many handles of this process count on them."""

    database_fd: int
    shm_fd: int | None = None
    handles: int = 0


_registry: Final[dict[tuple[int, int], _GuardDescriptors]] = {}

_unsupported: Final[set[tuple[int, int]]] = set()
"""Databases for which the kernel turned out not to have such locks."""


class FileGuard(fork_safety.ProcessBound):
    """One handle's share in the guard of a database file."""

    def __init__(self, key: tuple[int, int] | None) -> None:
        super().__init__()
        self._key = key

    @classmethod
    def hold(cls, db_path: Path) -> Self:
        """Guard the database from now on. After a connection has read from it in WAL mode, so that `-shm` is there.

        Until then nothing protects that connection: it may have another WAL or `-shm` than the guard finds, so
        write through one that was opened afterwards. A second handle of the process shares the descriptors of the
        first. Raises FileNotFoundError when somebody closed the database as its last user meanwhile, and
        BlockingIOError while a connection without our protocol holds it exclusively: it may be about to. 20 us.
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
                    # Once, so that it disarms no connection of another handle; the caller's is not used any more.
                    _unsupported.add(key)
                    _drop(key)
                    return cls(None)
            held.handles += 1
            return cls(key)

    @property
    def active(self) -> bool:
        """Whether the kernel guards the file; False where it has no open-file-description locks."""
        return self._key is not None

    @property
    def shm_fd(self) -> int | None:
        """A descriptor of `-shm`, to read (never to close: see above), or None when not active."""
        return None if self._key is None or self.forked else _registry[self._key].shm_fd

    def release(self) -> None:
        """Give up this handle's share; after its last connection was closed. Twice, or in a forked child: nothing."""
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
    """Notices that somebody removed or replaced a file of an open database: what is committed since is lost.

    Without its WAL it is; so it is in a WAL of which the next opener knows nothing, for its `-shm` is another, or which
    is copied into a file without a name.

    It asks the directory, and the files only when entries came or went: once a file was asked for its times,
    kernels from 6.13 on note its next change exactly, and write its inode with the next sync. On ext4 without a
    journal that was a third wait for the disk in each commit.
    """

    def __init__(self, db_path: Path, clock: Clock) -> None:
        """Remember the files as they are now. Raises DatabaseStopped when one is missing: it is not in WAL mode."""
        self._path = db_path
        self._directory_watch = DirectoryWatch(db_path.parent, clock)
        self._expected: dict[str, tuple[int, int]] = {}
        for suffix in FILES:
            if (found := self._find(suffix)) is None:
                reason = f"there is no {db_path.name}{suffix} although it is open"
                raise DatabaseStopped(path=str(db_path), reason=reason)
            self._expected[suffix] = found

    def check(self) -> None:
        """Raise DatabaseStopped when one is another, or gone. Before every acknowledgement. 2 us."""
        if not self._directory_watch.may_have_changed():
            return
        for suffix, expected in self._expected.items():
            if (found := self._find(suffix)) != expected:
                how = "removed" if found is None else "replaced"
                reason = (
                    f"{self._path.name}{suffix} was {how} by another program while the database was open, so its last "
                    f"commits may be lost (it must not be opened, copied or deleted while a process has it open)"
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
    """Open the present `-shm`. While nobody here guarded the database it may have got a new one."""
    if held.shm_fd is not None:
        kept, present = os.fstat(held.shm_fd), os.stat(path)
        if (kept.st_dev, kept.st_ino) == (present.st_dev, present.st_ino):
            return
        fork_safety.close_private(held.shm_fd)
        held.shm_fd = None
    held.shm_fd = _open(path)


def _lock(held: _GuardDescriptors, shm: Path) -> bool:
    """Take both locks; False where the kernel knows the request by name only (some sandboxes)."""
    try:
        # In this order: with the first one held nobody removes -shm any more, so it is the present one.
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
    """Close the pairs that no handle counts on and whose database nobody else of this process has open."""
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
        with contextlib.suppress(OSError):  # the listing's own descriptor, and what other threads close
            status = os.fstat(int(name))
            found.append((status.st_dev, status.st_ino))
    return found


def _begin_anew() -> None:
    _registry.clear()


fork_safety.when_forked(_begin_anew)
