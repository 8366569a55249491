"""A database in memory with the same promises, on asyncio and trio, for tests, simulations and small tools.

Functions run inline on one `:memory:` connection. Scheduling points before and after each call let other tasks run
where the file form would let them run, and the first task to continue runs all waiting functions in one batch. So races
and deaths around COMMIT show. Source: architecture.md section 1, `open_memory`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeVar

import anyio

from eventproc.store.clock import Clock, SystemClock, new_id
from eventproc.store.database.commit_batch import BatchCommitter, Job, JobQueue
from eventproc.store.database.database import Database, Durability, cancellation_returns
from eventproc.store.database.migrate import Migration, check_numbers, migrate
from eventproc.store.database.tx import Tx
from eventproc.store.faults import NO_FAULTS, Faults
from eventproc.store.model.errors import Closed

T = TypeVar("T")

PATH = ":memory:"


def start_memory_database(
    *, migrations: Sequence[Migration], clock: Clock | None = None, faults: Faults = NO_FAULTS
) -> Database:
    """Open an empty database that exists until `close`."""
    check_numbers(migrations)
    clock = SystemClock() if clock is None else clock
    connection = sqlite3.connect(PATH, isolation_level=None, cached_statements=512, check_same_thread=False)
    try:
        migrate(connection, path=PATH, migrations=migrations, durability=Durability.OS, clock=clock)
        return MemoryDatabase(connection, clock=clock, faults=faults)
    except BaseException:
        connection.close()
        raise


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
    """See `start_memory_database`."""

    def __init__(self, connection: sqlite3.Connection, *, clock: Clock, faults: Faults) -> None:
        super().__init__(
            path=None, clock=clock, faults=faults, durability=Durability.OS, instance_id=new_id(clock)
        )
        self._connection = connection
        self._writer = BatchCommitter(connection, clock=clock, faults=faults, path=PATH, shared=self.shared)
        self._queue: JobQueue = JobQueue()

    async def write(self, fn: Callable[[Tx], T], *, size_bytes: int = 0, timeout_ms: int | None = None) -> T:
        """See `Database.write`. There is no lock to wait for, so `timeout_ms` has no effect."""
        self._check_open()
        job = Job(fn, size_bytes)
        self._queue.append(job)
        try:
            await anyio.lowlevel.checkpoint()
        except anyio.get_cancelled_exc_class():
            if not job.done:
                self._queue.remove(job)
                raise
            if not cancellation_returns():
                raise
        while not job.done:
            self._check_open()
            self._run_batch()
        await anyio.lowlevel.cancel_shielded_checkpoint()
        return job.result()

    async def read(self, fn: Callable[[Tx], T]) -> T:
        """See `Database.read`."""
        self._check_open()
        await anyio.lowlevel.checkpoint()
        self._check_open()
        self._connection.execute("PRAGMA query_only = 1")
        self._connection.execute("BEGIN")
        try:
            result = fn(Tx(self._connection, self.clock))
        finally:
            self._connection.execute("ROLLBACK")
            self._connection.execute("PRAGMA query_only = 0")
        await anyio.lowlevel.cancel_shielded_checkpoint()
        return result

    async def close(self) -> None:
        """See `Database.close`."""
        self._refuse(partial(Closed, what="the database"))
        self._connection.close()

    def _run_batch(self) -> None:
        batch = self._writer.run_batch(self._queue)
        self._publish(batch)

    def _check_open(self) -> None:
        if self._refusal is not None:
            raise self._refusal()
