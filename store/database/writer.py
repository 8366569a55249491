"""The write path of the file form: a queue, the writer's thread, and the delivery of results.

Callers put jobs into a queue. While jobs wait, the thread takes `write.lock`, runs the waiting jobs as one batch,
commits, unlocks, and delivers the batch to the event loop in one callback. There is no linger timer: jobs that arrive
during a commit form the next batch.

A job in the queue has not started. Its caller may remove it, by cancellation or at its deadline, and then it never
runs. The thread blocks in flock, which the kernel serves in order, while the event loop watches the deadlines.
Source: architecture.md section 1; reference pitfalls.md S1.4, S1.8 and S1.9.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import anyio

from eventproc.store.clock import Clock
from eventproc.store.database.checkpoint import Checkpointer
from eventproc.store.database.commit_batch import BatchCommitter, CommitBatch, Job, JobQueue
from eventproc.store.database.connection import ThreadConnection
from eventproc.store.database.database import WRITE_WAIT_MS_MAX, cancellation_returns
from eventproc.store.database.locks import WriteLock
from eventproc.store.database.log_record import LogRecorder
from eventproc.store.database.loop_callbacks import LoopCallbacks
from eventproc.store.database.notifier import CommitNotifier
from eventproc.store.database.sqlite_errors import primary_code
from eventproc.store.database.tx import Tx
from eventproc.store.model.errors import LockHeld

LOG = logging.getLogger(__name__)

T = TypeVar("T")


class AwaitedJob(Job[T]):
    """A job with a caller that waits on the event loop."""

    __slots__ = ("deadline", "future", "queued")

    def __init__(
        self,
        fn: Callable[[Tx], T],
        size_bytes: int,
        future: asyncio.Future[None],
        queued: float,
        deadline: float,
    ) -> None:
        super().__init__(fn, size_bytes)
        self.future: asyncio.Future[None] | None = future
        """The future that the caller awaits; None once the result was delivered."""
        self.queued = queued
        self.deadline = deadline


class FileWriter:
    """Queue and thread of the writer of one file.

    Methods run on the event loop, except `_drain` and those below it, which run on the writer's thread.
    """

    def __init__(
        self,
        connection: ThreadConnection,
        committer: BatchCommitter,
        *,
        lock: WriteLock,
        lock_path: Path,
        notifier: CommitNotifier,
        checkpointer: Checkpointer,
        log: LogRecorder,
        clock: Clock,
        callbacks: LoopCallbacks,
        publish: Callable[[CommitBatch], None],
        lock_warn_ms: int,
    ) -> None:
        """Create the writer.

        publish: applies the effects of a durable batch, on the event loop, before its callers continue.
        lock_warn_ms: waiting time for write.lock after which a warning names its holder.
        """
        self.checkpointer = checkpointer
        self._connection = connection
        self._log = log
        self._committer = committer
        self._lock = lock
        self._lock_path = lock_path
        self._notifier = notifier
        self._clock = clock
        self._callbacks = callbacks
        self._publish = publish
        self._lock_warn_s = lock_warn_ms / 1000
        self._loop = asyncio.get_running_loop()
        self._queue: JobQueue = JobQueue()
        self._awake = False
        self._timer: asyncio.TimerHandle | None = None
        self._lock_wanted_ms: int | None = None
        self._warned_ms: int | None = None

    async def write(self, fn: Callable[[Tx], T], size_bytes: int, timeout_ms: int | None) -> T:
        """See `Database.write`."""
        loop = self._loop
        now = loop.time()
        deadline = now + (WRITE_WAIT_MS_MAX if timeout_ms is None else timeout_ms) / 1000
        future: asyncio.Future[None] = loop.create_future()
        job = AwaitedJob(fn, size_bytes, future, now, deadline)
        self._queue.append(job)
        if not self._awake:
            self._awake = True
            self._connection.post(self._drain)
        if self._timer is None or deadline < self._timer.when():
            self._watch(min(deadline, now + self._lock_warn_s))
        try:
            await future
        except asyncio.CancelledError:
            if self._remove(job):
                raise
            await self._wait_through_cancellation(job)
            if not cancellation_returns():
                raise
        return job.result()

    @property
    def usable(self) -> bool:
        """Whether the content of the database is known."""
        return self._committer.stopped is None

    @property
    def idle(self) -> bool:
        """Whether no job waits and no batch runs."""
        return not self._queue and not self._awake

    def close(self) -> None:
        """Stop watching deadlines. Called when no job waits."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _remove(self, job: Job[T]) -> bool:
        """Remove a job from the queue; return False if it has started or has a result."""
        try:
            self._queue.remove(job)
        except ValueError:
            return False
        return True

    async def _wait_through_cancellation(self, job: AwaitedJob[T]) -> None:
        """Wait for the result of a started job, through all cancellations."""
        while job.future is not None:
            if job.future.done():
                job.future = self._loop.create_future()
            with anyio.CancelScope(shield=True), contextlib.suppress(asyncio.CancelledError):
                await job.future

    def _deliver(self, batch: CommitBatch) -> None:
        try:
            self._publish(batch)
        finally:  # also if an effect was interrupted, as by Ctrl-C, because the batch is committed
            for job in batch.jobs:
                _resolve(job)

    def _watch(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(when, self._check_deadlines)

    def _check_deadlines(self) -> None:
        """Fail the jobs with a passed deadline, and warn if another process holds the lock for long."""
        self._timer = None
        now = self._loop.time()
        late = [job for job in list(self._queue) if isinstance(job, AwaitedJob) and job.deadline <= now]
        for job in late:
            if self._remove(job):
                waited_ms = round((now - job.queued) * 1000)
                job.error = LockHeld(path=str(self._lock_path), pid=self._holder_pid(), for_ms=waited_ms)
                job.done = True
                _resolve(job)
        self._maybe_warn()
        deadlines = [job.deadline for job in list(self._queue) if isinstance(job, AwaitedJob)]
        if deadlines:
            self._watch(min(min(deadlines), now + self._lock_warn_s))

    def _maybe_warn(self) -> None:
        wanted_ms = self._lock_wanted_ms
        if wanted_ms is None or wanted_ms == self._warned_ms:
            return
        waited_ms = self._clock.monotonic_ms() - wanted_ms
        if waited_ms >= self._lock_warn_s * 1000:
            self._warned_ms = wanted_ms
            LOG.warning(
                "%s has been held by process %s for more than %.1f s; writes wait for its release",
                self._lock_path,
                self._holder_pid(),
                waited_ms / 1000,
            )

    def _holder_pid(self) -> int | None:
        try:
            holder = self._lock.holder()
        except OSError:  # too many open files, or the file was removed; the pid is only for display
            return None
        return None if holder is None else holder.pid

    # --- on the writer's thread -----------------------------------------------------------------

    def _drain(self) -> None:
        while True:
            try:
                while self._queue:
                    self._run_batch()
            except BaseException as why:
                # A bug, an injected death at a checkpoint, or an unusable lock file: every caller gets the error.
                LOG.exception("the writer of %s stopped", self._lock_path.parent)
                self._committer.stop(f"the writer failed ({why!r})")
            # In this order: a caller that queues a job after the check of the queue sees `_awake` as False.
            self._awake = False
            if not self._queue:
                return
            self._awake = True

    def _run_batch(self) -> None:
        if self._committer.stopped is not None:
            self._send(self._committer.run_batch(self._queue))
            return
        self._lock_wanted_ms = self._clock.monotonic_ms()
        self._lock.acquire()
        self._lock_wanted_ms = None
        try:
            self._log.before_batch()
            batch = self._committer.run_batch(self._queue)
            if batch.changed:
                self._log.after_batch()
        except sqlite3.OperationalError as why:
            # BEGIN failed. If a program that ignores write.lock holds SQLite's own lock, the jobs keep waiting.
            if primary_code(why) != sqlite3.SQLITE_BUSY:
                self._committer.stop(f"a transaction could not begin ({why})")
            return
        finally:
            self._lock.release()
        self._send(batch)
        if batch.changed:
            self._notifier.notify()
            self.checkpointer.maybe_run(sum(job.size_bytes for job in batch.jobs))

    def _send(self, batch: CommitBatch) -> None:
        if batch.jobs:
            self._callbacks.call(partial(self._deliver, batch))


def _resolve(job: Job[T]) -> None:
    assert isinstance(job, AwaitedJob), "a job without a future"
    future, job.future = job.future, None
    if future is not None and not future.done():
        future.set_result(None)
