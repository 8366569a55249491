"""What openings of one database in memory share: the connection, and the registry that stands for locks of files.

A store with several openings is one machine with several processes, inside one process: each opening can be killed and
suspended. A killed one reaches nothing any more, and its locks are free. A suspended one keeps its locks, and its calls
wait. docs/design/virtual-time.md says what is simulated by that, and what is not.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from eventproc.store.clock import Clock, SystemClock
from eventproc.store.database.database import Durability
from eventproc.store.database.heartbeat import Heartbeat, age_of
from eventproc.store.database.migrate import Migration, check_numbers, migrate
from eventproc.store.database.peers import Peers
from eventproc.store.database.shared_state import SharedState

PATH: Final = ":memory:"


class StoreOpening(Protocol):
    """One opening of a `MemoryStore`, as the store knows it."""

    @property
    def instance_id(self) -> str:
        """Identifies the opening."""
        ...

    @property
    def is_suspended(self) -> bool:
        """Whether its calls wait."""
        ...

    def notice_commit(self) -> None:
        """Learn that another opening committed something."""
        ...


class MemoryStore:
    """A database in memory, its openings, and the locks and heartbeats of these.

    live: the openings that are alive, by id, oldest first. opened: how many there have been. shared: objects that
    its openings use together.
    """

    def __init__(
        self,
        *,
        migrations: Sequence[Migration],
        clock: Clock | None = None,
        extra_turns: Callable[[], int] = lambda: 0,
        on_commit: Callable[[str, Sequence[str]], object] = lambda _opening, _steps: None,
    ) -> None:
        """Create an empty database, which exists until `close`.

        extra_turns: how many more scheduling points the next call of an opening passes before it reaches the database.
        on_commit: called after each commit with the id of its opening, and the names of its steps.
        """
        check_numbers(migrations)
        self.connection = sqlite3.connect(
            PATH, isolation_level=None, cached_statements=512, check_same_thread=False
        )
        self.extra_turns = extra_turns
        self._on_commit = on_commit
        self.shared = SharedState()
        self.live: dict[str, StoreOpening] = {}
        self.opened = 0
        self._locks: dict[str, MemoryLock] = {}
        self._beats: dict[str, Heartbeat] = {}
        try:
            migrate(
                self.connection,
                path=PATH,
                migrations=migrations,
                durability=Durability.OS,
                clock=SystemClock() if clock is None else clock,
            )
        except BaseException:
            self.connection.close()
            raise

    def close(self) -> None:
        """Discard the database. All its openings must have ended."""
        assert not self.live, f"{len(self.live)} openings are alive"
        self.connection.close()

    def join(self, opening: StoreOpening) -> None:
        """Count the opening as alive."""
        self.live[opening.instance_id] = opening
        self.opened += 1

    def leave(self, opening: StoreOpening) -> None:
        """Count the opening as dead, and release its locks. A second call does nothing."""
        self.live.pop(opening.instance_id, None)
        for name in [name for name, lock in self._locks.items() if lock.instance_id == opening.instance_id]:
            del self._locks[name]

    def notify(self, committed: StoreOpening, steps: Sequence[str]) -> None:
        """Let the other openings notice a commit. steps: names of what was committed."""
        self._on_commit(committed.instance_id, steps)
        for each in list(self.live.values()):
            if each is not committed:
                each.notice_commit()

    def can_act(self, instance_id: str) -> bool:
        """Return whether that opening is neither dead nor suspended."""
        opening = self.live.get(instance_id)
        return opening is not None and not opening.is_suspended

    def take_lock(self, lock: MemoryLock) -> bool:
        """Give `lock` its name, if that is free and its opening can act; return whether it has the name now."""
        if self.can_act(lock.instance_id):
            self._locks.setdefault(lock.name, lock)
        return self._locks.get(lock.name) is lock

    def drop_lock(self, lock: MemoryLock) -> None:
        """Take its name from `lock`, if it has it."""
        if self._locks.get(lock.name) is lock:
            del self._locks[lock.name]

    def holds(self, lock: MemoryLock) -> bool:
        """Return whether `lock` has its name."""
        return self._locks.get(lock.name) is lock

    def write_beat(self, name: str, instance_id: str, beat: Heartbeat) -> None:
        """Replace the heartbeat `name`, if the opening can act."""
        if self.can_act(instance_id):
            self._beats[name] = beat

    def read_beat(self, name: str) -> Heartbeat | None:
        """Return the last heartbeat `name`, None if there is none."""
        return self._beats.get(name)


class MemoryLock:
    """A lock of an opening in memory; see `PeerLock`."""

    def __init__(self, store: MemoryStore, name: str, instance_id: str) -> None:
        self.name = name
        self.instance_id = instance_id
        self._store = store

    @property
    def held(self) -> bool:
        """See `PeerLock.held`."""
        return self._store.holds(self)

    def try_acquire(self) -> bool:
        """See `PeerLock.try_acquire`."""
        return self._store.take_lock(self)

    def release(self) -> None:
        """See `PeerLock.release`."""
        self._store.drop_lock(self)

    def close(self) -> None:
        """See `PeerLock.close`."""
        self.release()


class MemoryHeartbeat:
    """A heartbeat in memory; see `PeerHeartbeat`."""

    def __init__(self, store: MemoryStore, name: str, instance_id: str, clock: Clock) -> None:
        self._store = store
        self._name = name
        self._instance_id = instance_id
        self._clock = clock

    def write(self, owner_epoch: int) -> None:
        """See `PeerHeartbeat.write`."""
        beat = Heartbeat(owner_epoch, self._clock.monotonic_ms(), self._clock.boot_id)
        self._store.write_beat(self._name, self._instance_id, beat)

    def read(self) -> Heartbeat | None:
        """See `PeerHeartbeat.read`."""
        return self._store.read_beat(self._name)

    def age_ms(self) -> int | None:
        """See `PeerHeartbeat.age_ms`."""
        return age_of(self.read(), self._clock)


class MemoryPeers(Peers):
    """The openings of one `MemoryStore`."""

    def __init__(self, store: MemoryStore, instance_id: str, clock: Clock) -> None:
        self._store = store
        self._instance_id = instance_id
        self._clock = clock

    @property
    def alone(self) -> bool:
        """See `Peers.alone`."""
        return self._store.opened <= 1

    def is_alive(self, instance_id: str) -> bool:
        """See `Peers.is_alive`."""
        return instance_id in self._store.live

    def live(self) -> list[str]:
        """See `Peers.live`."""
        return list(self._store.live)

    def pid_of(self, instance_id: str) -> int | None:
        """See `Peers.pid_of`. Openings in memory have no process of their own."""
        return None

    def try_lock(self, name: str) -> MemoryLock:
        """See `Peers.try_lock`."""
        return MemoryLock(self._store, name, self._instance_id)

    def beat(self, name: str) -> MemoryHeartbeat:
        """See `Peers.beat`."""
        return MemoryHeartbeat(self._store, name, self._instance_id, self._clock)

    def beat_of(self, instance_id: str) -> MemoryHeartbeat:
        """See `Peers.beat_of`."""
        return self.beat(f"instances/{instance_id}")
