"""The read path of the file form: a few read-only connections, each on its own thread.

Reads wait in one queue, so a long read delays no other one while a connection is idle. Each read runs between BEGIN and
ROLLBACK: a snapshot that outlived its function would keep the log from being reused.
Source: architecture.md section 1, "Driver"; reference pitfalls.md S2.20 and S2.23.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from eventproc.store.clock import Clock
from eventproc.store.database.commit_batch import Job
from eventproc.store.database.connection import ThreadConnection
from eventproc.store.database.loop_callbacks import LoopCallbacks
from eventproc.store.database.shared_state import ReadState, SharedState
from eventproc.store.database.sqlite_errors import translate_error
from eventproc.store.database.tx import Tx
from eventproc.store.model.errors import Closed

T = TypeVar("T")

READERS_COUNT: Final = 2
"""Connections for reads. More connections let more reads wait for the disk at the same time."""


class ReaderPool:
    """The pool of reading connections. shared: the objects of the opening."""

    def __init__(
        self,
        connections: Sequence[ThreadConnection],
        *,
        clock: Clock,
        callbacks: LoopCallbacks,
        path: str,
        shared: SharedState,
    ) -> None:
        self._connections = connections
        self._idle = list(connections)
        self._waiting: deque[tuple[Job[Any], Callable[[], None]]] = deque()
        self._clock = clock
        self._callbacks = callbacks
        self._path = path
        self.shared = shared
        self._loop = asyncio.get_running_loop()

    async def read(self, fn: Callable[[Tx], T]) -> T:
        """See `Database.read`. A cancelled caller returns immediately, even from a running read."""
        job = Job(fn, 0)
        future: asyncio.Future[None] = self._loop.create_future()
        entry = self.submit(job, partial(_resolve, future))
        try:
            await future
        except asyncio.CancelledError:
            with contextlib.suppress(ValueError):
                self._waiting.remove(entry)
            raise
        return job.result()

    def submit(self, job: Job[T], notify: Callable[[], None]) -> tuple[Job[T], Callable[[], None]]:
        """Run `job` on one snapshot, then `notify()` on the event loop. Return its entry in the queue."""
        entry = (job, notify)
        self._waiting.append(entry)
        self._start()
        return entry

    async def close(self) -> None:
        """Close the connections after the running reads. Waiting reads fail with Closed."""
        while self._waiting:
            job, notify = self._waiting.popleft()
            job.error, job.done = Closed(what="the database"), True
            notify()
        for connection in self._connections:
            await connection.close()

    def _start(self) -> None:
        while self._idle and self._waiting:
            job, notify = self._waiting.popleft()
            connection = self._idle.pop()
            connection.post(partial(self._run, connection, job, notify))

    def _run(self, connection: ThreadConnection, job: Job[Any], notify: Callable[[], None]) -> None:
        """Run one read. Runs on the connection's thread."""
        try:
            with connection.busy:
                job.value = snapshot(connection.raw, job.fn, self._clock, self.shared)
        except Exception as why:
            job.error = translate_error(why, self._path)
        except BaseException as why:
            job.error = why
        job.done = True
        self._callbacks.call(partial(self._finish, connection, notify))

    def _finish(self, connection: ThreadConnection, notify: Callable[[], None]) -> None:
        self._idle.append(connection)
        self._start()
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
