"""The write path to a server: batches under the lock of commits, and the outcome of a commit whose answer was lost.

A batch takes the advisory lock of commits first, so that all invariants hold as on SQLite, which has one writer: alone,
or shared and with a lock for each of its streams. Its last statement counts it in the row of this opening, in the same
trip as COMMIT. If the connection breaks during that trip, the outcome is unknown until another connection holds the
lock alone: then the old one has ended, and the row tells.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Final

import psycopg

from eventproc.store.database.commit_batch import (
    BatchCommitter,
    CommitBatch,
    Streams,
    Trouble,
    WriterConnection,
)
from eventproc.store.database.connections import LoopCallbacks, ThreadConnection
from eventproc.store.database.write_queue import WriteQueue
from eventproc.store.model.errors import DatabaseStopped, LockHeld, Retryable, Unreachable
from eventproc.store.postgres.address import COMMIT
from eventproc.store.postgres.clock import NOW_MS, ServerClock
from eventproc.store.postgres.connection import (
    PostgresConnection,
    one_line,
    translate,
    trouble_of,
    user_sql,
)

LOG = logging.getLogger(__name__)

_LOOK: Final = f"SELECT {NOW_MS}, array_agg(id), array_agg(batch) FROM opening"

_COUNT: Final = "UPDATE opening SET batch = $1, at_ms = $2 WHERE id = $3"

BATCH_MS_MAX: Final = 250
"""A batch takes no further function after this time, in ms; each statement is a trip. Higher: others wait longer for
the lock of all commits; lower: a busy opening commits more often than its functions need."""

WARN_MS: Final = 1_000
"""Waiting time for the server after which a warning says so, in ms."""


def verify_counts(before: Mapping[str, int], now: Mapping[str, int], name: str) -> None:
    """Raise DatabaseStopped if the count of an opening fell: what is known in memory may be of a lost commit."""
    if any(now.get(each, count) < count for each, count in before.items()):
        reason = (
            "the server has lost commits, as in a failover to a standby that did not have them, or in a crash if the"
            " durability is 'os'; open it again"
        )
        raise DatabaseStopped(path=name, reason=reason)


class PostgresWriter(WriterConnection):
    """The writer's connection to a server."""

    def __init__(
        self,
        connection: PostgresConnection,
        *,
        opening_id: str,
        clock: ServerClock,
        closing: threading.Event,
    ) -> None:
        """opening_id: the row that counts commits. closing: ends waiting."""
        self.path = connection.address.name
        self.connection = connection
        self.restrict = user_sql
        self.batch_ms_max = BATCH_MS_MAX
        self.is_concurrent = True
        self._pg = connection
        self._opening_id = opening_id
        self._clock = clock
        self._closing = closing
        self._found: dict[str, int] = {}  # commits of each opening, when this transaction began
        self._seen: dict[str, int] | None = None  # the same after the last batch; None: not known
        self._counts: dict[str, int] = {}  # the highest that are known to be committed
        self._now_ms = 0
        self._commit_key: Final = connection.address.lock_key(COMMIT)

    @property
    def has_others(self) -> bool:
        """Whether others were registered when the last batch began. One that registers later waits for its end."""
        return len(self._found) > 1

    @property
    def commits_count(self) -> int:
        """How often this opening has committed."""
        return self._counts.get(self._opening_id, 0)

    def begin(self, streams: Streams | None) -> None:
        """See `WriterConnection.begin`. Raises DatabaseStopped if the row of this opening, or a commit, is missing."""
        *_, (self._now_ms, ids, batches) = self._pg.run(f"BEGIN; {self._locks(streams)} {_LOOK}")
        self._clock.measure(self._now_ms)
        found: dict[str, int] = dict(zip(ids or (), batches or (), strict=True))
        try:
            verify_counts(self._counts, found, self.path)
            if self._opening_id not in found:  # its commits would not be counted
                reason = "it was not heard of for a day, or the server has lost it; open it again"
                raise DatabaseStopped(path=self.path, reason=reason)
        except DatabaseStopped:
            self._pg.run("ROLLBACK")
            raise
        self._found = self._counts = found

    def _locks(self, streams: Streams | None) -> str:
        """Return the statements that wait until no commit that is under way concerns these streams.

        Each process takes the lock of all commits first and those of streams in one order, so none waits in a circle.
        """
        if streams is None:
            return f"SELECT pg_advisory_xact_lock({self._commit_key});"
        keys = sorted(self._pg.address.lock_key(f"stream/{name}") for name in streams)
        locks = [f"SELECT pg_advisory_xact_lock({key});" for key in keys]
        return " ".join([f"SELECT pg_advisory_xact_lock_shared({self._commit_key});", *locks])

    def commit(self, changed: bool) -> None:
        """See `WriterConnection.commit`."""
        if not changed:
            self._pg.run("COMMIT")
            self._seen = self._found
            return
        number = self._found[self._opening_id] + 1
        try:
            self._pg.commit(_COUNT, (number, self._now_ms, self._opening_id))
        except psycopg.Error as why:
            if trouble_of(why) is not Trouble.LOST or not self._was_committed(number, why):
                raise
            self._seen = None
        else:
            self._seen = self._counts = {**self._found, self._opening_id: number}

    def _was_committed(self, number: int, why: psycopg.Error) -> bool:
        """Find out, on another connection, whether a batch was committed. Waits for the server.

        Raises DatabaseStopped if the opening is closed before, or the server refuses to tell.
        """
        LOG.warning(
            "%s: the connection broke in a commit (%s); asking for its outcome", self.path, one_line(why)
        )
        while self._pg.connect_until(self._closing):
            try:
                self.begin(None)  # alone: what the old connection still did has ended
                # The old commit may be waiting for a standby, for which this one waits too.
                self._pg.commit(
                    "UPDATE opening SET at_ms = $1 WHERE id = $2", (self._now_ms, self._opening_id)
                )
            except psycopg.Error as again:
                if trouble_of(again) is Trouble.LOST:
                    continue
                self._pg.close()  # otherwise the batch would run again, and it may have been committed
                reason = f"the outcome of a commit is not known ({one_line(again)}); open it again"
                raise DatabaseStopped(path=self.path, reason=reason) from again
            return self._found[self._opening_id] >= number
        raise DatabaseStopped(
            path=self.path, reason="closed before the outcome of a commit was known"
        ) from why

    def continues(self) -> bool:
        """See `WriterConnection.continues`."""
        return self._seen == self._found

    def schema_version(self) -> int:
        """See `WriterConnection.schema_version`. A connection to a server counts every change."""
        return 0

    def trouble_of(self, why: BaseException) -> Trouble | None:
        """See `WriterConnection.trouble_of`."""
        return trouble_of(why)

    def translate(self, why: Exception) -> Exception:
        """See `WriterConnection.translate`."""
        return translate(why, self.path)

    @property
    def is_failed(self) -> bool:
        """See `WriterConnection.is_failed`."""
        return self._pg.is_failed


