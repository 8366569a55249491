"""What the forms of a database with threads have in common: a writer's thread, and readers on threads of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import anyio
import anyio.to_thread

from eventproc.store.database.commit_batch import Streams
from eventproc.store.database.connections import C, ReaderPool, ThreadConnection
from eventproc.store.database.database import Database
from eventproc.store.database.locks import ProcessBound
from eventproc.store.database.tx import DataNeeded, Tx
from eventproc.store.database.write_queue import WriteQueue
from eventproc.store.faults import NO_FAULTS, Step

T = TypeVar("T")
W = TypeVar("W", bound=WriteQueue)


class ThreadedDatabase(Database, Generic[C, W]):
    """A database whose functions run on threads. Subclasses set its attributes."""

    _connection: ThreadConnection[C]
    """The writer's."""
    _writer: W
    _readers: ReaderPool[C]
    _origin: ProcessBound

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
        """See `Database.write`."""
        self._check_usable()
        if self.faults is NO_FAULTS:
            step = None
        if step is not None:
            await self._reach_begun(step)
            self._check_usable()
        fetched: list[object] = []
        while True:
            try:
                result = await self._writer.write(
                    fn, size_bytes, timeout_ms, brief=brief, step=step, streams=streams
                )
            except DataNeeded as needed:
                fetched.append(await anyio.to_thread.run_sync(needed.fetch, abandon_on_cancel=True))
                self._check_usable()
                continue
            if step is not None:
                await self._delay_result(step)
            return result

    async def read(self, fn: Callable[[Tx], T]) -> T:
        """See `Database.read`."""
        fetched: list[object] = []
        while True:
            self._check_usable()
            try:
                return await self._readers.read(fn)
            except DataNeeded as needed:
                fetched.append(await anyio.to_thread.run_sync(needed.fetch, abandon_on_cancel=True))

    def _check_usable(self) -> None:
        if self._refusal is not None:
            raise self._refusal()
        self._origin.check_fork("the database")
