"""Group commit: runs the functions of many callers in one transaction and isolates their errors.

Functions first run one after the other without savepoints, because most succeed. A function that raises without having
changed anything only gets its error. A function that raises after a change makes the batch roll back and run again,
each function in its own savepoint: functions are re-runnable by contract. Results and errors are delivered only after
COMMIT, because an error, too, may depend on another function's uncommitted row.

Two kinds of errors concern the entire batch. A full disk rolls it back: every caller gets `DiskFull`, and the database
continues. Any other error that ends the transaction, or an error of COMMIT, leaves the state unknown: these callers and
all later ones get `DatabaseStopped`. Source: architecture.md section 1; reference pitfalls.md, items 4 and 14.
"""

from __future__ import annotations

import enum
import sqlite3
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Generic, TypeAlias, TypeVar, cast

from eventproc.base.clock import Clock
from eventproc.store.database.files import BUSY_MS, ENDS_TRANSACTION, primary_code, translate_error
from eventproc.store.database.tx import Connection, KnownValues, SharedState, Tx, UserSql, user_sql
from eventproc.store.faults import (
    NO_FAULTS,
    WRITE_BEGUN,
    WRITE_COMMIT,
    WRITE_COMMITTED,
    Faults,
    Moment,
    Step,
    point_of,
)
from eventproc.store.model.errors import DatabaseStopped, DiskFull, LockHeld
from eventproc.store.model.limits import BATCH_BYTES_MAX

T = TypeVar("T")

Streams: TypeAlias = frozenset[str]
"""Names of the streams to whose rows a function keeps."""

STREAMS_MAX: Final = 32
"""Streams of one batch that commits beside others. Each takes a lock, of which a server has some thousands for all."""

BATCH_MS_MAX: Final = 20
"""A batch takes no further function after this time, which bounds how long other processes wait for the lock."""


class CommitJob(Generic[T]):
    """One function on its way through a batch.

    The thread that removes a job from the queue owns it: the writer, to run it, or its caller, to give it up. Removing
    an element of a deque is one step of the interpreter, so only one of them succeeds.
    """

    __slots__ = ("done", "error", "fn", "size_bytes", "step", "streams", "value")

    def __init__(
        self,
        fn: Callable[[Tx], T],
        size_bytes: int,
        step: Step | None = None,
        streams: Streams | None = None,
    ) -> None:
        self.fn = fn
        self.size_bytes = size_bytes
        self.step = step
        self.streams = streams
        self.done = False
        self.value: T | None = None
        self.error: BaseException | None = None

    def result(self) -> T:
        """Return what the function returned, or raise what it raised. Call it only when `done`."""
        assert self.done, "the job has not run yet"
        if self.error is not None:
            raise self.error
        return cast("T", self.value)


JobQueue = deque[CommitJob[Any]]


class CommitBatch:
    """The jobs of one transaction, and how it ended."""

    __slots__ = ("changed", "committed", "jobs", "streams", "tx")

    def __init__(self, tx: Tx, streams: Streams | None = None) -> None:
        """streams: to whose rows its functions keep; None: they are committed alone."""
        self.jobs: list[CommitJob[Any]] = []
        self.tx = tx
        self.streams = streams
        self.committed = False
        self.changed = False

    def fail(self, why: BaseException) -> None:
        """Give every job the same error, and forget all effects."""
        for job in self.jobs:
            job.value, job.error = None, why
        self.tx.rewind((0, 0))


class _TransactionEnded(Exception):
    """The transaction ended although the library did not end it; the cause, if known, is `__cause__`."""


class Trouble(enum.Enum):
    """What an error of the engine means for the transaction in which it occurs."""

    FULL = enum.auto()
    """There is no room. The transaction is rolled back; the database continues."""
    BUSY = enum.auto()
    """Another program kept the database locked. The transaction is rolled back; it may be tried again."""
    LOST = enum.auto()
    """The connection was lost before COMMIT. All functions of the batch run again on another one."""
    ENDS = enum.auto()
    """The engine may have rolled back the transaction, and not only the statement."""
    OTHER = enum.auto()
    """A statement failed, for any other reason."""


