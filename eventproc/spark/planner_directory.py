"""The store as Spark's planner opens it: an ordinary second process, which keeps holds on what its batches read.

Spark plans each query in a process of its own, without an event loop. The store is opened on a loop in a thread,
and only its database: importing all that streams and groups need would take a third of a second for each query.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from types import TracebackType
from typing import Final, TypeVar

import anyio

from eventproc.base.tasks import run_uninterrupted
from eventproc.blocking.loop import Loop, running_loop
from eventproc.store.address import StoreAddress, start_store
from eventproc.store.catalog import SYSTEM_MIGRATIONS
from eventproc.store.database import Database, Durability, Tx, verify_complete
from eventproc.store.faults import NO_FAULTS, Faults
from eventproc.store.file_store import FileStore
from eventproc.store.model.errors import EventprocError
from eventproc.store.segments.file_blobs import chunk_files
from eventproc.store.segments.holds import HOLD_MS, RENEW_MS, end_holds, renew_holds

LOG = logging.getLogger("eventproc.spark")

T = TypeVar("T")

HoldKey = tuple[int, str]
"""Identifies a hold: stream id and name."""

IDLE_MS: Final = 10_000
"""How long holds of a finished batch may stay. They end sooner if another batch follows, in its transaction."""


class PlannerDirectory:
    """The open store of the streams. Used in `with`, by one thread at a time."""

    def __init__(self, address: StoreAddress, *, hold_ms: int = HOLD_MS, faults: Faults = NO_FAULTS) -> None:
        self.address = address
        self._faults = faults
        self.hold_ms = hold_ms
        self._open = ExitStack()
        self._loop: Loop | None = None
        self._db: Database | None = None
        self._held: list[tuple[str, list[HoldKey]]] = []  # (batch, its holds), oldest first
        self._done: list[HoldKey] = []

    @classmethod
    def within(cls, loop: Loop, db: Database, address: StoreAddress, *, hold_ms: int) -> PlannerDirectory:
        """Return a view of a store that is open in this process, for one read. Leaving it closes nothing else."""
        found = cls(address, hold_ms=hold_ms)
        found._loop, found._db = loop, db
        return found

    def __enter__(self) -> PlannerDirectory:
        if self._db is not None:
            return self
        with ExitStack() as stack:
            self._loop = stack.enter_context(running_loop())
            self._db = self._loop.call(self._start, undo=_close)
            stack.callback(self._loop.call, _close, self._db)
            self._loop.call(self._db.read, partial(verify_complete, name=self._db.name))
            self._open = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, why: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    async def _start(self) -> Database:
        return await start_store(
            self.address, migrations=SYSTEM_MIGRATIONS, create=False, faults=self._faults
        )

    @property
    def db(self) -> Database:
        """The underlying database."""
        assert self._db is not None, "the directory is not open"
        return self._db

    @property
    def files(self) -> FileStore:
        """The chunk files. Costs a read."""
        return self.read(chunk_files)

    @property
    def synced(self) -> bool:
        """Whether written files must survive a power loss."""
        return self.db.durability is Durability.FSYNC

    def read(self, fn: Callable[[Tx], T]) -> T:
        """Run `fn` on a snapshot. Raises the errors of `fn`."""
        assert self._loop is not None, "the directory is not open"
        return self._loop.call(self.db.read, fn)

    def write(self, fn: Callable[[Tx], T]) -> T:
        """Run `fn` in a transaction. Raises the errors of `fn`, LockHeld, DiskFull."""
        assert self._loop is not None, "the directory is not open"
        return self._loop.call(self.db.write, fn)

    def keep_holds(self) -> None:
        """Renew the holds in the background from now on, and end those of finished batches."""
        assert self._loop is not None, "the directory is not open"
        task = self._loop.start_background(self._keep_holds)
        self._open.callback(task.cancel)

    def end_done(self, tx: Tx) -> None:
        """End the holds of finished batches within an existing transaction."""
        done = list(self._done)
        end_holds(tx, done)
        tx.after(lambda: self._forget(done))

    def note(self, batch: str, holds: Sequence[HoldKey]) -> None:
        """Remember the holds of a batch. batch: the text of its end position."""
        self._held.append((batch, list(holds)))

    def finish(self, batch: str) -> None:
        """Mark the batch and all batches before it as finished: their holds end soon. Ignores an unknown batch."""
        ends = [each for each, _ in self._held]
        if batch in ends:
            last = len(ends) - ends[::-1].index(batch)  # a batch may be planned again
            self._done += [hold for _, holds in self._held[:last] for hold in holds]
            self._held = self._held[last:]

    def end_batch(self, batch: str) -> None:
        """End the holds of the batch and of all batches before it, in a transaction. Raises the errors of a write."""
        self.finish(batch)
        if self._done:
            self.write(self.end_done)

    async def _keep_holds(self) -> None:
        renewed_ms = self.db.clock.monotonic_ms()
        while True:
            await anyio.sleep(IDLE_MS / 1000)
            now_ms = self.db.clock.monotonic_ms()
            due = now_ms - renewed_ms >= min(RENEW_MS, self.hold_ms // 3)
            if due or self._done:
                try:
                    await self.db.write(partial(self._end_and_renew, renew=due))
                    renewed_ms = now_ms if due else renewed_ms
                except EventprocError as why:
                    LOG.warning("holds could not be renewed and will be retried: %s", why)

    def _end_and_renew(self, tx: Tx, *, renew: bool) -> None:
        self.end_done(tx)
        if renew:
            live = [hold for _, holds in self._held for hold in holds]
            renew_holds(tx, live, until_ms=tx.now_ms + self.hold_ms)

    def _forget(self, done: Sequence[HoldKey]) -> None:
        self._done = [each for each in self._done if each not in done]


async def _close(db: Database) -> None:
    await run_uninterrupted(db.close)  # as a directory is closed
