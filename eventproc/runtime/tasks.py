"""Tasks by id: submit one without waiting, look at it, wait for its end, cancel it."""

from __future__ import annotations

import builtins
from functools import partial
from typing import cast, get_args

import attrs

from eventproc.base.clock import new_id
from eventproc.cluster import FILE_WORK, AnyTask
from eventproc.store.database import Database
from eventproc.store.faults import Step
from eventproc.store.model.argument_checks import check_int, check_str, invalid_argument
from eventproc.store.model.errors import StillPending
from eventproc.store.task_queue import TaskInfo, cancel_task, get_task, list_tasks, submit_task, watch_task
from eventproc.streams.request_calls import WAIT_MS


class Tasks:
    """The tasks of a directory; `ep.tasks`. Any process finds a task by its id, for a day after its end."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def __repr__(self) -> str:
        return f"Tasks({self._db.name!r})"

    async def submit(self, task: AnyTask, *, task_id: str | None = None) -> TaskInfo:
        """Store a task, and return it without waiting. An instance that may host runs it until it ends.

        Without `task_id`, an equal task that has not ended, and was not asked to end, is returned instead. Tasks of one
        resource run one after the other.

        Args:
            task: an `OffloadTask`, `BackupTask`, `DeleteScopeTask`, `VerifyTask`, `CompactTask` or
                `CompactTopicTask`.
            task_id: a UUID version 7. Repeating a call with the same id returns the same task, for a day after its
                end. None (default): a new id.

        Raises:
            InvalidArgument: the task or the id is not valid, or the id belongs to another task.
            NotSupported: the store lies on a server, and the task needs a directory.
        """
        if not isinstance(cast("object", task), AnyTask):
            kinds = ", ".join(each.__name__ for each in get_args(AnyTask))
            raise invalid_argument("task", task, f"it must be one of {kinds}")
        if type(task) in FILE_WORK and not self._db.in_memory:
            self._db.directory_for(FILE_WORK[type(task)])
        store = partial(
            submit_task,
            task_id=new_id(self._db.clock) if task_id is None else check_str("task id", task_id),
            kind=task.kind,
            resource=task.resource,
            arguments=attrs.asdict(task),
            joins=task_id is None,
        )
        return await self._db.write(store, step=Step.TASK_SUBMIT)

    async def get(self, task_id: str) -> TaskInfo:
        """Return a task, and how far it is.

        Args:
            task_id: its id.

        Raises:
            NotFound: no task has that id, or it ended more than a day ago.
        """
        check_str("task id", task_id)
        return await self._db.read(partial(get_task, task_id=task_id))

    async def list(self, *, limit: int = 100, after: str | None = None) -> builtins.list[TaskInfo]:
        """Return the newest tasks, newest first.

        Args:
            limit: how many at most. Default: 100.
            after: id of the last task of the previous page. None (default): the first page.

        Raises:
            InvalidArgument: `limit` is less than 1, or an argument has the wrong type.
        """
        limit, last = check_int("limit", limit, least=1), None if after is None else check_str("after", after)
        return await self._db.read(partial(list_tasks, limit=limit, after=last))

    async def cancel(self, task_id: str) -> TaskInfo:
        """Ask a task to end, and return it. What it has made durable stays; one that has ended stays as it is.

        Args:
            task_id: its id.

        Raises:
            NotFound: no task has that id.
        """
        check_str("task id", task_id)
        return await self._db.write(partial(cancel_task, task_id=task_id), step=Step.TASK_SUBMIT)

    async def wait(self, task_id: str, *, timeout_ms: int = WAIT_MS) -> TaskInfo:
        """Return a task once it has ended, in whichever process it runs: done, failed or cancelled.

        Args:
            task_id: its id.
            timeout_ms: how long to wait, in ms. Default: 120 s.

        Raises:
            NotFound: no task has that id.
            StillPending: the wait ended first; the task goes on.
        """
        check_str("task id", task_id)
        end_ms = self._db.clock.monotonic_ms() + check_int(
            "timeout", timeout_ms, least=0, unit="milliseconds"
        )
        with self._db.subscribe([watch_task(task_id)]) as changes:
            while True:
                task = await self._db.read(partial(get_task, task_id=task_id))
                if task.status.has_ended:
                    return task
                left_ms = end_ms - self._db.clock.monotonic_ms()
                if left_ms <= 0:
                    raise StillPending(target=task.resource, request_id=task_id, waited_ms=timeout_ms)
                await changes.wait(left_ms)
