"""The other openings of the same database: which are alive, and which does what only one may do.

In a directory the kernel answers: every opening holds an flock on its own file, and drops it at any death of its
process. In memory a registry answers (see `memory_store`). Code above `store/database` does not know which.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Protocol

from eventproc.store.clock import Clock
from eventproc.store.database import instances
from eventproc.store.database.heartbeat import Heartbeat, HeartbeatFile
from eventproc.store.database.locks import TryLock


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
        ...


class PeerHeartbeat(Protocol):
    """The last sign of life of the opening that does some work, readable by all."""

    def write(self, owner_epoch: int) -> None:
        """Give a sign of life as the owner with this owner epoch. A failure is logged."""
        ...

    def read(self) -> Heartbeat | None:
        """Return the last one, or None if there is none."""
        ...

    def age_ms(self) -> int | None:
        """Return the age of the last one, or None if there is none of this boot."""
        ...


class Peers(ABC):
    """The openings of one database, this one included."""

    @property
    @abstractmethod
    def alone(self) -> bool:
        """Whether the database never had another opening. Then no other can die, and no look at them is needed."""

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

    @abstractmethod
    def beat_of(self, instance_id: str) -> PeerHeartbeat:
        """Return the heartbeat of an opening, which ends with it."""


class FilePeers(Peers):
    """The openings of a directory, in any process of the machine."""

    def __init__(self, directory: Path, clock: Clock) -> None:
        self._directory = directory
        self._clock = clock

    @property
    def alone(self) -> bool:
        """See `Peers.alone`. Another process may come and go at any time."""
        return False

    def is_alive(self, instance_id: str) -> bool:
        """See `Peers.is_alive`."""
        return instances.is_alive(self._directory, instance_id)

    def live(self) -> list[str]:
        """See `Peers.live`."""
        return instances.live_ids(self._directory)

    def pid_of(self, instance_id: str) -> int | None:
        """See `Peers.pid_of`."""
        return instances.pid_of(self._directory, instance_id)

    def try_lock(self, name: str) -> TryLock:
        """See `Peers.try_lock`."""
        return TryLock(self._directory / f"{name}.lock")

    def beat(self, name: str) -> HeartbeatFile:
        """See `Peers.beat`."""
        return HeartbeatFile(self._directory / f"{name}.beat", self._clock)

    def beat_of(self, instance_id: str) -> HeartbeatFile:
        """See `Peers.beat_of`."""
        return HeartbeatFile(instances.beat_path(self._directory, instance_id), self._clock)
