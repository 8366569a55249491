"""The other openings of the same database: which are alive, and which does what only one may do.

In a directory the kernel answers: every opening holds an flock on a file of its own. In memory a registry answers (see
`memory_database`). Code above `store/database` does not know which.

`instances/<id>.lock` is created under another name, locked, and then renamed. So every process that sees the file sees
it locked as long as the instance lives. The kernel drops the lock at any death of the process: a death is visible
immediately, and a live instance is never taken for dead (architecture.md section 7). `instances/<id>.fifo` is the FIFO
that wakes the instance (see `wake_ups`); it exists before the lock file is visible. `instances/<id>.beat` is its
heartbeat, if it owns something that others could take over.

Ids are never reused, so removing the files of a dead instance needs no lock.

Heartbeats are small files that owners rewrite in place and never sync. The kernel releases the locks of a process when
it dies, so a death needs no heartbeat. A heartbeat detects an owner that is suspended or wedged while it holds its
lock: the host, and the instances that share buckets and containers. It is a file beside the database because a row
would cost an idle directory one synced transaction a second. Losing the file does no harm.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Final, Protocol, Self

import attrs

from eventproc.base.clock import Clock, new_id
from eventproc.store.database.locks import ProcessBound, TryLock, close_private, is_locked, open_private

DIRECTORY: Final = "instances"
LOCK: Final = ".lock"
FIFO: Final = ".fifo"
BEAT: Final = ".beat"
_UNFINISHED: Final = ".new"
_CREATE_ATTEMPTS_MAX: Final = 10


class Instance(ProcessBound):
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
            lock_fd = open_private(unfinished, os.O_RDWR | os.O_CREAT | os.O_EXCL)
            descriptors.append(lock_fd)
            fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.write(lock_fd, b"%d\n" % os.getpid())
            os.mkfifo(fifo, 0o644)
            # For reading and writing, so that the FIFO always has a writer and never reports an end of file.
            fifo_fd = open_private(fifo, os.O_RDWR | os.O_NONBLOCK)
            descriptors.append(fifo_fd)
            unfinished.rename(home / (instance_id + LOCK))
        except BaseException:
            for descriptor in descriptors:
                close_private(descriptor)
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
        close_private(self.fifo_fd)
        close_private(self._lock_fd)


def is_alive(directory: Path, instance_id: str) -> bool:
    """Return whether that instance is alive now; one of a stopped process is. About 7 us."""
    return is_locked(directory / DIRECTORY / (instance_id + LOCK))


def live_ids(directory: Path) -> list[str]:
    """Return the ids of the instances that are alive now, oldest first."""
    home = directory / DIRECTORY
    return [name for name in sorted(_ids(home, LOCK)) if is_locked(home / (name + LOCK))]


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
        if not is_locked(home / (name + _UNFINISHED), remove=True) and not is_locked(home / (name + LOCK)):
            _remove(home, name)
            dead.append(name)
    return dead


def _ids(home: Path, suffix: str) -> set[str]:
    try:
        return {name.removesuffix(suffix) for name in os.listdir(home) if name.endswith(suffix)}
    except FileNotFoundError:
        return set()


def _remove(home: Path, instance_id: str) -> None:
    for suffix in (FIFO, BEAT, LOCK):
        (home / (instance_id + suffix)).unlink(missing_ok=True)


LOG = logging.getLogger("eventproc.host")


@attrs.frozen
class Heartbeat:
    """The last heartbeat, and when it was written (monotonic ms of boot `boot_id`).

    owner_epoch: of the host that wrote it; 0 for other owners.
    """

    owner_epoch: int
    at_ms: int
    boot_id: str


class PeerHeartbeat(ABC):
    """The last heartbeat of the opening that does some work, readable by all."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    @abstractmethod
    def write(self, owner_epoch: int) -> None:
        """Write a heartbeat as the owner with this owner epoch. A failure is logged."""

    @abstractmethod
    def read(self) -> Heartbeat | None:
        """Return the last one, or None if there is none."""

    def age_ms(self) -> int | None:
        """Return the age of the last one, or None if there is none of this boot."""
        found = self.read()
        if found is None or found.boot_id != self._clock.boot_id:
            return None
        return self._clock.monotonic_ms() - found.at_ms


