"""Runs tasks at the owners of their buckets, at most TASKS_MAX at once in an instance.

A job gets a `TaskContext`. It must be repeatable: after the death of its instance another one calls it again, from its
beginning. It is cancelled when the task is asked to end, and when another instance took it over.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final, TypeAlias, TypeVar

import anyio
import attrs
from anyio.abc import TaskGroup

from eventproc.base.tasks import BackgroundTasks, first_leaf
from eventproc.cluster.background_steps import STOPPED, repeat_step
from eventproc.cluster.buckets import BUCKETS, OWNED_BUCKETS
from eventproc.cluster.owner_watch import working
from eventproc.processors.retry import RETRY_MS_MAX, retry_transient
from eventproc.store.database import Database, Tx
from eventproc.store.faults import Step
from eventproc.store.model.buckets import bucket_of
from eventproc.store.model.errors import DiskFull, OwnerFenced, Retryable
from eventproc.store.ownership import Owner
from eventproc.store.task_queue import (
    TASKS_CHANNEL,
    WATCH_TASKS,
    TaskCancelled,
    TaskInfo,
    TaskStatus,
    due_tasks,
    end_task,
    find_task,
    note_progress,
    release_task,
    start_task,
    watch_task,
)

LOG = logging.getLogger("eventproc.tasks")

T = TypeVar("T")

RELEASE_MS: Final = 2_000
"""How long closing waits until a running task is free for another instance. Lower: on a busy disk, closing counts as a
death of the task."""

TASKS_MAX: Final = 4
"""Tasks that an instance runs at once. Higher: they share the disk, and each ends later."""

SAVE_MS: Final = 1_000
"""Pause between two looks at a running task, each of which stores its progress if that changed."""


class TaskContext:
    """What a job gets: the task, the database, and the means to make steps durable.

    task: as it was when it was started. db: the database.
    """

    def __init__(self, db: Database, task: TaskInfo) -> None:
        self.db = db
        self.task = task
        self.done, self.total = task.done, task.total

    def progress(self, done: int, total: int | None = None) -> None:
        """Note how far the task is; stored with the next step, or within a second. Callable from any thread."""
        self.done, self.total = done, total

    async def write(self, fn: Callable[[Tx], T], *, step: Step = Step.TASK_RUN) -> T:
        """Run `fn` in a transaction that stores the progress too, if the task is still this instance's.

        Raises:
            OwnerFenced: another instance runs it now, or it has ended; nothing was changed.
            TaskCancelled: it was asked to end; nothing was changed.
        """
        return await self.db.write(partial(self._step, fn), step=step)

    async def save(self) -> None:
        """Store the progress. Raises as `write`."""
        await self.write(lambda _: None)

    def _step(self, fn: Callable[[Tx], T], tx: Tx) -> T:
        note_progress(tx, self.task, self.done, self.total)
        return fn(tx)


Job: TypeAlias = Callable[[TaskContext], Awaitable[Mapping[str, str | int]]]
"""What a task of a kind does. Returns its result."""


async def run_tasks(db: Database, jobs: Mapping[str, Job], *, tasks_max: int = TASKS_MAX) -> None:
    """Run the tasks of this instance's buckets, until cancelled or closed. It never ends the user's program.

    jobs: by kind; tasks of other kinds wait for an instance that knows them.
    """
    buckets = db.shared[OWNED_BUCKETS]
    async with anyio.create_task_group() as tasks:
        # A death changes the owners of some bucket. A task of the dead may lie in one that moved before.
        with db.subscribe([WATCH_TASKS, BUCKETS.watch()]) as changes, buckets.notifying(changes):
            runner = _Runner(db, jobs, tasks_max, partial(changes.notify, TASKS_CHANNEL))

            async def start_due() -> None:
                await runner.start_due(buckets.owned, tasks)
                await changes.wait()

            pause = partial(changes.wait, RETRY_MS_MAX)
            await repeat_step(start_due, pause, LOG, "tasks cannot be started now")
        tasks.cancel_scope.cancel()


@attrs.define(eq=False)
class _Runner:
    """The tasks that run in this instance, by id. ended: called when another one may start."""

    db: Database
    jobs: Mapping[str, Job]
    tasks_max: int
    ended: Callable[[], None]
    running: set[str] = attrs.field(factory=set)

    def may_run(self, task: TaskInfo) -> bool:
        """Return whether the task may start here: nobody runs it, or its instance is dead or silent."""
        if task.kind not in self.jobs or task.id in self.running:
            return False
        if task.status is TaskStatus.WAITING or task.instance is None:
            return True
        return task.instance == self.db.instance_id or not working(self.db)(task.instance)

    async def start_due(self, owned: Mapping[int, Owner], tasks: TaskGroup) -> None:
        """Start tasks of these buckets, at most as many as may run here at once, and run each in `tasks`."""
        if not owned or len(self.running) >= self.tasks_max:
            return
        free = self.tasks_max - len(self.running)
        for task in await self.db.read(partial(due_tasks, buckets=owned, may_run=self.may_run, limit=free)):
            start = partial(self._start, owner=owned[bucket_of(task.resource)], task_id=task.id)
            try:
                found = await self.db.write(start, step=Step.TASK_START)
            except OwnerFenced:
                continue  # another instance owns the bucket now
            if found is not None:
                self.running.add(found.id)
                tasks.start_soon(self.run, found)  # before anything can fail: nobody else would run it

    def _start(self, tx: Tx, owner: Owner, task_id: str) -> TaskInfo | None:
        owner.check(tx)
        return start_task(tx, task_id, self.db.instance_id, self.may_run)

    async def run(self, task: TaskInfo) -> None:
        """Run a started task to its outcome. Raises nothing but a cancellation."""
        what = f"task {task.id} ({task.kind} of {task.resource})"
        try:
            await self._run(task, what)
        except OwnerFenced:
            LOG.info("%s runs in another instance now, or has ended", what)
        except STOPPED:
            pass  # the next instance runs it again
        except Exception:
            LOG.exception("the outcome of %s could not be stored", what)
        except BaseException:  # cancelled: this instance is being closed
            await self._release(task, what)
            raise
        finally:
            self.running.discard(task.id)
            self.ended()

    async def _release(self, task: TaskInfo, what: str) -> None:
        with anyio.move_on_after(RELEASE_MS / 1000, shield=True):
            try:
                await self.db.write(partial(release_task, started=task), step=Step.TASK_END)
            except Exception as why:
                LOG.info("%s counts as a death of this instance: %s", what, why)

    async def _run(self, task: TaskInfo, what: str) -> None:
        context = TaskContext(self.db, task)
        status, result, error = TaskStatus.CANCELLED, None, None
        try:
            with anyio.CancelScope() as scope:
                async with BackgroundTasks() as tasks:
                    tasks.start_soon(self._attend, context, scope)
                    job = partial(_run_job, self.jobs[task.kind], context)
                    result = await retry_transient(job, what, self.db.clock, LOG)
                    status = TaskStatus.DONE
        except (OwnerFenced, *STOPPED):
            raise
        except TaskCancelled:
            pass
        except Exception as why:
            failure = first_leaf(why)
            if isinstance(failure, _JobFailed) and failure.__cause__ is not None:
                failure = failure.__cause__
            LOG.warning("%s failed: %s", what, failure, exc_info=True)
            status, error = TaskStatus.FAILED, f"{type(failure).__name__}: {failure}"
        end = partial(
            end_task,
            started=task,
            status=status,
            done=context.done,
            total=context.total,
            result=result,
            error=error,
        )
        await retry_transient(partial(self.db.write, end, step=Step.TASK_END), what, self.db.clock, LOG)

    async def _attend(self, context: TaskContext, scope: anyio.CancelScope) -> None:
        """Store the progress, and cancel the job when its task was asked to end, or is no longer this instance's."""
        with self.db.subscribe([watch_task(context.task.id)]) as changes:
            while True:
                try:
                    found = await self.db.read(partial(find_task, task_id=context.task.id))
                    if found is None or found.attempt != context.task.attempt or found.cancelling:
                        scope.cancel()
                        return
                    if (found.done, found.total) != (context.done, context.total):
                        await context.save()
                except (OwnerFenced, TaskCancelled):
                    continue  # the next look cancels
                except Retryable as why:
                    LOG.warning("the progress of task %s is stored later: %s", context.task.id, why)
                await changes.wait(SAVE_MS)


class _JobFailed(Exception):
    """Raised for a failure that a job does not survive, though it is retryable. Its cause says what happened."""


async def _run_job(job: Job, context: TaskContext) -> Mapping[str, str | int]:
    try:
        return await job(context)
    except DiskFull as why:  # a person must make room; a job that is repeated would fill the disk for ever
        raise _JobFailed from why
