"""The tables of a store for coroutines, and for a snapshot that is open. pyiceberg is loaded when a table is used."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import anyio.from_thread
import anyio.to_thread

from eventproc.store.database import Database, Tx
from eventproc.store.model.errors import NotSupported

if TYPE_CHECKING:
    from eventproc.store.ingestion.iceberg import StoreTables

T = TypeVar("T")


async def on_tables(db: Database, work: Callable[[StoreTables], T]) -> T:
    """Run `work` with the tables of a store, in a thread.

    Raises NotSupported without the extra `tables`, and as `table_store`.
    """

    def run() -> T:
        try:
            from eventproc.store.ingestion.iceberg import open_tables  # pyiceberg is an extra
        except ImportError as why:
            remedy = 'pip install "eventproc[tables]"'
            raise NotSupported(what="tables without pyiceberg", remedy=remedy) from why
        return work(open_tables(_FromThread(db), db))

    return await anyio.to_thread.run_sync(run)


class _FromThread:
    """The transactions of a store, for a thread of its event loop."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def read(self, fn: Callable[[Tx], T]) -> T:
        return anyio.from_thread.run(self._db.read, fn)

    def write(self, fn: Callable[[Tx], T]) -> T:
        return anyio.from_thread.run(self._db.write, fn)


class OneSnapshot:
    """The reads of a snapshot that is open."""

    def __init__(self, tx: Tx) -> None:
        self._tx = tx

    def read(self, fn: Callable[[Tx], T]) -> T:
        """Run `fn` on it."""
        return fn(self._tx)

    def write(self, fn: Callable[[Tx], T]) -> T:
        """Never called: a snapshot is only read."""
        raise AssertionError("a snapshot is only read")