class WriterConnection(ABC):
    """How the transactions of a writer begin and end on its connection, and what its errors mean."""

    path: str
    """Names the database in errors."""
    connection: Connection
    """On which the statements run."""
    batch_ms_max: int = BATCH_MS_MAX
    """A batch takes no further function after this time."""
    restrict: UserSql = staticmethod(user_sql)
    """How it restricts the SQL of users."""
    is_concurrent: bool = False
    """Whether batches of different streams may commit at the same time."""

    @abstractmethod
    def begin(self, streams: Streams | None) -> None:
        """Begin a transaction that no other writer can disturb. Raises an error of the engine.

        streams: to whose rows it will keep, if the connection is concurrent; None: to none.
        """

    @abstractmethod
    def commit(self, changed: bool) -> None:
        """Commit. changed: whether the transaction changed something. Raises an error of the engine."""

    @abstractmethod
    def continues(self) -> bool:
        """Return whether no other connection has committed since the last batch. Called inside the transaction."""

    @abstractmethod
    def schema_version(self) -> int:
        """Return a number that differs after a change of the schema that `total_changes` does not count."""

    @abstractmethod
    def trouble_of(self, why: BaseException) -> Trouble | None:
        """Return what an error means; None if it is not one of the engine."""

    @abstractmethod
    def translate(self, why: Exception) -> Exception:
        """Return the library's error for an error of the engine, or the error itself if there is none."""

    @property
    def is_failed(self) -> bool:
        """Whether a statement has failed in a way that lets the transaction, or its savepoint, only roll back."""
        return False


class SqliteWriter(WriterConnection):
    """The writer's connection to SQLite."""

    def __init__(
        self, connection: sqlite3.Connection, path: str, continues: Callable[[], bool] = lambda: True
    ) -> None:
        """continues: see `WriterConnection.continues`."""
        self.path = path
        self.connection = connection
        self._raw = connection
        self._continues = continues

    def begin(self, streams: Streams | None) -> None:
        """See `WriterConnection.begin`."""
        self._raw.execute("BEGIN IMMEDIATE")

    def commit(self, changed: bool) -> None:
        """See `WriterConnection.commit`."""
        self._raw.execute("COMMIT")

    def continues(self) -> bool:
        """See `WriterConnection.continues`."""
        return self._continues()

    def schema_version(self) -> int:
        """See `WriterConnection.schema_version`."""
        row: tuple[int] = self._raw.execute("PRAGMA schema_version").fetchone()
        return row[0]

    def trouble_of(self, why: BaseException) -> Trouble | None:
        """See `WriterConnection.trouble_of`."""
        code = primary_code(why)
        if code in ENDS_TRANSACTION:
            return _ENDING.get(code, Trouble.ENDS)
        return Trouble.OTHER if isinstance(why, sqlite3.Error) else None

    def translate(self, why: Exception) -> Exception:
        """See `WriterConnection.translate`."""
        return translate_error(why, self.path)


_ENDING: Final = {sqlite3.SQLITE_FULL: Trouble.FULL, sqlite3.SQLITE_BUSY: Trouble.BUSY}


