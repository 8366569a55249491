"""Detects commits of other processes and wakes the subscriptions on what they changed.

A byte in this instance's FIFO says that something was committed; reading `PRAGMA data_version` once a second finds
commits whose notification was lost. Either leads to one read that runs the probes of all watches. While it runs,
further notifications lead to one more read.
Source: architecture.md section 1, "Notification"; reference pitfalls.md S2.23.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Hashable

from eventproc.store.database import notifier
from eventproc.store.database.commit_batch import Job
from eventproc.store.database.reader_pool import ReaderPool
from eventproc.store.database.subscriptions import Subscriptions, Watch, run_probes
from eventproc.store.database.tx import Tx

LOG = logging.getLogger(__name__)


class CommitListener:
    """Listens for the commits of other processes to one database. All methods run on the event loop and do not wait."""

    def __init__(
        self, *, fifo_fd: int, subscriptions: Subscriptions, readers: ReaderPool, poll_ms: int
    ) -> None:
        """poll_ms: pause between two reads of data_version."""
        self._fifo_fd = fifo_fd
        self._subscriptions = subscriptions
        self._readers = readers
        self._poll_s = poll_ms / 1000
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._reading = False
        self._notified = False
        self._versions: dict[sqlite3.Connection, int] = {}

    def start(self) -> None:
        """Start listening."""
        self._loop.add_reader(self._fifo_fd, self._on_notification)
        self._timer = self._loop.call_later(self._poll_s, self._on_timer)

    def stop(self) -> None:
        """Stop listening. The result of a running read is ignored."""
        self._loop.remove_reader(self._fifo_fd)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_notification(self) -> None:
        notifier.drain(self._fifo_fd)
        self._read_changes(certain=True)

    def _on_timer(self) -> None:
        self._timer = self._loop.call_later(self._poll_s, self._on_timer)
        self._read_changes(certain=False)

    def _read_changes(self, *, certain: bool) -> None:
        """Run the probes. Unless a change is `certain`, run them only if data_version has changed."""
        watches = self._subscriptions.watches
        if self._reading:
            self._notified = self._notified or certain
        elif watches:
            self._reading = True

            def fn(tx: Tx) -> dict[Watch, Hashable]:
                changed = self._version_changed(tx)
                return run_probes(watches, tx) if certain or changed else {}

            job = Job(fn, 0)
            self._readers.submit(job, lambda: self._on_result(job))

    def _version_changed(self, tx: Tx) -> bool:
        # Only a difference to the previous number of the same connection has a meaning.
        (version,) = tx.execute("PRAGMA data_version").fetchone()
        before = self._versions.get(tx.connection)
        self._versions[tx.connection] = version
        return bool(before != version)

    def _on_result(self, job: Job[dict[Watch, Hashable]]) -> None:
        self._reading = False
        if self._timer is None:
            return
        try:
            self._subscriptions.compare(job.result())
        except Exception:
            LOG.warning(
                "failed to read what other processes changed; the next attempt follows in a second",
                exc_info=True,
            )
        if self._notified:
            self._notified = False
            self._read_changes(certain=True)