class ServerWriter(WriteQueue):
    """Queue and thread of the writer to a server."""

    def __init__(
        self,
        connection: ThreadConnection[PostgresConnection],
        committer: BatchCommitter,
        *,
        clock: ServerClock,
        callbacks: LoopCallbacks,
        publish: Callable[[CommitBatch], None],
        notify: Callable[[], None],
        closing: threading.Event,
    ) -> None:
        """notify: wakes the other openings. closing: ends waiting for the server."""
        self._address = connection.raw.address.name
        super().__init__(
            connection,
            committer,
            name=self._address,
            clock=clock,
            callbacks=callbacks,
            publish=publish,
            look_ms=WARN_MS,
        )
        self._pg = connection.raw
        self._notify = notify
        self._closing = closing
        self._lost: str | None = None
        self._began_ms: int | None = None  # of the batch that runs, and waits for the server first
        self._warned_ms: int | None = None

    def _late(self, waited_ms: int) -> Retryable:
        """See `WriteQueue`."""
        if self._lost is not None:
            return Unreachable(place=self._address, reason=f"{self._lost}, for {waited_ms / 1000:.1f} s")
        return LockHeld(path=self._address, pid=None, for_ms=waited_ms)

    def _notice_wait(self) -> None:
        """Warn once if jobs wait for long behind one batch. A lost connection was warned of already."""
        began_ms = self._began_ms
        if began_ms is None or began_ms == self._warned_ms or self._lost is not None or not self._queue:
            return
        waited_ms = self._clock.monotonic_ms() - began_ms
        if waited_ms >= WARN_MS:
            self._warned_ms = began_ms
            LOG.warning(
                "%s: writes have been waiting for %.1f s, for the server or for commits of other openings",
                self._address,
                waited_ms / 1000,
            )

    def _run_batch(self) -> None:
        """See `WriteQueue`."""
        self._began_ms = self._clock.monotonic_ms()
        try:
            batch = self._committer.run_batch(self._queue)
        except psycopg.Error as why:
            self._connect_again(why)
            return
        finally:
            self._began_ms = None
        if batch.changed:
            self._notify()
        self._send(batch)

    def _connect_again(self, why: psycopg.Error) -> None:
        """Open another connection while jobs wait. Without a job, the next one comes here again."""
        if trouble_of(why) is not Trouble.LOST:
            self._committer.stop(f"a transaction could not begin ({one_line(why)})")
            return
        if self._closing.is_set():
            self._committer.stop(f"closed while the server could not be reached ({one_line(why)})")
            return
        self._lost = one_line(why)
        LOG.warning("%s: the connection was lost (%s); connecting again", self._address, self._lost)
        try:
            if self._pg.connect_until(self._closing, lambda: not self._queue):
                self._lost = None
        except Exception as final:
            self._committer.stop(f"the server refuses this opening ({one_line(final)})")
