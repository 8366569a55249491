"""Who is alive: every open handle on a directory holds flock on a file of its own, and the kernel knows.

`instances/<id>.lock` is created under another name, locked, and only then renamed into place, so that whoever
sees it sees it locked as long as its owner lives. The kernel drops the lock at death, whatever the death:
death is known at once and never wrongly (architecture.md section 7). `instances/<id>.bell` is the FIFO that
wakes the instance (see `bell`); it exists before the lock file is seen.

Ids are never reused, so what is dead stays dead, and removing the files of a dead one needs no lock.
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
_UNBORN: Final = ".new"
_CREATE_ATTEMPTS_MAX: Final = 10


class Instance(fork_safety.ProcessBound):
    """This handle's sign of life.

    id: UUID version 7. fifo_fd: the reading end of its bell, non-blocking, for the event loop to watch.
    """

    def __init__(self, home: Path, instance_id: str, lock_fd: int, fifo_fd: int) -> None:
        super().__init__()
        self.id = instance_id
        self.fifo_fd = fifo_fd
        self._home = home
        self._lock_fd = lock_fd

    @classmethod
    def create(cls, directory: Path, clock: Clock) -> Self:
        """Become alive in `directory`, the one of the database; it must exist. Raises OSError. About 150 us."""
        home = directory / DIRECTORY
        home.mkdir(exist_ok=True)
        for _ in range(_CREATE_ATTEMPTS_MAX):
            # A sweep may take the unlocked file for the remains of a dead one, in the microseconds
            # between its creation and its lock: then it is gone, or locked by the sweep. Start again.
            with contextlib.suppress(BlockingIOError, FileNotFoundError):
                return cls._create(home, new_id(clock))
        raise FileNotFoundError(f"{home}: what is created there vanishes")

    @classmethod
    def _create(cls, home: Path, instance_id: str) -> Self:
        unborn, bell = home / (instance_id + _UNBORN), home / (instance_id + FIFO)
        descriptors: list[int] = []
        try:
            lock_fd = fork_safety.open_private(unborn, os.O_RDWR | os.O_CREAT | os.O_EXCL)
            descriptors.append(lock_fd)
            fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.write(lock_fd, b"%d\n" % os.getpid())
            os.mkfifo(bell, 0o644)
            # For reading and writing: so the FIFO always has a writer, and never shows an end of file.
            fifo_fd = fork_safety.open_private(bell, os.O_RDWR | os.O_NONBLOCK)
            descriptors.append(fifo_fd)
            unborn.rename(home / (instance_id + LOCK))
        except BaseException:
            for descriptor in descriptors:
                fork_safety.close_private(descriptor)
            bell.unlink(missing_ok=True)
            unborn.unlink(missing_ok=True)
            raise
        return cls(home, instance_id, lock_fd, fifo_fd)

    def close(self) -> None:
        """Be dead: remove the files and release the lock, in this order. In a forked child: nothing."""
        if self.forked:
            return
        _remove(self._home, self.id)
        fcntl.flock(self._lock_fd, fcntl.LOCK_UN)
        fork_safety.close_private(self.fifo_fd)
        fork_safety.close_private(self._lock_fd)


def is_alive(directory: Path, instance_id: str) -> bool:
    """Return whether that instance lives at this moment; a stopped process does. About 7 us."""
    return _is_locked(directory / DIRECTORY / (instance_id + LOCK))


def live(directory: Path) -> list[str]:
    """Return the ids of the instances that live at this moment, oldest first."""
    home = directory / DIRECTORY
    return [name for name in sorted(_ids(home, LOCK)) if _is_locked(home / (name + LOCK))]


def pid_of(directory: Path, instance_id: str) -> int | None:
    """Return the pid of an instance, dead or alive, or None when its file is gone. For people."""
    try:
        return int((directory / DIRECTORY / (instance_id + LOCK)).read_bytes())
    except (FileNotFoundError, ValueError):
        return None


def sweep(directory: Path) -> list[str]:
    """Remove what dead instances left, and return their ids. Safe beside itself, births and deaths."""
    home = directory / DIRECTORY
    dead: list[str] = []
    for name in sorted(_ids(home, LOCK) | _ids(home, FIFO) | _ids(home, _UNBORN)):
        # In the order of birth: looked at the other way round, a rename in between would hide both.
        if _is_stillborn(home / (name + _UNBORN)) and not _is_locked(home / (name + LOCK)):
            _remove(home, name)
            dead.append(name)
    return dead


def _is_stillborn(unborn: Path) -> bool:
    """Whether nobody is being born there. Takes it away while it is locked, so that nobody can be any more."""
    try:
        probe = os.open(unborn, os.O_RDONLY)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(probe, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    else:
        unborn.unlink(missing_ok=True)
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
        # A shared lock, so that two who look at the same moment do not take each other for its owner.
        fcntl.flock(probe, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(probe)


def _remove(home: Path, instance_id: str) -> None:
    for suffix in (FIFO, LOCK):
        (home / (instance_id + suffix)).unlink(missing_ok=True)
