"""Tasks: long work that one instance at a time does until it ends, and another one continues after a death.

A task is a record: `open/BUCKET/ID` until it has ended, then `ended/ID` for a day. It runs where the bucket of its
resource is owned. Tasks of one resource run one after the other, in the order of their ids: a record of the resource
names the running one (`TaskHolder`). Starting raises `attempt`, which fences the instance that ran it before: every
step of a task compares the attempt (`hold_task`).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from enum import StrEnum
from functools import partial
from typing import Final

import attrs

from eventproc.base.clock import id_floor, id_time_ms
from eventproc.store.database import Tx, Watch
from eventproc.store.model.argument_checks import storable
from eventproc.store.model.buckets import BUCKET_COUNT, bucket_of
from eventproc.store.model.errors import CorruptRecord, InvalidArgument, NotFound, OwnerFenced
from eventproc.store.model.short_repr import short_repr_of_fields
from eventproc.store.records import (
    RecordKind,
    Versioned,
    bodies,
    count_up,
    counted,
    create,
    decodable,
    delete,
    delete_all,
    find,
    keys,
    replace,
)

LOG = logging.getLogger("eventproc.tasks")

TASK_MEMORY_MS: Final = 24 * 3600 * 1000
"""How long a task is kept after its end. Higher: more records."""

ATTEMPTS_MAX: Final = 5
"""Starts of a task; after as many deaths it fails, because it may be their cause."""

ERROR_CHARS_MAX: Final = 10_000
"""Characters of a task's error that are kept."""

BACKUP: Final = "backup"
"""Kind of the tasks that back a directory up. In the backup they have ended."""

INGEST_CHANNEL: Final = "ingest"
"""Topic to wake after a change that supervisors or workers must see. A store without any of them knows no more."""

TASKS_CHANNEL: Final = "tasks"

COUNTER: Final = "tasks"
"""Name of a counter: how many changes of tasks concern those that run them."""