class HeartbeatFile(PeerHeartbeat):
    """The file `controller.beat` of a directory, or `instances/<id>.beat` of one of its instances."""

    def __init__(self, path: Path, clock: Clock) -> None:
        super().__init__(clock)
        self._path = path
        self._failed = False

    def write(self, owner_epoch: int) -> None:
        """Write a heartbeat: one small write to the page cache.

        A failure is logged once. A host without a heartbeat continues to serve until another instance finds pending
        work and takes over; another owner without one keeps what it owns until it dies.
        """
        text = f"{owner_epoch} {self._clock.monotonic_ms()} {self._clock.boot_id}\n"
        try:
            self._write(text)
        except OSError as error:
            if not self._failed:
                LOG.warning("cannot write the heartbeat to %s: %s", self._path, error)
            self._failed = True
        else:
            self._failed = False

    def _write(self, text: str) -> None:
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.pwrite(descriptor, text.encode().ljust(96), 0)
        finally:
            os.close(descriptor)

    def read(self) -> Heartbeat | None:
        """Return the last heartbeat, or None if there is none or it cannot be read."""
        try:
            epoch, at_ms, boot_id = self._path.read_text().split()
            return Heartbeat(int(epoch), int(at_ms), boot_id)
        except (OSError, ValueError):
            return None


class PeerLock(Protocol):
    """A lock that one opening holds and none waits for."""

    @property
    def held(self) -> bool:
        """Whether this opening holds it."""
        ...

    def try_acquire(self) -> bool:
        """Take the lock if it is free; return whether this opening holds it now."""
        ...

    def release(self) -> None:
        """Release the lock. Does nothing if it is not held."""
        ...

    def close(self) -> None:
        """Release the lock; it cannot be taken again."""
        self.release()


class Peers(ABC):
    """The openings of one database, this one included."""

    @property
    def alone(self) -> bool:
        """Whether the database never had another opening. Then no other can die, and no look at them is needed.

        Never known here: another process may come and go at any time.
        """
        return False

    @abstractmethod
    def is_alive(self, instance_id: str) -> bool:
        """Return whether that opening is alive now; a suspended one is. About 7 us in a directory."""

    @abstractmethod
    def live(self) -> list[str]:
        """Return the ids of the openings that are alive now, oldest first."""

    @abstractmethod
    def pid_of(self, instance_id: str) -> int | None:
        """Return the pid of an opening, dead or alive; None if it is not known. For display only."""

    @abstractmethod
    def try_lock(self, name: str) -> PeerLock:
        """Return a handle of the lock `name`, which the death of its holder releases. To be closed."""

    @abstractmethod
    def beat(self, name: str) -> PeerHeartbeat:
        """Return the heartbeat `name`."""

    def beat_of(self, instance_id: str) -> PeerHeartbeat:
        """Return the heartbeat of an opening, which ends with it."""
        return self.beat(f"{DIRECTORY}/{instance_id}")


class FilePeers(Peers):
    """The openings of a directory, in any process of the machine."""

    def __init__(self, directory: Path, clock: Clock) -> None:
        self._directory = directory
        self._clock = clock

    def is_alive(self, instance_id: str) -> bool:
        """See `Peers.is_alive`."""
        return is_alive(self._directory, instance_id)

    def live(self) -> list[str]:
        """See `Peers.live`."""
        return live_ids(self._directory)

    def pid_of(self, instance_id: str) -> int | None:
        """See `Peers.pid_of`."""
        return pid_of(self._directory, instance_id)

    def try_lock(self, name: str) -> TryLock:
        """See `Peers.try_lock`."""
        return TryLock(self._directory / f"{name}.lock")

    def beat(self, name: str) -> HeartbeatFile:
        """See `Peers.beat`."""
        return HeartbeatFile(self._directory / f"{name}.beat", self._clock)
