"""A database in memory with the same promises, on asyncio and trio, for tests, simulations and small tools.

Functions run inline on one `:memory:` connection. Scheduling points before and after each call let other tasks run
where the file form would let them run, and the first task to continue runs all waiting functions in one batch. So races
and deaths around COMMIT show. Several openings may share one store (see `memory_store`). Source: architecture.md
section 1, `open_memory`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeVar

import anyio

from eventproc.store.clock import Clock, SystemClock, new_id
from eventproc.store.database.commit_batch import BatchCommitter, Job, JobQueue
from eventproc.store.database.database import Database, Durability, cancellation_returns
from eventproc.store.database.memory_store import PATH, MemoryPeers, MemoryStore
from eventproc.store.database.migrate import Migration
from eventproc.store.database.shared_state import ReadState, SharedState
from eventproc.store.database.subscriptions import run_probes
from eventproc.store.database.tx import Tx
from eventproc.store.faults import NO_FAULTS, Died, Faults, Step
from eventproc.store.model.errors import Closed

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
            store.connection, clock=clock, faults=faults, path=PATH, shared=self.shared
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
    ) -> T:
        """See `Database.write`. There is no lock to wait for, so `timeout_ms` has no effect."""
        self._check_open()
        named = step if self.faults is not NO_FAULTS else None
        if named is not None:
            await self._reach_begun(named)
            self._check_open()
        job = Job(fn, size_bytes, step)
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
