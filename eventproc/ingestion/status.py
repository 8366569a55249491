"""What a supervisor shows: its state, its tasks, its lag, its history. Functions of one snapshot."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce

import attrs

from eventproc.ingestion.decisions import task_count_of
from eventproc.ingestion.health import SupervisorError, SupervisorState
from eventproc.ingestion.memory import TaskTotals, with_task
from eventproc.ingestion.spec import SupervisorSpec
from eventproc.ingestion.working_state import Situation
from eventproc.store.database import Tx
from eventproc.store.ingestion import SpecVersion, read_workers
from eventproc.store.ingestion.rows import tasks_by_worker
from eventproc.store.ingestion.view import IngestView, furthest_reads
from eventproc.store.model.ids import SegmentId, format_segment
from eventproc.store.model.ingestion import (
    IngestGroup,
    IngestGroupState,
    IngestTask,
    PartitionKey,
    Positions,
    TaskState,
    TaskStats,
)
from eventproc.store.model.list_pages import ListPage
from eventproc.store.model.short_repr import short_repr_of_fields


@attrs.frozen(kw_only=True)
class IngestPartition:
    """A segment that a supervisor reads.

    group: number of the group that reads it, None without one. offset: what is published. read: how far a task has
    read. tail: its end now. lag: events between `read` and `tail`. closed: it is sealed, and published to its end.
    """

    __repr__ = short_repr_of_fields

    stream: str
    segment: SegmentId
    group: int | None
    offset: int
    read: int
    tail: int
    lag: int
    closed: bool


@attrs.frozen(kw_only=True)
class IngestTaskInfo:
    """A task: one replica of a group.

    group: number of its group. publishing: whether its group has ended, so that the task reads to given ends and
    publishes. state: waiting, running, succeeded, failed or stopped. worker: instance that runs it.
    starts: where its group began, {"stream segment": offset}. read: how far it has read.
    remaining_ms: until the group ends, or must have completed; not below 0; None if the task has ended, or its
    group waits for one before it.
    error: why it failed. stats: what it did.
    """

    __repr__ = short_repr_of_fields

    id: str
    group: int | None
    replica: int
    publishing: bool
    state: TaskState
    worker: str | None
    created_ms: int
    started_ms: int | None
    finished_ms: int | None
    starts: Mapping[str, int]
    read: Mapping[str, int]
    remaining_ms: int | None
    error: str | None
    stats: TaskStats


@attrs.frozen(kw_only=True)
class SupervisorInfo:
    """A supervisor as `Eventproc.supervisors` lists it. version: of its spec."""

    __repr__ = short_repr_of_fields

    id: str
    datasource: str
    state: SupervisorState
    healthy: bool
    suspended: bool
    version: int


@attrs.frozen(kw_only=True)
class SupervisorStatus(SupervisorInfo):
    """What a supervisor does now.

    task_count: groups that should read. partitions: those that are not closed.
    active, publishing: running and waiting tasks. waiting: how many of them no worker has taken.
    lag: events behind, of all partitions. errors: the newest, the oldest first.
    autoscaler: the last thing that it decided, and why; None without one.
    totals: what all of its tasks have done, running ones included.
    """

    __repr__ = short_repr_of_fields

    streams: tuple[str, ...]
    task_count: int
    replicas: int
    task_duration_ms: int
    partitions: tuple[IngestPartition, ...]
    active: tuple[IngestTaskInfo, ...]
    publishing: tuple[IngestTaskInfo, ...]
    waiting: int
    lag: int
    errors: tuple[SupervisorError, ...]
    autoscaler: str | None
    totals: TaskTotals
    at_ms: int


@attrs.frozen(kw_only=True)
class IngestWorkerInfo:
    """A process that runs ingestion tasks: `eventproc ingest worker`.

    instance: its opening of the store, which `cluster list` shows too.
    machine, pid: where it runs; None if an older version of eventproc registered it.
    slots: how many tasks it runs simultaneously. tasks: ids of those that it runs now.
    seen_ms: its last heartbeat, of the worker, which writes one each minute, or of a task; wall time.
    alive: False: it died without leaving, or its machine cannot reach the server; it is listed for an hour.
    """

    __repr__ = short_repr_of_fields

    instance: str
    machine: str | None
    pid: int | None
    slots: int
    tasks: tuple[str, ...]
    started_ms: int
    seen_ms: int
    alive: bool


@attrs.frozen(kw_only=True)
class SupervisorVersion:
    """One version of a supervisor's spec. spec: None if this version terminated the supervisor."""

    __repr__ = short_repr_of_fields

    version: int
    created_ms: int
    spec: SupervisorSpec | None

    @classmethod
    def of(cls, stored: SpecVersion) -> SupervisorVersion:
        """Return the version that is stored."""
        spec = None if stored.text is None else SupervisorSpec.parse(stored.text)
        return cls(version=stored.version, created_ms=stored.created_ms, spec=spec)


