"""Liveness of instances: every open handle on a directory holds an flock on its own file.

`instances/<id>.lock` is created under another name, locked, and then renamed. So every process that sees the file sees
it locked as long as the instance lives. The kernel drops the lock at any death of the process: a death is visible
immediately, and a live instance is never taken for dead (architecture.md section 7). `instances/<id>.fifo` is the FIFO
that wakes the instance (see `notifier`); it exists before the lock file is visible. `instances/<id>.beat` is its
heartbeat, if it owns something that others could take over.

Ids are never reused, so removing the files of a dead instance needs no lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path
from typing import Final, Self

from eventproc.store.clock import Clock, new_id
from eventproc.store.database import fork_safety

DIRECTORY: Final = "instances"
LOCK: Final = ".lock"
FIFO: Final = ".fifo"
BEAT: Final = ".beat"
_UNFINISHED: Final = ".new"
_CREATE_ATTEMPTS_MAX: Final = 10


class Instance(fork_safety.ProcessBound):
    """One live instance: its lock and its FIFO.

    id: UUID version 7. fifo_fd: the reading end of the FIFO, non-blocking, for the event loop to watch.
    """

    def __init__(self, home: Path, instance_id: str, lock_fd: int, fifo_fd: int) -> None:
        super().__init__()
        self.id = instance_id
        self.fifo_fd = fifo_fd
        self._home = home
        self._lock_fd = lock_fd

    @classmethod
    def create(cls, directory: Path, clock: Clock) -> Self:
        """Register a new instance in `directory`, which must exist. Raises OSError. About 150 us."""
        home = directory / DIRECTORY
        home.mkdir(exist_ok=True)
        for _ in range(_CREATE_ATTEMPTS_MAX):
            # In the microseconds between creating and locking the file, `remove_dead` may take it for that of a
            # dead instance, and lock or remove it. Then try again with a new id.
            with contextlib.suppress(BlockingIOError, FileNotFoundError):
                return cls._create(home, new_id(clock))
        raise FileNotFoundError(f"{home}: another program removes the files that are created there")

    @classmethod
    def _create(cls, home: Path, instance_id: str) -> Self:
        unfinished, fifo = home / (instance_id + _UNFINISHED), home / (instance_id + FIFO)
        descriptors: list[int] = []
        try:
            lock_fd = fork_safety.open_private(unfinished, os.O_RDWR | os.O_CREAT | os.O_EXCL)
            descriptors.append(lock_fd)
            fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.write(lock_fd, b"%d\n" % os.getpid())
            os.mkfifo(fifo, 0o644)
            # For reading and writing, so that the FIFO always has a writer and never reports an end of file.
            fifo_fd = fork_safety.open_private(fifo, os.O_RDWR | os.O_NONBLOCK)
            descriptors.append(fifo_fd)
            unfinished.rename(home / (instance_id + LOCK))
        except BaseException:
            for descriptor in descriptors:
                fork_safety.close_private(descriptor)
            fifo.unlink(missing_ok=True)
            unfinished.unlink(missing_ok=True)
            raise
        return cls(home, instance_id, lock_fd, fifo_fd)

    def close(self) -> None:
        """Remove the files, then release the lock. Does nothing in a forked child."""
        if self.forked:
            return
        _remove(self._home, self.id)
        fcntl.flock(self._lock_fd, fcntl.LOCK_UN)
        fork_safety.close_private(self.fifo_fd)
        fork_safety.close_private(self._lock_fd)


def is_alive(directory: Path, instance_id: str) -> bool:
    """Return whether that instance is alive now; one of a stopped process is. About 7 us."""
    return _is_locked(directory / DIRECTORY / (instance_id + LOCK))


def live_ids(directory: Path) -> list[str]:
    """Return the ids of the instances that are alive now, oldest first."""
    home = directory / DIRECTORY
    return [name for name in sorted(_ids(home, LOCK)) if _is_locked(home / (name + LOCK))]


def beat_path(directory: Path, instance_id: str) -> Path:
    """Return where an instance writes its heartbeat."""
    return directory / DIRECTORY / (instance_id + BEAT)


def pid_of(directory: Path, instance_id: str) -> int | None:
    """Return the pid of an instance, dead or alive, or None if its file is gone. For display only."""
    try:
        return int((directory / DIRECTORY / (instance_id + LOCK)).read_bytes())
    except (FileNotFoundError, ValueError):
        return None


def remove_dead(directory: Path) -> list[str]:
    """Remove the files of dead instances and return their ids. Safe to run concurrently in many processes."""
    home = directory / DIRECTORY
    dead: list[str] = []
    for name in sorted(set().union(*(_ids(home, suffix) for suffix in (LOCK, FIFO, BEAT, _UNFINISHED)))):
        # In the order of creation: in the other order, a rename between the two checks would hide both files.
        if _is_abandoned(home / (name + _UNFINISHED)) and not _is_locked(home / (name + LOCK)):
            _remove(home, name)
            dead.append(name)
    return dead


def _is_abandoned(unfinished: Path) -> bool:
    """Return whether no instance is being created at `unfinished`. A leftover is removed while it is locked."""
    try:
        probe = os.open(unfinished, os.O_RDONLY)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(probe, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    else:
        unfinished.unlink(missing_ok=True)
        return True
    finally:
        os.close(probe)


def _ids(home: Path, suffix: str) -> set[str]:
    try:
        return {name.removesuffix(suffix) for name in os.listdir(home) if name.endswith(suffix)}
    except FileNotFoundError:
        return set()


def _is_locked(path: Path) -> bool:
    try:
        probe = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        # A shared lock, so that two simultaneous checks do not take each other for the owner.
        fcntl.flock(probe, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(probe)


def _remove(home: Path, instance_id: str) -> None:
    for suffix in (FIFO, BEAT, LOCK):
        (home / (instance_id + suffix)).unlink(missing_ok=True)
