"""Group commit: the functions of many callers in one transaction, none of them harmed by another.

Functions first run one after the other without savepoints, for most succeed. One that raises without having
changed anything is just reported. One that raises after a change makes the group roll back and run again,
each function in a savepoint of its own: functions are re-runnable by contract. Nobody learns a result or an
error before COMMIT, because a refusal, too, may rest on a neighbour's row.

Two errors concern the whole group. A full disk rolls it back, `DiskFull` for everyone, and the database goes
on. Any other error that ends the transaction, or an error of COMMIT, leaves the state unknown: everyone gets
`DatabaseStopped`, now and later. Source: architecture.md section 1; reference pitfalls.md, items 4 and 14.
"""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar, cast

from eventproc.store.clock import Clock
from eventproc.store.database.shared_state import SharedState
from eventproc.store.database.sqlite_errors import BUSY_MS, ENDS_TRANSACTION, explained, primary_code
from eventproc.store.database.tx import Tx
from eventproc.store.faults import WRITE_BEGUN, WRITE_COMMIT, WRITE_COMMITTED, Faults
from eventproc.store.model.errors import DatabaseStopped, DiskFull, LockHeld
from eventproc.store.model.limits import GROUP_BYTES_MAX

T = TypeVar("T")

GROUP_MS_MAX: Final = 20
"""A group takes no further function after this time; it bounds how long other processes wait for the lock."""


class Job(Generic[T]):
    """One function on its way through a group.

    Whoever takes it out of the queue owns it: the writer, to run it, or its caller, to give up. Taking one out
    of a deque is one step of the interpreter, so never both.
    """

    __slots__ = ("done", "error", "fn", "size_bytes", "value")

    def __init__(self, fn: Callable[[Tx], T], size_bytes: int) -> None:
        self.fn = fn
        self.size_bytes = size_bytes
        self.done = False
        self.value: T | None = None
        self.error: BaseException | None = None

    def result(self) -> T:
        """Return what the function returned, or raise what it raised. Only once `done`."""
        assert self.done, "the job has not run yet"
        if self.error is not None:
            raise self.error
        return cast("T", self.value)


JobQueue = deque[Job[Any]]


class CommitBatch:
    """The jobs of one transaction, and what is to be told about it."""

    __slots__ = ("changed", "committed", "jobs", "tx")

    def __init__(self, tx: Tx) -> None:
        self.jobs: list[Job[Any]] = []
        self.tx = tx
        self.committed = False
        self.changed = False

    def fail(self, why: BaseException) -> None:
        """Give every job the same error, and forget all effects."""
        for job in self.jobs:
            job.value, job.error = None, why
        self.tx.rewind((0, 0))


class _TransactionEnded(Exception):
    """The transaction is over although nobody has asked for that; the cause, if known, is `__cause__`."""