def describe_supervisor(situation: Situation) -> SupervisorStatus:
    """Return the status that a situation shows. It must have been read with lags."""
    view, spec, memory = situation.view, situation.spec, situation.memory
    tasks = [task_info(situation, each) for each in view.tasks if each.state.live]
    lags = view.lags or {}
    return SupervisorStatus(
        **attrs.asdict(supervisor_info(situation), recurse=False),
        streams=tuple(view.wanted),
        task_count=task_count_of(spec, memory),
        replicas=spec.io.replicas,
        task_duration_ms=spec.io.task_duration_ms,
        partitions=tuple(_partitions(view)),
        active=tuple(each for each in tasks if not each.publishing),
        publishing=tuple(each for each in tasks if each.publishing),
        waiting=sum(each.state is TaskState.WAITING for each in tasks),
        lag=sum(max(each, 0) for each in lags.values()),
        errors=memory.health.errors,
        autoscaler=memory.last_scale_reason,
        totals=reduce(with_task, view.tasks, memory.totals),
        at_ms=view.now_ms,
    )


def describe_workers(tx: Tx, page: ListPage, is_alive: Callable[[str], bool]) -> list[IngestWorkerInfo]:
    """Return the workers of a page. is_alive: of an instance. Cost: two queries, a look at each worker's lock."""
    running = tasks_by_worker(tx)
    return [
        IngestWorkerInfo(
            instance=each.instance,
            machine=each.machine,
            pid=each.pid,
            slots=each.slots,
            tasks=tuple(tasks := running.get(each.instance, {})),
            started_ms=each.started_ms,
            seen_ms=max(each.seen_ms, *tasks.values()) if tasks else each.seen_ms,
            alive=is_alive(each.instance),
        )
        for each in read_workers(tx, page)
    ]


def supervisor_info(situation: Situation) -> SupervisorInfo:
    """Return the line of a supervisor in a list."""
    state = situation.memory.health.state
    return SupervisorInfo(
        id=situation.view.supervisor,
        datasource=situation.spec.schema.datasource,
        state=state,
        healthy=state.healthy,
        suspended=situation.spec.suspended,
        version=situation.version,
    )


def _partitions(view: IngestView) -> list[IngestPartition]:
    groups = {
        key: each.gid for each in view.groups if each.state is IngestGroupState.ACTIVE for key in each.starts
    }
    furthest = furthest_reads(view)
    return [
        IngestPartition(
            stream=_stream_name(view, key),
            segment=key[1],
            group=groups.get(key),
            offset=offset.offset,
            read=furthest[key],
            tail=view.partitions[key].tail,
            lag=(view.lags or {}).get(key, 0),
            closed=offset.closed,
        )
        for key, offset in view.offsets.items()
        if key in view.partitions and not offset.closed
    ]


def task_info(situation: Situation, task: IngestTask) -> IngestTaskInfo:
    """Return what is shown of a task, also of one that has ended."""
    view = situation.view
    group = next((each for each in view.groups if each.base == task.base), None)
    starts = {} if group is None else group.starts
    return IngestTaskInfo(
        id=task.id,
        group=None if group is None else group.gid,
        replica=task.replica,
        publishing=group is not None and group.state is IngestGroupState.PENDING,
        state=task.state,
        worker=task.worker,
        created_ms=task.created_ms,
        started_ms=task.started_ms,
        finished_ms=task.finished_ms,
        starts=_named(view, starts),
        read=_named(view, task.read),
        remaining_ms=_remaining_ms(situation, group, task),
        error=task.error,
        stats=task.stats,
    )


def _remaining_ms(situation: Situation, group: IngestGroup | None, task: IngestTask) -> int | None:
    if group is None or not task.state.live:
        return None
    if group.state is IngestGroupState.PENDING:
        if group.deadline_ms is None:
            return None
        ends_ms = group.deadline_ms
    else:
        started_ms = situation.view.now_ms if task.started_ms is None else task.started_ms
        ends_ms = started_ms + situation.spec.io.task_duration_ms
    return max(ends_ms - situation.view.now_ms, 0)


def _named(view: IngestView, positions: Positions) -> dict[str, int]:
    return {
        f"{_stream_name(view, key)} {format_segment(key[1])}": offset
        for key, offset in sorted(positions.items())
    }


def _stream_name(view: IngestView, key: PartitionKey) -> str:
    names = {stream_id: name for name, stream_id in {**view.noted, **view.found}.items()}
    return names.get(key[0], f"stream {key[0]}")
