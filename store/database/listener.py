"""Hears of the commits of other processes and wakes who waits for what they changed.

The bell says that something was committed; a look at `PRAGMA data_version` once a second is the net for rings
that were lost. Either leads to one read that asks the probes of all watches. While it runs, further rings only
ask for one more. Source: architecture.md section 1, "Bell"; reference pitfalls.md S2.23.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Hashable
from typing import Final

from eventproc.store.database import notifier
from eventproc.store.database.commit_batch import Job
from eventproc.store.database.reader_pool import ReaderPool
from eventproc.store.database.subscriptions import Subscriptions, Watch, ask
from eventproc.store.database.tx import Tx

LOG = logging.getLogger(__name__)

NET_MS: Final = 1_000
"""Pause between two looks at data_version. Higher: a lost ring delays a waiter for longer; lower: idle CPU."""


class CommitListener:
    """One database's ear. All methods run on the event loop and do not wait."""

    def __init__(self, *, fifo_fd: int, subscriptions: Subscriptions, readers: ReaderPool) -> None:
        self._fifo_fd = fifo_fd
        self._subscriptions = subscriptions
        self._readers = readers
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._asking = False
        self._rung = False
        self._versions: dict[sqlite3.Connection, int] = {}

    def start(self) -> None:
        """Begin to listen."""
        self._loop.add_reader(self._fifo_fd, self._hear)
        self._timer = self._loop.call_later(NET_MS / 1000, self._look)

    def stop(self) -> None:
        """Stop listening; an answer on its way is ignored."""
        self._loop.remove_reader(self._fifo_fd)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _hear(self) -> None:
        notifier.drain(self._fifo_fd)
        self._ask(certain=True)

    def _look(self) -> None:
        self._timer = self._loop.call_later(NET_MS / 1000, self._look)
        self._ask(certain=False)

    def _ask(self, *, certain: bool) -> None:
        """Ask what changed; unless `certain` that something did, only if data_version says so."""
        watches = self._subscriptions.watches
        if self._asking:
            self._rung = self._rung or certain
        elif watches:
            self._asking = True

            def fn(tx: Tx) -> dict[Watch, Hashable]:
                changed = self._version_changed(tx)
                return ask(watches, tx) if certain or changed else {}

            job = Job(fn, 0)
            self._readers.submit(job, lambda: self._answered(job))

    def _version_changed(self, tx: Tx) -> bool:
        # The number means nothing but "another than before", and is each connection's own.
        (version,) = tx.execute("PRAGMA data_version").fetchone()
        before = self._versions.get(tx.connection)
        self._versions[tx.connection] = version
        return bool(before != version)

    def _answered(self, job: Job[dict[Watch, Hashable]]) -> None:
        self._asking = False
        if self._timer is None:
            return
        try:
            self._subscriptions.compare(job.result())
        except Exception:
            LOG.warning("could not ask what other processes changed; asked again in a second", exc_info=True)
        if self._rung:
            self._rung = False
            self._ask(certain=True)