class TaskStatus(StrEnum):
    """How far a task is."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def has_ended(self) -> bool:
        """Whether it will not change any more."""
        return self in (TaskStatus.DONE, TaskStatus.FAILED, TaskStatus.CANCELLED)


class TaskCancelled(Exception):
    """Raised by the next step of a task that was asked to end. It ends the job."""


@attrs.frozen(kw_only=True)
class TaskInfo:
    """A task and how far it is.

    Attributes:
        id: UUID version 7.
        kind: of the job.
        resource: what no other task works on meanwhile, such as "stream shop/orders".
        arguments: those of the job.
        status: how far it is.
        created_ms: when it was submitted, wall clock.
        instance: the instance that runs it, or ran it last; None before its first start.
        attempt: how often it was started.
        stops: how many of these starts ended because their instance was closed. The others ended by deaths, or go on.
        cancelling: whether it was asked to end.
        done: how much is done, in the unit of the job, such as bytes.
        total: how much there is to do; None if it is not known.
        result: what the job returned.
        error: why it failed; None if it did not.
        finished_ms: when it ended, wall clock; None before.
    """

    __repr__ = short_repr_of_fields

    id: str
    kind: str
    resource: str
    arguments: dict[str, str | int]
    status: TaskStatus = TaskStatus.WAITING
    created_ms: int
    instance: str | None = None
    attempt: int = 0
    stops: int = 0
    cancelling: bool = False
    done: int = 0
    total: int | None = None
    result: dict[str, str | int] = attrs.field(factory=dict)
    error: str | None = None
    finished_ms: int | None = None


def _may_follow(before: TaskInfo | None, after: TaskInfo) -> str | None:
    if before is None:
        return None
    if before.status.has_ended:
        return f"it has ended: {before.status.value}"
    return "its attempt is lower" if after.attempt < before.attempt else None


TASK: Final = RecordKind(name="task", value=TaskInfo, invariant=_may_follow)


@attrs.frozen
class TaskHolder:
    """Which task runs on a resource. The key is the resource."""

    task: str


HOLDER: Final = RecordKind(name="task_holder", value=TaskHolder)

OPEN_STEP: Final = 100
"""Names of open tasks that one query reads. Higher: more are read behind the last one needed; lower: more queries."""

_OPEN: Final = "open/"
_ENDED: Final = "ended/"


def submit_task(
    tx: Tx, *, task_id: str, kind: str, resource: str, arguments: Mapping[str, str | int], joins: bool = True
) -> TaskInfo:
    """Store a task and return it. A repeated id returns its task.

    joins: return an equal task instead, if one has not ended and was not asked to end.
    Raises InvalidArgument: the id is no UUID of version 7, or belongs to another task.
    """
    try:
        id_time_ms(task_id)
    except ValueError as error:
        raise InvalidArgument(
            what="task id", value=task_id, reason="it is not a UUID of version 7 in lower case"
        ) from error
    asked = (kind, resource, dict(arguments))
    if (repeated := find_task(tx, task_id)) is not None:
        if _asked(repeated) != asked:
            reason = f"it belongs to another task: {repeated.kind} of {repeated.resource}"
            raise InvalidArgument(what="task id", value=task_id, reason=reason)
        return repeated
    for each in _open_tasks(tx, bucket_of(resource)) if joins else ():
        if _asked(each.value) == asked and not each.value.cancelling:
            return each.value
    task = TaskInfo(id=task_id, kind=kind, resource=resource, arguments=dict(arguments), created_ms=tx.now_ms)
    create(tx, TASK, _open_key(task), task)
    _wake(tx, task_id)
    return task


def is_task_open(tx: Tx, kind: str, resource: str) -> bool:
    """Return whether a task of this kind waits for the resource, or runs on it. Reads the open tasks of its bucket."""
    found = (each.value for each in _open_tasks(tx, bucket_of(resource)))
    return any((each.kind, each.resource) == (kind, resource) for each in found)


def find_task(tx: Tx, task_id: str) -> TaskInfo | None:
    """Return a task; None if it never existed, or is forgotten."""
    found = _find(tx, task_id)
    return None if found is None else found.value


def get_task(tx: Tx, task_id: str) -> TaskInfo:
    """Return a task. Raises NotFound."""
    if (found := find_task(tx, task_id)) is None:
        raise NotFound(kind="task", name=task_id)
    return found


def list_tasks(tx: Tx, *, limit: int, after: str | None = None) -> list[TaskInfo]:
    """Return the newest tasks, newest first. after: only those whose ids sort before this one, so the next page."""
    ids = sorted((key.rpartition("/")[2], key) for key in keys(tx, TASK))
    if after is not None:
        ids = [each for each in ids if each[0] < after]
    found = (find(tx, TASK, key) for _, key in ids[::-1][:limit])
    return [each.value for each in found if each is not None]


def count_tasks(tx: Tx) -> Counter[tuple[str, str]]:
    """Return how many tasks are kept, by kind and status. One query; decodes all of the last day, about 10 us each."""
    found = Counter[tuple[str, str]]()
    for key, body in bodies(tx, TASK):
        with suppress(CorruptRecord):  # who runs it logs that
            task = TASK.decode(key, body)
            found[task.kind, task.status.value] += 1
    return found


def cancel_task(tx: Tx, task_id: str) -> TaskInfo:
    """Ask a task to end; one that does not run ends immediately. Return it. Raises NotFound."""
    found = _find(tx, task_id)
    if found is None:
        raise NotFound(kind="task", name=task_id)
    task = found.value
    if task.status is TaskStatus.WAITING:
        return _end(tx, found, attrs.evolve(task, status=TaskStatus.CANCELLED, cancelling=True))
    if task.status is TaskStatus.RUNNING and not task.cancelling:
        task = attrs.evolve(task, cancelling=True)
        replace(tx, TASK, found, task)
        _wake(tx, task_id)
    return task


def cancel_tasks_of(tx: Tx, kind: str) -> None:
    """End all tasks of a kind, running ones too: for a file that no instance has open."""
    for bucket in range(BUCKET_COUNT):
        for each in list(_open_tasks(tx, bucket)):
            if each.value.kind == kind:
                _end(tx, each, attrs.evolve(each.value, status=TaskStatus.CANCELLED, cancelling=True))


def due_tasks(
    tx: Tx, buckets: Collection[int], may_run: Callable[[TaskInfo], bool], *, limit: int
) -> list[TaskInfo]:
    """Return the tasks of these buckets that may start: of each resource the running one, else the first; if `may_run`.

    limit: how many at most; the oldest.

    A task that cannot be decoded is logged, and waits without the others.
    Cost: reads up to `limit` tasks in each bucket, and those that wait before them, about 20 us each.
    """
    due: list[TaskInfo] = []
    for bucket in buckets:
        looked_at: set[str] = set()
        full = len(due) + limit
        for each in _open_tasks(tx, bucket):
            resource = each.value.resource
            if resource in looked_at:
                continue
            looked_at.add(resource)
            try:
                task = _holder(tx, resource) or each.value
            except CorruptRecord as why:
                LOG.error("no task of %s can run: %s", resource, why)
                continue
            if may_run(task):
                due.append(task)
                if len(due) == full:
                    break
    return sorted(due, key=lambda each: each.id)[:limit]


def start_task(tx: Tx, task_id: str, instance: str, may_run: Callable[[TaskInfo], bool]) -> TaskInfo | None:
    """Start a task at this instance; return None if it may not start any more, or ended instead.

    The caller has compared the ownership of the bucket in this transaction.
    """
    found = _find(tx, task_id)
    if found is None or found.value.status.has_ended or not may_run(found.value):
        return None
    task = found.value
    if (holder := _holder(tx, task.resource)) is not None and holder.id != task_id:
        return None
    if task.cancelling:
        _end(tx, found, attrs.evolve(task, status=TaskStatus.CANCELLED))
        return None
    if (deaths := task.attempt - task.stops) >= ATTEMPTS_MAX:
        error = f"{deaths} instances ended while they ran it; submit it again to try again"
        _end(tx, found, attrs.evolve(task, status=TaskStatus.FAILED, error=error))
        return None
    started = attrs.evolve(task, status=TaskStatus.RUNNING, instance=instance, attempt=task.attempt + 1)
    replace(tx, TASK, found, started)
    if holder is None:
        create(tx, HOLDER, task.resource, TaskHolder(task_id))
    _wake(tx, task_id)
    return started


def release_task(tx: Tx, started: TaskInfo) -> None:
    """Let a running task wait for another instance, because this one is being closed. Does nothing if it has ended.

    Another attempt will run it. This one does not count as a death.
    """
    found = _find(tx, started.id)
    if (
        found is None
        or found.value.status is not TaskStatus.RUNNING
        or found.value.attempt != started.attempt
    ):
        return
    replace(
        tx, TASK, found, attrs.evolve(found.value, status=TaskStatus.WAITING, stops=found.value.stops + 1)
    )
    _give_back(tx, found.value)
    _wake(tx, started.id)


def hold_task(tx: Tx, started: TaskInfo) -> Versioned[TaskInfo]:
    """Return the record of a running task. Raises OwnerFenced if another attempt began, or it has ended."""
    found = _find(tx, started.id)
    attempt = 0 if found is None else found.value.attempt
    if found is None or found.value.status is not TaskStatus.RUNNING or attempt != started.attempt:
        raise OwnerFenced(what=f"task {started.id}", owner_epoch=started.attempt, current_epoch=attempt)
    return found


def note_progress(tx: Tx, started: TaskInfo, done: int, total: int | None) -> None:
    """Store how far a running task is. Raises OwnerFenced, and TaskCancelled if it was asked to end."""
    found = hold_task(tx, started)
    if found.value.cancelling:
        raise TaskCancelled
    if (found.value.done, found.value.total) != (done, total):
        replace(tx, TASK, found, attrs.evolve(found.value, done=done, total=total))
        tx.wake(_channel(started.id))


def end_task(
    tx: Tx,
    started: TaskInfo,
    status: TaskStatus,
    *,
    done: int,
    total: int | None,
    result: Mapping[str, str | int] | None = None,
    error: str | None = None,
) -> TaskInfo:
    """Store the outcome of a running task. Raises OwnerFenced."""
    found = hold_task(tx, started)
    text = None if error is None else storable(error, ERROR_CHARS_MAX)
    ended = attrs.evolve(
        found.value, status=status, done=done, total=total, result=dict(result or {}), error=text
    )
    return _end(tx, found, ended)


def forget_task(tx: Tx, task_id: str) -> None:
    """Delete a task that has ended. Does nothing if it is forgotten already."""
    if (found := _find(tx, task_id)) is not None:
        delete(tx, TASK, found)


def forget_tasks(tx: Tx, *, limit: int = 1000) -> bool:
    """Delete at most `limit` tasks that ended more than TASK_MEMORY_MS ago. Return whether there may be more."""
    before_ms = tx.now_ms - TASK_MEMORY_MS
    old = [key for key in keys(tx, TASK, prefix=_ENDED, limit=limit) if key < _ENDED + id_floor(before_ms)]
    ended = decodable(tx, TASK, old)
    gone = [each.key for each in ended if (each.value.finished_ms or 0) < before_ms]
    delete_all(tx, TASK, gone)
    return len(gone) == limit


WATCH_TASKS: Final = Watch(TASKS_CHANNEL, partial(counted, name=COUNTER))
"""The watch for tasks that were submitted, started, released or ended. Each wake-up costs one look-up."""


def watch_task(task_id: str) -> Watch:
    """Return the watch for any change of a task."""

    def probe(tx: Tx) -> tuple[str, int] | None:
        found = _find(tx, task_id)
        return None if found is None else (found.key, found.version)

    return Watch(_channel(task_id), probe)


def _end(tx: Tx, found: Versioned[TaskInfo], ended: TaskInfo) -> TaskInfo:
    ended = attrs.evolve(ended, finished_ms=tx.now_ms)
    _give_back(tx, ended)
    delete(tx, TASK, found)
    create(tx, TASK, _ENDED + ended.id, ended)
    _wake(tx, ended.id)
    return ended


def _holder(tx: Tx, resource: str) -> TaskInfo | None:
    """Return the running task of a resource. Two look-ups."""
    holder = find(tx, HOLDER, resource)
    found = None if holder is None else find(tx, TASK, f"{_OPEN}{bucket_of(resource):02}/{holder.value.task}")
    return None if found is None else found.value


def _give_back(tx: Tx, task: TaskInfo) -> None:
    """Let another task have the resource, if this one has it."""
    holder = find(tx, HOLDER, task.resource)
    if holder is not None and holder.value.task == task.id:
        delete(tx, HOLDER, holder)


def _find(tx: Tx, task_id: str) -> Versioned[TaskInfo] | None:
    """Return a task of an id. At most 17 look-ups, about 5 us each."""
    places = (_ENDED, *(f"{_OPEN}{bucket:02}/" for bucket in range(BUCKET_COUNT)))
    found = (find(tx, TASK, place + task_id) for place in places)
    return next((each for each in found if each is not None), None)


def _open_tasks(tx: Tx, bucket: int) -> Iterator[Versioned[TaskInfo]]:
    last = ""
    while page := keys(tx, TASK, prefix=f"{_OPEN}{bucket:02}/", after=last, limit=OPEN_STEP):
        yield from decodable(tx, TASK, page)
        last = page[-1]


def _open_key(task: TaskInfo) -> str:
    return f"{_OPEN}{bucket_of(task.resource):02}/{task.id}"


def _channel(task_id: str) -> tuple[str, str]:
    return "task", task_id


def _asked(task: TaskInfo) -> tuple[str, str, dict[str, str | int]]:
    return task.kind, task.resource, task.arguments


def _wake(tx: Tx, task_id: str) -> None:
    count_up(tx, COUNTER)
    tx.wake(TASKS_CHANNEL)
    tx.wake(_channel(task_id))


WATCH_INGESTION: Final = Watch(INGEST_CHANNEL, partial(counted, name=INGEST_CHANNEL))
"""The subscription to everything that supervisors or workers must see. Each wake-up costs one look-up."""


def has_supervisors(tx: Tx) -> bool:
    """Return whether a supervisor was ever submitted: what runs them is imported then. One look-up."""
    return tx.execute("SELECT 1 FROM supervisor LIMIT 1").fetchone() is not None