class BatchCommitter:
    """Runs batches on one connection that has no other writer. Used by one thread at a time."""

    def __init__(
        self,
        writer: WriterConnection,
        *,
        clock: Clock,
        faults: Faults,
        shared: SharedState | None = None,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """Create a committer.

        shared: objects in memory for all its transactions.
        check: runs after COMMIT and before any acknowledgement; an error of it stops the committer.
        """
        self.stopped: DatabaseStopped | None = None
        self._writer = writer
        self._connection = writer.connection
        self._execute = writer.connection.execute
        self._clock = clock
        self._faults = faults
        self._path = writer.path
        self._shared = SharedState() if shared is None else shared
        self._check = check
        self._known = KnownValues()
        self._schema_version = writer.schema_version()

    def run_batch(self, queue: JobQueue) -> CommitBatch:
        """Run the jobs that wait in `queue` in one transaction, at most BATCH_BYTES_MAX and BATCH_MS_MAX of them.

        Returns the batch with every job done; it is empty if no job waited. Errors of jobs are stored in the jobs.
        Raises the engine's error if BEGIN fails or the connection was lost; all jobs wait in the queue then.
        """
        streams = _streams_of(queue) if self._writer.is_concurrent else None
        try:
            if self.stopped is None:
                self._writer.begin(streams)
        except DatabaseStopped as why:
            self.stopped = why
        if self.stopped is not None:
            batch = self._new_batch(None)
            while queue:
                batch.jobs.append(queue.popleft())
            return self._finish(batch, self.stopped)
        batch = self._new_batch(streams)
        if not self._writer.continues():
            self._known.forget()
        before = self._connection.total_changes
        if not _take(queue, batch, 0):
            self._execute("ROLLBACK")
            return batch
        try:
            self._faults.reach(WRITE_BEGUN)
            if not self._run_together(queue, batch):
                self._run_apart(queue, batch)
            self._reach_steps(batch, Moment.COMMIT)
            self._faults.reach(WRITE_COMMIT)
            # SQLite does not count pages that moved as changes.
            batch.changed = self._connection.total_changes != before or batch.tx.vacuumed
            try:
                self._writer.commit(batch.changed)
            except Exception:
                if not self._writer.is_failed:
                    raise
                self._run_apart(queue, batch)  # a statement failed that the engine had not run yet
                self._writer.commit(batch.changed)
        except BaseException as why:
            if (lost := self._lost(why)) is not None:
                self._put_back(queue, batch)
                raise lost from why
            return self._finish(batch, self._abandon(why))
        batch.committed = True
        try:
            self._faults.reach(WRITE_COMMITTED)
            self._reach_steps(batch, Moment.COMMITTED)
            self._check()
        except Exception as why:
            return self._finish(batch, self._stop(why))
        except BaseException as why:
            return self._finish(batch, why)
        return self._finish(batch, None)

    def stop(self, reason: str) -> DatabaseStopped:
        """Refuse every later batch, because the content of the database is unknown."""
        if self.stopped is None:
            self.stopped = DatabaseStopped(path=self._path, reason=reason)
        return self.stopped

    def _new_batch(self, streams: Streams | None) -> CommitBatch:
        restrict = self._writer.restrict
        tx = Tx(self._connection, self._clock, self._shared, self._known, restrict=restrict)
        return CommitBatch(tx, streams)

    def _reach_steps(self, batch: CommitBatch, moment: Moment) -> None:
        if self._faults is NO_FAULTS:
            return
        for job in batch.jobs:
            if job.step is not None:
                self._faults.reach(point_of(job.step, moment))

    def _run_together(self, queue: JobQueue, batch: CommitBatch) -> bool:
        """Run waiting jobs without savepoints. Return False if the batch must run again with savepoints."""
        connection, tx = self._connection, batch.tx
        size_bytes, deadline_ms = 0, tx.monotonic_ms + self._writer.batch_ms_max
        job = batch.jobs[0]
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
                job.error = self._writer.translate(why)
                tx.rewind(mark)
            if self._ended():
                raise _TransactionEnded
            size_bytes += job.size_bytes
            if not queue or self._clock.monotonic_ms() >= deadline_ms or not _take(queue, batch, size_bytes):
                break
            job = batch.jobs[-1]
        try:
            tx.flush_pending()
        except Exception as why:
            return self._may_run_again(why) if self._ended() else False
        return not self._writer.is_failed

    def _run_apart(self, queue: JobQueue, batch: CommitBatch) -> None:
        """Roll back and run all jobs of the batch again, each in a savepoint; then take jobs that wait."""
        tx = batch.tx
        self._roll_back()
        tx.rewind((0, 0))
        tx.drop_pending()
        self._writer.begin(batch.streams)
        size_bytes, deadline_ms = 0, self._clock.monotonic_ms() + self._writer.batch_ms_max
        taken, index = len(batch.jobs), 0
        while index < taken or (self._clock.monotonic_ms() < deadline_ms and _take(queue, batch, size_bytes)):
            job = batch.jobs[index]
            self._run_in_savepoint(job, tx)
            size_bytes += job.size_bytes
            index += 1
        # Only now is it known whether a schema change is permanent. A wrong guess costs one more re-run.
        self._schema_version = self._writer.schema_version()

    def _run_in_savepoint(self, job: CommitJob[Any], tx: Tx) -> None:
        mark = tx.mark()
        job.value, job.error = None, None
        self._execute("SAVEPOINT job")
        try:
            job.value = job.fn(tx)
            tx.flush_pending()
            if self._ended():
                raise _TransactionEnded
            self._execute("RELEASE job")
        except Exception as why:
            if self._ended():
                raise _TransactionEnded from (None if isinstance(why, _TransactionEnded) else why)
            self._execute("ROLLBACK TO job")
            self._execute("RELEASE job")
            self._known.forget()
            job.value, job.error = None, self._writer.translate(why)
            tx.rewind(mark)
            tx.drop_pending()

    def _may_run_again(self, why: Exception) -> bool:
        """Return False (run again) if the engine itself rolled back, else raise _TransactionEnded."""
        if self._writer.trouble_of(why) in (None, Trouble.OTHER):
            raise _TransactionEnded from why
        return False

    def _abandon(self, why: BaseException) -> BaseException:
        """Roll the batch back and return the error for its jobs."""
        if not isinstance(why, Exception):
            self._roll_back()
            return why
        trouble = self._trouble_of(why)
        if trouble is Trouble.FULL:
            self._roll_back()
            return DiskFull(path=self._path)
        if trouble is Trouble.BUSY:  # a program that ignores write.lock wrote between two runs of the batch
            self._roll_back()
            return LockHeld(path=self._path, pid=None, for_ms=BUSY_MS)
        stopped = self._stop(why)
        self._roll_back()
        return stopped

    def _trouble_of(self, why: BaseException) -> Trouble | None:
        cause = why.__cause__ if isinstance(why, _TransactionEnded) else why
        return None if cause is None else self._writer.trouble_of(cause)

    def _lost(self, why: BaseException) -> BaseException | None:
        """Return the error of the engine if the connection was lost, which a function may have caught."""
        found: BaseException = why
        if isinstance(why, _TransactionEnded):
            try:
                self._execute("ROLLBACK")  # which sends nothing else
            except Exception as raised:
                found = raised
        return found if self._writer.trouble_of(found) is Trouble.LOST else None

    def _put_back(self, queue: JobQueue, batch: CommitBatch) -> None:
        """Let the jobs of a batch, of which nothing was committed, wait at the front of the queue again."""
        self._known.forget()
        for job in batch.jobs:
            job.value = job.error = None
        queue.extendleft(reversed(batch.jobs))

    def _stop(self, why: Exception) -> DatabaseStopped:
        if isinstance(why, DatabaseStopped):
            self.stopped = why
            return why
        if isinstance(why, _TransactionEnded):
            cause = f": {why.__cause__}" if why.__cause__ is not None else " by one of its functions"
            stopped = self.stop(f"the transaction of a commit batch was ended{cause}")
        else:
            stopped = self.stop(f"a commit batch could not be committed ({why})")
        stopped.__cause__ = why
        return stopped

    def _finish(self, batch: CommitBatch, why: BaseException | None) -> CommitBatch:
        if why is not None:
            batch.fail(why)
        for job in batch.jobs:
            job.done = True
        return batch

    def _ended(self) -> bool:
        return not self._connection.in_transaction

    def _roll_back(self) -> None:
        self._known.forget()
        try:
            if self._connection.in_transaction:
                self._execute("ROLLBACK")
        except Exception as why:
            if self._writer.trouble_of(why) is None:
                raise
            self.stop(f"a transaction could not be rolled back ({why})")

    def _schema_changed(self) -> bool:
        # `total_changes` does not count CREATE and DROP. Called only after a function raised.
        return self._writer.schema_version() != self._schema_version


def _streams_of(queue: JobQueue) -> Streams | None:
    """Return the streams of the first jobs that say theirs; None if the first one does not."""
    found: Streams | None = None
    for job in list(queue):
        if job.streams is None or len(both := job.streams | (found or frozenset())) > STREAMS_MAX:
            break
        found = both
    return found


def _take(queue: JobQueue, batch: CommitBatch, size_bytes: int) -> bool:
    """Move the next job from `queue` into `batch`; False if there is none, or it is too large or of other streams."""
    try:
        job = queue.popleft()
    except IndexError:  # empty, perhaps because a caller just gave up
        return False
    is_other = batch.streams is not None and (job.streams is None or not job.streams <= batch.streams)
    if is_other or (batch.jobs and size_bytes + job.size_bytes > BATCH_BYTES_MAX):
        queue.appendleft(job)
        return False
    batch.jobs.append(job)
    return True
