"""Connections to SQLite on threads of their own, the readers among them, and the way of results to the event loop.

This is the only module that uses aiosqlite. aiosqlite provides the thread and its queue. This module adds two things.
The thread is a daemon, so that a program that crashes before it closes its database still exits. And a function can be
posted without a future, because the results of a batch return to the event loop in one callback instead of one per
caller.

`LoopCallbacks` runs functions on the event loop on behalf of these threads. It replaces asyncio's
`call_soon_threadsafe`, which creates a handle and a copy of the context per call and drains its socket with two system
calls. A thread that has just waited for a disk pays twice for each of them, because its core is cold. An awaited write
takes 30 us less through this pipe.

A caller that expects a function within a fraction of a millisecond lets the event loop wait for it in naps (`wait`). A
sleeping event loop costs 50 us more: its core goes to sleep, too, or to another process.

Reads wait in one queue, so a long read delays no other one while a connection is idle. Each read runs between BEGIN and
ROLLBACK: a snapshot that outlived its function would keep the log from being reused. Source: architecture.md section 1,
"Driver"; reference pitfalls.md S2.20, S2.22 and S2.23.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext, suppress
from contextvars import Context
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any, Final, Generic, Protocol, Self, TypeVar, cast

import aiosqlite

from eventproc.base.clock import Clock
from eventproc.store.database.commit_batch import CommitJob
from eventproc.store.database.database import Durability
from eventproc.store.database.files import BUSY_MS
from eventproc.store.database.locks import ForkBlocker
from eventproc.store.database.tx import ReadState, SharedState, Tx
from eventproc.store.model.errors import Closed

T = TypeVar("T")

PAGE_BYTES: Final = 16384
"""Page size, fixed when the file is created. 16384 reads and checkpoints large events faster; 4096 commits small
changes faster."""

WRITER_CACHE_KIB: Final = 8 * 1024
"""Page cache of the writer. A transaction that changes more pages writes some of them to the log early, and reads them
again: with SQLite's own 2 MiB, half of the time under the write lock of a step that moves 1 MiB was spent so. Higher:
memory, kept until the end; lower: longer holds of the lock."""

STATEMENTS_MAX: Final = 512
"""Prepared statements kept by a connection; more than the library uses."""


class Closable(Protocol):
    """What can be closed."""

    def close(self) -> None:
        """Release it."""
        ...


C = TypeVar("C", bound=Closable)
"""What the functions of a thread use: a connection, of SQLite or another engine."""

C_contra = TypeVar("C_contra", contravariant=True)


class ThreadConnection(aiosqlite.Connection, Generic[C]):
    """A connection that runs functions on its own daemon thread, one after the other."""

    def __init__(self, connector: Callable[[], C]) -> None:
        super().__init__(cast("Callable[[], sqlite3.Connection]", connector), iter_chunk_size=64)
        self._thread.daemon = True
        self.busy: Final = ForkBlocker()
        """The thread holds it while it is inside SQLite and not waiting for a lock. Forks wait for it."""

    @classmethod
    async def start(cls, connector: Callable[[], C]) -> Self:
        """Start the thread and open the connection on it."""
        connection = cls(connector)
        await connection
        return connection

    @property
    def raw(self) -> C:
        """The connection itself, for use on its thread."""
        return cast("C", self._conn)

    def post(self, function: Callable[[], object]) -> None:
        """Run `function` on the thread. It reports its result itself and must not raise. Callable from any thread."""
        self._tx.put_nowait((None, function))

    async def call(self, function: Callable[[C], T]) -> T:
        """Run `function` on the thread and return its result. For opening and closing, not for the hot path."""
        return cast("T", await self._execute(function, self._conn))  # type: ignore[no-untyped-call]

    async def close(self) -> None:
        """Close the connection after the functions posted before, and end the thread. A second call does nothing."""
        await super().close()
        self.join()

    def close_without_loop(self) -> None:
        """Do as `close` does, and block. Call it on a thread without an event loop.

        `close` reports to its event loop, which may be closed before the functions posted before have run.
        """
        self.stop()
        self.join()

    def join(self) -> None:
        """Wait for the end of the thread. Call it after `close`."""
        if self._thread.is_alive():
            self._thread.join()


async def open_reader(db_path: Path) -> ThreadConnection[sqlite3.Connection]:
    """Open a read-only connection to a database in WAL mode."""

    def connector() -> sqlite3.Connection:
        with ExitStack() as undo:
            connection = connect(db_path)
            undo.callback(connection.close)
            connection.execute("PRAGMA query_only = 1")
            connection.execute("PRAGMA schema_version")  # opens all files now, or fails now
            undo.pop_all()
        return connection

    return await ThreadConnection.start(connector)


def connect(db_path: Path) -> sqlite3.Connection:
    """Open the file with the settings of every connection."""
    connection = sqlite3.connect(
        db_path,
        timeout=BUSY_MS / 1000,
        isolation_level=None,  # only this library begins and ends transactions
        cached_statements=STATEMENTS_MAX,
        check_same_thread=False,  # other threads read its counters
    )
    connection.execute("PRAGMA mmap_size = 0")  # a truncated file would be a SIGBUS, not an error
    connection.execute("PRAGMA fullfsync = 1")  # only macOS knows the difference, see `kernel.sync`
    return connection


def prepare_file(connection: sqlite3.Connection) -> None:
    """Set the permanent settings of a new file, before its tables are created."""
    connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")


def use_wal(connection: sqlite3.Connection) -> None:
    """Set WAL mode, after the tables were created: so the file alone has them from the beginning."""
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    assert mode == "wal", f"journal mode is {mode}"


def prepare_writer(connection: sqlite3.Connection, durability: Durability) -> None:
    """Set the durability of commits, and disable checkpoints inside a commit (`checkpoint.py` runs them)."""
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    connection.execute(f"PRAGMA cache_size = -{WRITER_CACHE_KIB}")
    connection.execute(f"PRAGMA synchronous = {'FULL' if durability is Durability.FSYNC else 'NORMAL'}")


LOG = logging.getLogger(__name__)

_PIPE_BYTES: Final = 65536
"""Capacity of a pipe on Linux; one read of this size empties it."""

NAP_S: Final = 1e-6
"""Length of a nap, in s. The kernel adds about 50 us, before which a virtual core does not go to sleep. Higher: results
are noticed later; lower: no difference."""


NAPS_S: Final = 300e-6
"""How long before the expected end of a wait the naps begin, in s: the length of a wait for a small write. Before that
the thread runs Python, and a nap that ends takes the interpreter from it: 40 us of a transaction over four segments.
Higher: more of that; lower: what takes less time than the wait before is noticed later."""

LONGER_S: Final = 20e-6
"""By how much a wait may be expected to take longer than the one before, in s, so that one slow sync does not delay the
waits after it."""


class LoopCallbacks:
    """Functions that threads want to run on the event loop in which this object was created."""

    def __init__(self) -> None:
        self._calls: deque[Callable[[], None]] = deque()
        self._waits = False
        self._expected_s = 0.0  # length of a wait
        self._nap = Lock()
        self._nap.acquire()  # and never released, so that to wait for it is a nap
        self._context = (
            Context()
        )  # empty: the context variables of one caller must not leak into another's callbacks
        self._loop = asyncio.get_running_loop()
        self._read_fd, self._write_fd = os.pipe()
        os.set_blocking(self._read_fd, False)
        os.set_blocking(self._write_fd, False)
        self._context.run(self._loop.add_reader, self._read_fd, self._run)

    def call(self, function: Callable[[], None]) -> None:
        """Run `function` on the event loop, after the ones added before. Callable from any thread.

        If the loop was closed, the function never runs.
        """
        self._calls.append(function)
        if not self._waits:
            self._wake()

    def wait(self, timeout_s: float) -> bool:
        """Block the event loop until a function was added, at most `timeout_s`, and run it; return whether one was."""
        began = self._loop.time()
        until, rest_s = began + timeout_s, min(self._expected_s, timeout_s) - NAPS_S
        try:
            self._waits = True
            if rest_s > 0 and not self._calls:
                self._nap.acquire(timeout=rest_s)
            while not self._calls and self._loop.time() < until:
                self._nap.acquire(timeout=NAP_S)
            # Before the look at the functions: one that was added without a wake-up is found by it.
            self._waits = False
        except BaseException:  # interrupted, as by Ctrl-C: what was added without a wake-up still runs
            self._waits = False
            if self._calls:
                self._wake()
            raise
        self._expected_s = min(self._loop.time() - began, self._expected_s + LONGER_S)
        if not self._calls:
            return False
        self._context.run(self._run_all)
        return True

    def close(self) -> None:
        """Run the remaining functions and close the pipe. Call it on the event loop, after the last `call`."""
        self._loop.remove_reader(self._read_fd)
        self._run()
        self.abandon()

    def abandon(self) -> None:
        """Close the pipe after the loop was closed."""
        os.close(self._read_fd)
        os.close(self._write_fd)

    def _run(self) -> None:
        # The pipe is drained first: a function added after the loop below writes to the pipe again.
        with suppress(BlockingIOError):
            os.read(self._read_fd, _PIPE_BYTES)
        self._run_all()

    def _run_all(self) -> None:
        try:
            while self._calls:
                function = self._calls.popleft()
                try:
                    function()
                except Exception:
                    LOG.exception("a call from a thread to the event loop failed")
        finally:
            if self._calls:  # one was interrupted, as by Ctrl-C: the others still run
                self._wake()

    def _wake(self) -> None:
        with suppress(BlockingIOError):  # full: the loop wakes up anyway
            os.write(self._write_fd, b"\0")


READERS_COUNT: Final = 2
"""Connections for reads. More connections let more reads wait for the disk at the same time."""


class ReadOne(Protocol[C_contra]):
    """How a reading connection runs a function on one snapshot of the database."""

    def __call__(self, connection: C_contra, fn: Callable[[Tx], T], clock: Clock, shared: SharedState) -> T:
        """Run it. shared: the objects of the opening. Raises what `fn` raises, or errors of this library."""
        ...


class ReaderPool(Generic[C]):
    """The pool of reading connections. shared: the objects of the opening."""

    def __init__(
        self,
        connections: Sequence[ThreadConnection[C]],
        read_one: ReadOne[C],
        *,
        clock: Clock,
        callbacks: LoopCallbacks,
        translate: Callable[[Exception], Exception],
        shared: SharedState,
        forks_wait: bool = True,
    ) -> None:
        """translate: makes errors of this library from those of the engine. forks_wait: for the end of reads."""
        self._forks_wait = forks_wait
        self._connections = connections
        self._idle = list(connections)
        self._waiting: deque[tuple[CommitJob[Any], Callable[[], None]]] = deque()
        self._clock = clock
        self._callbacks = callbacks
        self._read_one = read_one
        self._translate = translate
        self.shared = shared
        self._loop = asyncio.get_running_loop()

    async def read(self, fn: Callable[[Tx], T]) -> T:
        """See `Database.read`. A cancelled caller returns immediately, even from a running read."""
        job = CommitJob(fn, 0)
        future: asyncio.Future[None] = self._loop.create_future()
        entry = self.submit(job, partial(_resolve, future))
        try:
            await future
        except asyncio.CancelledError:
            with suppress(ValueError):  # a connection has it
                self._waiting.remove(entry)
            raise
        return job.result()

    def submit(
        self, job: CommitJob[T], notify: Callable[[], None]
    ) -> tuple[CommitJob[T], Callable[[], None]]:
        """Run `job` on one snapshot, then `notify()` on the event loop. Return its entry in the queue."""
        entry = (job, notify)
        self._waiting.append(entry)
        self._start()
        return entry

    async def close(self) -> None:
        """Close the connections after the running reads. Waiting reads fail with Closed."""
        while (entry := self._next()) is not None:
            job, notify = entry
            job.error, job.done = Closed(what="the database"), True
            notify()
        for connection in self._connections:
            await connection.close()

    def _start(self) -> None:
        for _ in range(min(len(self._idle), len(self._waiting))):
            connection = self._idle.pop()
            connection.post(partial(self._run, connection))

    def _run(self, connection: ThreadConnection[C]) -> None:
        """Run reads until none waits: the event loop, which may be busy, is not asked for the next one.

        Runs on the connection's thread.
        """
        finished: list[Callable[[], None]] = []
        while (entry := self._next()) is not None:
            job, notify = entry
            self._run_one(connection, job)
            if not self._waiting:  # mostly there is one read, and so one wake-up
                finished.append(notify)
                break
            self._callbacks.call(notify)
        self._callbacks.call(partial(self._finish, connection, finished))

    def _next(self) -> tuple[CommitJob[Any], Callable[[], None]] | None:
        """Return the read that waits for longest, for this thread alone; None if none waits."""
        try:
            return self._waiting.popleft()
        except IndexError:
            return None

    def _run_one(self, connection: ThreadConnection[C], job: CommitJob[Any]) -> None:
        try:
            with connection.busy if self._forks_wait else nullcontext():
                job.value = self._read_one(connection.raw, job.fn, self._clock, self.shared)
        except Exception as why:
            job.error = self._translate(why)
        except BaseException as why:
            job.error = why
        job.done = True

    def _finish(self, connection: ThreadConnection[C], finished: Sequence[Callable[[], None]]) -> None:
        self._idle.append(connection)
        self._start()
        for notify in finished:
            notify()


def snapshot(connection: sqlite3.Connection, fn: Callable[[Tx], T], clock: Clock, shared: SharedState) -> T:
    """Run `fn` on one snapshot of the database. shared: the objects of the opening."""
    connection.execute("BEGIN")
    try:
        return fn(Tx(connection, clock, ReadState(shared), snapshot=True))
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
