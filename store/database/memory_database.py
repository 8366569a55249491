"""A database in memory with the same promises, on asyncio and trio, for tests, simulations and small tools.

A store with several openings is one machine with several processes, inside one process: each opening can be killed and
suspended. A killed one reaches nothing any more, and its locks are free. A suspended one keeps its locks, and its calls
wait. docs/design/virtual-time.md says what is simulated by that, and what is not.

Functions run inline on one `:memory:` connection. Scheduling points before and after each call let other tasks run
where the file form would let them run, and the first task to continue runs all waiting functions in one batch. So races
and deaths around COMMIT show. Source: architecture.md section 1, `open_memory`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Final, Protocol, TypeVar

import anyio

from eventproc.base.clock import Clock, SystemClock, new_id
from eventproc.store.database.commit_batch import BatchCommitter, CommitJob, JobQueue, SqliteWriter, Streams
from eventproc.store.database.database import Database, Durability, cancellation_returns, run_probes
from eventproc.store.database.instances import Heartbeat, PeerHeartbeat, PeerLock, Peers
from eventproc.store.database.migrate import Migration, check_numbers, migrate
from eventproc.store.database.tx import ReadState, SharedState, Tx
from eventproc.store.faults import NO_FAULTS, Died, Faults, Step
from eventproc.store.model.errors import Closed

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
    its openings use together. locks: those that are held, by name.
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
        self.locks: dict[str, MemoryLock] = {}
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
        for name in [name for name, lock in self.locks.items() if lock.instance_id == opening.instance_id]:
            del self.locks[name]

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

    def write_beat(self, name: str, instance_id: str, beat: Heartbeat) -> None:
        """Replace the heartbeat `name`, if the opening can act."""
        if self.can_act(instance_id):
            self._beats[name] = beat

    def read_beat(self, name: str) -> Heartbeat | None:
        """Return the last heartbeat `name`, None if there is none."""
        return self._beats.get(name)


class MemoryLock(PeerLock):
    """A lock of an opening in memory; see `PeerLock`."""

    def __init__(self, store: MemoryStore, name: str, instance_id: str) -> None:
        self.name = name
        self.instance_id = instance_id
        self._store = store

    @property
    def held(self) -> bool:
        """See `PeerLock.held`."""
        return self._store.locks.get(self.name) is self

    def try_acquire(self) -> bool:
        """See `PeerLock.try_acquire`."""
        if self._store.can_act(self.instance_id):
            self._store.locks.setdefault(self.name, self)
        return self.held

    def release(self) -> None:
        """See `PeerLock.release`."""
        if self.held:
            del self._store.locks[self.name]


class MemoryHeartbeat(PeerHeartbeat):
    """A heartbeat in memory; see `PeerHeartbeat`."""

    def __init__(self, store: MemoryStore, name: str, instance_id: str, clock: Clock) -> None:
        super().__init__(clock)
        self._store = store
        self._name = name
        self._instance_id = instance_id

    def write(self, owner_epoch: int) -> None:
        """See `PeerHeartbeat.write`."""
        beat = Heartbeat(owner_epoch, self._clock.monotonic_ms(), self._clock.boot_id)
        self._store.write_beat(self._name, self._instance_id, beat)

    def read(self) -> Heartbeat | None:
        """See `PeerHeartbeat.read`."""
        return self._store.read_beat(self._name)


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


T = TypeVar("T")


def start_memory_database(
    *,
    migrations: Sequence[Migration],
    clock: Clock | None = None,
    faults: Faults = NO_FAULTS,
    store: MemoryStore | None = None,
) -> MemoryDatabase:
    """Open a database that exists until `close`.

    store: what openings share; its creator closes it. None (default): an empty one of its own.
    """
    clock = SystemClock() if clock is None else clock
    if store is not None:
        return MemoryDatabase(store, clock=clock, faults=faults)
    store = MemoryStore(migrations=migrations, clock=clock)
    return MemoryDatabase(store, clock=clock, faults=faults, owns_store=True)


@asynccontextmanager
async def open_memory_database(
    *, migrations: Sequence[Migration], clock: Clock | None = None, faults: Faults = NO_FAULTS
) -> AsyncIterator[Database]:
    """Open an empty database that exists until the end of the block."""
    database = start_memory_database(migrations=migrations, clock=clock, faults=faults)
    try:
        yield database
    finally:
        await database.close()


class MemoryDatabase(Database):
    """One opening of a `MemoryStore`. See `start_memory_database`."""

    def __init__(self, store: MemoryStore, *, clock: Clock, faults: Faults, owns_store: bool = False) -> None:
        instance_id = new_id(clock)
        super().__init__(
            path=None,
            clock=clock,
            faults=faults,
            durability=Durability.OS,
            instance_id=instance_id,
            peers=MemoryPeers(store, instance_id, clock),
            shared=SharedState(store.shared),
        )
        self._store = store
        self._owns_store = owns_store
        self._connection = store.connection
        self._writer = BatchCommitter(
            SqliteWriter(store.connection, PATH), clock=clock, faults=faults, shared=self.shared
        )
        self._queue: JobQueue = JobQueue()
        self._killed = False
        self._suspended: anyio.Event | None = None  # set when it ends
        self._missed_commit = False
        store.join(self)

    async def write(
        self,
        fn: Callable[[Tx], T],
        *,
        size_bytes: int = 0,
        timeout_ms: int | None = None,
        brief: bool = False,
        step: Step | None = None,
        streams: Streams | None = None,
    ) -> T:
        """See `Database.write`. There is no lock to wait for, so `timeout_ms` has no effect."""
        self._check_open()
        named = step if self.faults is not NO_FAULTS else None
        if named is not None:
            await self._reach_begun(named)
            self._check_open()
        job = CommitJob(fn, size_bytes, step, streams)
        self._queue.append(job)
        try:
            await self._wait_turn()
        except anyio.get_cancelled_exc_class():
            if not job.done:
                self._queue.remove(job)
                raise
            if not cancellation_returns():
                raise
        while not job.done:
            self._check_open()
            self._run_batch()
        if named is not None and job.error is None:
            await self._delay_result(named)
        await self._deliver()
        return job.result()

    async def read(self, fn: Callable[[Tx], T]) -> T:
        """See `Database.read`."""
        self._check_open()
        await self._wait_turn()
        self._check_open()
        result = self._read(fn)
        await self._deliver()
        return result

    async def shorten(self) -> bool:
        """See `Database.shorten`. There is no file."""
        self._check_open()
        await anyio.lowlevel.checkpoint()
        return True

    async def close(self) -> None:
        """See `Database.close`."""
        if not self._killed:
            self._refuse(partial(Closed, what="the database"))
        self._store.leave(self)
        self.resume()
        if self._owns_store:
            self._store.connection.close()

    def kill(self) -> None:
        """Simulate the death of the process: every call, also one that waits, raises Died; the locks are free."""
        self._killed = True
        self._refuse(Died)
        self._store.leave(self)
        self.resume()

    @property
    def is_suspended(self) -> bool:
        """Whether its calls wait for `resume`."""
        return self._suspended is not None

    def suspend(self) -> None:
        """Simulate SIGSTOP: calls, and the results of calls that ran, wait for `resume`; locks stay locked."""
        if self._suspended is None and not self._killed:
            self._suspended = anyio.Event()

    def resume(self) -> None:
        """End the suspension. Does nothing if it is not suspended."""
        if self._suspended is not None:
            self._suspended.set()
            self._suspended = None
            if self._missed_commit and self._refusal is None:
                self._missed_commit = False
                self.notice_commit()

    def notice_commit(self) -> None:
        """Wake the subscriptions on what a commit of another opening changed."""
        if self._suspended is not None:
            self._missed_commit = True
        elif watches := self._subscriptions.watches:
            self._subscriptions.compare(self._read(partial(run_probes, watches)))

    async def _wait_turn(self) -> None:
        for _ in range(1 + self._store.extra_turns()):
            await anyio.lowlevel.checkpoint()
        while self._suspended is not None:
            await self._suspended.wait()

    async def _deliver(self) -> None:
        """Let the caller of a call that ran continue, unless this opening is suspended or dead."""
        await anyio.lowlevel.cancel_shielded_checkpoint()
        while self._suspended is not None:
            with anyio.CancelScope(shield=True):
                await self._suspended.wait()
        if self._killed:
            raise Died

    def _read(self, fn: Callable[[Tx], T]) -> T:
        self._connection.execute("PRAGMA query_only = 1")
        self._connection.execute("BEGIN")
        try:
            return fn(
                Tx(self._connection, self.clock, ReadState(self.shared, self._store.shared), snapshot=True)
            )
        finally:
            self._connection.execute("ROLLBACK")
            self._connection.execute("PRAGMA query_only = 0")

    def _run_batch(self) -> None:
        batch = self._writer.run_batch(self._queue)
        self._publish(batch)
        if batch.changed:
            self._store.notify(self, [job.step or "" for job in batch.jobs])

    def _check_open(self) -> None:
        if self._refusal is not None:
            raise self._refusal()
