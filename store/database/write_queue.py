"""The queue of a writer: jobs wait in it, the writer's thread runs them in batches, and their callers get the results.

While jobs wait, the thread runs the waiting ones as one batch and delivers the batch to the event loop in one callback.
There is no linger timer: jobs that arrive during a commit form the next batch.

A job in the queue has not started. Its caller may remove it, by cancellation or at its deadline, and then it never
runs. The thread may wait for a lock or for a server, while the event loop watches the deadlines.
Source: architecture.md section 1; reference pitfalls.md S1.4, S1.8 and S1.9.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

import anyio

from eventproc.base.clock import Clock
from eventproc.store.database.commit_batch import BatchCommitter, CommitBatch, CommitJob, JobQueue, Streams
from eventproc.store.database.connections import LoopCallbacks, ThreadConnection
from eventproc.store.database.database import WRITE_WAIT_MS_MAX, cancellation_returns
from eventproc.store.database.tx import Tx
from eventproc.store.faults import Step

LOG = logging.getLogger(__name__)

T = TypeVar("T")


class AwaitedJob(CommitJob[T]):
    """A job with a caller that waits on the event loop."""

    __slots__ = ("deadline", "future", "queued")

    def __init__(
        self,
        fn: Callable[[Tx], T],
        size_bytes: int,
        future: asyncio.Future[None],
        queued: float,
        deadline: float,
        step: Step | None = None,
        streams: Streams | None = None,
    ) -> None:
        super().__init__(fn, size_bytes, step, streams)
        self.future: asyncio.Future[None] | None = future
        """The future that the caller awaits; None once the result was delivered."""
        self.queued = queued
        self.deadline = deadline


Attend: TypeAlias = Callable[[AwaitedJob[Any]], Coroutine[Any, Any, None]]
"""What the event loop does for a job that was put into the queue."""


class WriteQueue(ABC):
    """Queue and thread of a writer.

    Methods run on the event loop, except `_drain`, `_run_batch`, `_stop` and `_send`, which run on the thread.
    """

    def __init__(
        self,
        connection: ThreadConnection[Any],
        committer: BatchCommitter,
        *,
        name: str,
        clock: Clock,
        callbacks: LoopCallbacks,
        publish: Callable[[CommitBatch], None],
        look_ms: int,
    ) -> None:
        """name: of the database, for messages. publish: applies the effects of a durable batch, on the event loop,
        before its callers continue. look_ms: time between two calls of `_notice_wait` while a job waits."""
        self._connection = connection
        self._committer = committer
        self._name = name
        self._clock = clock
        self._callbacks = callbacks
        self._publish = publish
        self._look_s: Final = look_ms / 1000
        self._loop = asyncio.get_running_loop()
        self._queue: JobQueue = JobQueue()
        self._awake = False  # the thread, or a job that waits to run inline, will look at the queue
        self._callers_count = 0
        self._timer: asyncio.TimerHandle | None = None

    @abstractmethod
    def _run_batch(self) -> None:
        """Run the waiting jobs as one batch, and send it."""

    @abstractmethod
    def _late(self, waited_ms: int) -> Exception:
        """Return the error of a job that has waited until its deadline."""

    def _notice_wait(self) -> None:  # noqa: B027  # most writers have nothing to say
        """Learn that a job has been waiting for a while."""

    def _admit(self, job: AwaitedJob[T], brief: bool) -> Attend | None:
        """Put a job into the queue; return what the event loop shall do for it before it waits, if anything."""
        self._queue.append(job)
        self._wake_thread()
        return None

    def _wake_thread(self) -> None:
        if not self._awake:
            self._awake = True
            self._connection.post(self._drain)

    async def write(
        self,
        fn: Callable[[Tx], T],
        size_bytes: int,
        timeout_ms: int | None,
        *,
        brief: bool = False,
        step: Step | None = None,
        streams: Streams | None = None,
    ) -> T:
        """See `Database.write`."""
        now = self._loop.time()
        deadline = now + (WRITE_WAIT_MS_MAX if timeout_ms is None else timeout_ms) / 1000
        future: asyncio.Future[None] = self._loop.create_future()
        job = AwaitedJob(fn, size_bytes, future, now, deadline, step, streams)
        attend = self._admit(job, brief)
        self._callers_count += 1
        try:
            if attend is not None:
                await attend(job)
            if job.future is not None:  # no result yet
                if self._timer is None or deadline < self._timer.when():
                    self._watch(min(deadline, now + self._look_s))
                await future
        except asyncio.CancelledError:
            if self._remove(job):
                raise
            await self._wait_through_cancellation(job)
            if not cancellation_returns():
                raise
        finally:
            self._callers_count -= 1
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

    def _remove(self, job: CommitJob[T]) -> bool:
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
        """Fail the jobs with a passed deadline, and notice that others wait."""
        self._timer = None
        now = self._loop.time()
        late = [job for job in list(self._queue) if isinstance(job, AwaitedJob) and job.deadline <= now]
        for job in late:
            if self._remove(job):
                job.error = self._late(round((now - job.queued) * 1000))
                job.done = True
                _resolve(job)
        self._notice_wait()
        deadlines = [job.deadline for job in list(self._queue) if isinstance(job, AwaitedJob)]
        if self._callers_count:  # a job that runs waits in the queue again if its connection is lost
            self._watch(min([*deadlines, now + self._look_s]))

    def _drain(self) -> None:
        while True:
            try:
                while self._queue:
                    self._run_batch()
            except BaseException as why:
                self._stop(why)
            # In this order: a caller that queues a job after the check of the queue sees `_awake` as False.
            self._awake = False
            if not self._queue:
                return
            self._awake = True

    def _stop(self, why: BaseException) -> None:
        """Give every caller the error: a bug, an injected death, or an unusable lock file."""
        LOG.exception("the writer of %s stopped", self._name)
        self._committer.stop(f"the writer failed ({why!r})")

    def _send(self, batch: CommitBatch) -> None:
        if batch.jobs:
            self._callbacks.call(partial(self._deliver, batch))


def _resolve(job: CommitJob[T]) -> None:
    assert isinstance(job, AwaitedJob), "a job without a future"
    future, job.future = job.future, None
    if future is not None and not future.done():
        future.set_result(None)