class BatchCommitter:
    """Runs groups on one connection, which nothing else writes to. Used by one thread at a time."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        *,
        clock: Clock,
        faults: Faults,
        path: str,
        shared: SharedState | None = None,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """Make a writer. `shared` is what all its transactions share in memory.

        `check` runs after COMMIT and before any acknowledgement; what it raises stops the writer.
        """
        self.stopped: DatabaseStopped | None = None
        self._connection = connection
        self._execute = connection.execute
        self._clock = clock
        self._faults = faults
        self._path = path
        self._shared = SharedState() if shared is None else shared
        self._check = check
        self._schema_version = self._read_schema_version()

    def run_group(self, queue: JobQueue) -> CommitBatch:
        """Run what waits in `queue`, at most GROUP_BYTES_MAX and GROUP_MS_MAX, in one transaction.

        Returns the group with every job done; empty when nothing waited. Raises nothing of the jobs' own;
        raises sqlite3.OperationalError if BEGIN fails, and then no job has been taken.
        """
        group = CommitBatch(Tx(self._connection, self._clock, self._shared))
        if self.stopped is not None:
            while queue:
                group.jobs.append(queue.popleft())
            return self._finish(group, self.stopped)
        self._execute("BEGIN IMMEDIATE")
        before = self._connection.total_changes
        if not _take(queue, group, 0):
            self._execute("ROLLBACK")
            return group
        try:
            self._faults.reach(WRITE_BEGUN)
            if not self._run_together(queue, group):
                self._run_apart(queue, group)
            self._faults.reach(WRITE_COMMIT)
            self._execute("COMMIT")
        except BaseException as why:
            return self._finish(group, self._abandon(why))
        group.committed = True
        group.changed = self._connection.total_changes != before
        try:
            self._faults.reach(WRITE_COMMITTED)
            self._check()
        except Exception as why:
            return self._finish(group, self._stop(why))
        except BaseException as why:
            return self._finish(group, why)
        return self._finish(group, None)

    def stop(self, reason: str) -> DatabaseStopped:
        """Refuse every later group: what the database holds is not known any more."""
        if self.stopped is None:
            self.stopped = DatabaseStopped(path=self._path, reason=reason)
        return self.stopped

    def _run_together(self, queue: JobQueue, group: CommitBatch) -> bool:
        """Run waiting jobs without savepoints. Return False if the group has to be run again, apart."""
        connection, tx = self._connection, group.tx
        size_bytes, deadline_ms = 0, tx.monotonic_ms + GROUP_MS_MAX
        job = group.jobs[0]
        while True:
            changes, mark = connection.total_changes, tx.mark()
            tx.changed = False
            try:
                job.value = job.fn(tx)
            except Exception as why:
                if self._ended():
                    return self._may_run_again(why)
                if tx.changed or connection.total_changes != changes or self._schema_changed():
                    return False
                job.error = explained(why, self._path)
                tx.rewind(mark)
            if self._ended():
                raise _TransactionEnded
            size_bytes += job.size_bytes
            if not queue or self._clock.monotonic_ms() >= deadline_ms or not _take(queue, group, size_bytes):
                break
            job = group.jobs[-1]
        try:
            tx.flush_pending()
        except Exception as why:
            return self._may_run_again(why) if self._ended() else False
        return True

    def _run_apart(self, queue: JobQueue, group: CommitBatch) -> None:
        """Roll back and run all jobs of the group again, each in a savepoint; then those that wait."""
        tx = group.tx
        self._roll_back()
        tx.rewind((0, 0))
        tx.drop_pending()
        self._execute("BEGIN IMMEDIATE")
        size_bytes, deadline_ms = 0, self._clock.monotonic_ms() + GROUP_MS_MAX
        taken, index = len(group.jobs), 0
        while index < taken or (self._clock.monotonic_ms() < deadline_ms and _take(queue, group, size_bytes)):
            job = group.jobs[index]
            self._run_in_savepoint(job, tx)
            size_bytes += job.size_bytes
            index += 1
        # Only now is it known whether the schema changed for good; a wrong guess costs one more re-run.
        self._schema_version = self._read_schema_version()

    def _run_in_savepoint(self, job: Job[Any], tx: Tx) -> None:
        mark = tx.mark()
        job.value, job.error = None, None
        self._execute("SAVEPOINT job")
        try:
            job.value = job.fn(tx)
            tx.flush_pending()
        except Exception as why:
            if self._ended():
                raise _TransactionEnded from why
            self._execute("ROLLBACK TO job")
            job.value, job.error = None, explained(why, self._path)
            tx.rewind(mark)
            tx.drop_pending()
        if self._ended():
            raise _TransactionEnded
        self._execute("RELEASE job")

    def _may_run_again(self, why: Exception) -> bool:
        """Return False (run again) if SQLite rolled the transaction back itself, so that nothing is durable."""
        if primary_code(why) not in ENDS_TRANSACTION:
            raise _TransactionEnded from why
        return False

    def _abandon(self, why: BaseException) -> BaseException:
        """Roll the group back and return the error that its jobs get."""
        if not isinstance(why, Exception):
            self._roll_back()
            return why
        cause = why.__cause__ if isinstance(why, _TransactionEnded) else why
        code = None if cause is None else primary_code(cause)
        if code == sqlite3.SQLITE_FULL:
            self._roll_back()
            return DiskFull(path=self._path)
        if code == sqlite3.SQLITE_BUSY:  # a program without our protocol came between two runs of the group
            self._roll_back()
            return LockHeld(path=self._path, pid=None, for_ms=BUSY_MS)
        stopped = self._stop(why)
        self._roll_back()
        return stopped

    def _stop(self, why: Exception) -> DatabaseStopped:
        if isinstance(why, DatabaseStopped):
            self.stopped = why
            return why
        if isinstance(why, _TransactionEnded):
            cause = f": {why.__cause__}" if why.__cause__ is not None else " by one of its functions"
            stopped = self.stop(f"the transaction of a group was ended{cause}")
        else:
            stopped = self.stop(f"a group could not be committed ({why})")
        stopped.__cause__ = why
        return stopped

    def _finish(self, group: CommitBatch, why: BaseException | None) -> CommitBatch:
        if why is not None:
            group.fail(why)
        for job in group.jobs:
            job.done = True
        return group

    def _ended(self) -> bool:
        return not self._connection.in_transaction

    def _roll_back(self) -> None:
        try:
            if self._connection.in_transaction:
                self._execute("ROLLBACK")
        except sqlite3.Error as why:
            self.stop(f"a transaction could not be rolled back ({why})")

    def _read_schema_version(self) -> int:
        row: tuple[int] = self._execute("PRAGMA schema_version").fetchone()
        return row[0]

    def _schema_changed(self) -> bool:
        # `total_changes` does not count CREATE and DROP. Asked only after a function raised.
        return self._read_schema_version() != self._schema_version


def _take(queue: JobQueue, group: CommitBatch, size_bytes: int) -> bool:
    """Move the next waiting job into `group`; False if none waits or it would grow beyond GROUP_BYTES_MAX."""
    try:
        if group.jobs and size_bytes + queue[0].size_bytes > GROUP_BYTES_MAX:
            return False
        group.jobs.append(queue.popleft())
    except IndexError:  # empty, or emptied just now by a caller that gave up
        return False
    return True
