"""What a worker does to its tasks: claim them, plan slices, close sequences, end them.

The end of a slice is durable before the slice is read. So a supervisor that ends a group takes the greatest planned end
of its replicas, in one transaction, and stops no task. Every call compares the task's row with the caller, so that a
worker that was suspended while its tasks were replaced changes nothing. Source: docs/design/ingestion.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import attrs

from eventproc.store.database import Tx, upsert
from eventproc.store.ingestion.logs import log_now
from eventproc.store.ingestion.notices import announce, post_notice
from eventproc.store.ingestion.rows import (
    find_group,
    find_sequence,
    find_task,
    get_sequence,
    read_sequences,
    read_streams,
    running_bases,
    tasks_of_group,
    tasks_of_worker,
    waiting_tasks,
    write_sequence,
    write_task,
)
from eventproc.store.model.argument_checks import storable
from eventproc.store.model.errors import InvalidArgument
from eventproc.store.model.ids import format_segment
from eventproc.store.model.ingestion import (
    IngestGroup,
    IngestGroupState,
    IngestSequence,
    IngestTask,
    PartitionKey,
    Positions,
    SequenceState,
    SlicePlan,
    TaskState,
    TaskStats,
    sequence_ends,
)
from eventproc.store.model.ingestion_errors import TaskFenced
from eventproc.store.model.list_pages import COMPLETE, ListPage

ERROR_CHARS_MAX: Final = 2_000
"""Characters of a task's error that are kept."""

PUBLISHED: Final = "everything of its group is published"
"""Why a task is stopped whose work another replica has done."""

DEAD_KEPT_MS: Final = 3_600_000
"""How long a worker that died is listed, after its last heartbeat. Higher: more rows, for a longer look back."""


@attrs.frozen(kw_only=True)
class TaskOrder:
    """A task with all that its worker needs to begin, or to begin again.

    n, starts: the sequence to begin with, behind what the group has published. streams: names by stream id.
    """

    task: IngestTask
    group: IngestGroup
    n: int
    starts: Positions
    streams: Mapping[int, str]


@attrs.frozen
class IngestWorker:
    """A process that runs tasks. instance: of its opening, whose lock shows that it lives.

    machine, pid: where it runs; None if that is not known. seen_ms: its last heartbeat, in wall ms.
    """

    instance: str
    slots: int
    started_ms: int
    machine: str | None
    pid: int | None
    seen_ms: int


def register_worker(
    tx: Tx, instance: str, slots: int, *, machine: str | None = None, pid: int | None = None
) -> None:
    """Announce a worker that can run `slots` tasks simultaneously. machine, pid: where it runs, for display."""
    tx.execute(
        upsert("ingest_worker", "instance", "slots, started_ms, machine, pid, seen_ms"),
        (instance, slots, tx.now_ms, machine, pid, tx.now_ms),
    )
    announce(tx)


def keep_worker(tx: Tx, instance: str) -> None:
    """Note a heartbeat of a worker."""
    tx.execute("UPDATE ingest_worker SET seen_ms = ? WHERE instance = ?", (tx.now_ms, instance))


def forget_worker(tx: Tx, instance: str, failure: str | None = None) -> None:
    """Remove a worker that leaves; its tasks are stopped, and their supervisors replace them.

    failure: why it cannot go on; None: it leaves by itself. For each supervisor, it counts as the failure of one task.
    """
    tx.execute("DELETE FROM ingest_worker WHERE instance = ?", (instance,))
    counted: set[str] = set()
    for task in tasks_of_worker(tx, instance):
        counts = failure is not None and task.supervisor not in counted
        counted.add(task.supervisor)
        end_task(
            tx, task, TaskState.FAILED if counts else TaskState.STOPPED, error=failure or "its worker left"
        )
        post_notice(tx, task.supervisor)
    announce(tx)


def forget_dead_workers(tx: Tx, is_alive: Callable[[str], bool]) -> None:
    """Remove the workers that died without leaving, DEAD_KEPT_MS ago. Their supervisors end their tasks.

    is_alive: of an instance.
    """
    for each in read_workers(tx):
        if each.seen_ms <= tx.now_ms - DEAD_KEPT_MS and not is_alive(each.instance):
            tx.execute("DELETE FROM ingest_worker WHERE instance = ?", (each.instance,))


def read_workers(tx: Tx, page: ListPage = COMPLETE) -> list[IngestWorker]:
    """Return the registered workers, dead ones included, by instance. One query."""
    rows = tx.execute(
        "SELECT instance, slots, started_ms, machine, pid, coalesce(seen_ms, started_ms) FROM ingest_worker"
        " WHERE instance > ? ORDER BY instance LIMIT ?",
        (page.after or "", page.most),
    )
    return [IngestWorker(*row) for row in rows.fetchall()]


def claim_tasks(tx: Tx, worker: str, slots_free: int, is_alive: Callable[[str], bool]) -> list[TaskOrder]:
    """Take waiting tasks, at most `slots_free`: those of groups without a running task first, then the oldest.

    A worker takes no second replica of a group while another live worker runs none and has a free slot.
    is_alive: of an instance.
    """
    if slots_free < 1 or not (waiting := waiting_tasks(tx)):
        return []
    served = running_bases(tx)
    firsts = {each.base: each.id for each in reversed(waiting) if each.base not in served}
    waiting.sort(key=lambda each: firsts.get(each.base) != each.id)
    others = [
        {each.base for each in running}
        for other in read_workers(tx)
        if other.instance != worker
        and is_alive(other.instance)
        and len(running := tasks_of_worker(tx, other.instance)) < other.slots
    ]
    bases = {each.base for each in tasks_of_worker(tx, worker)}
    taken: list[TaskOrder] = []
    for task in waiting:
        is_second = task.base in bases and any(task.base not in running for running in others)
        if len(taken) == slots_free or is_second:
            continue
        group = find_group(tx, task.base)
        if group is None:  # it ended meanwhile; the supervisor has not seen this task yet
            end_task(tx, task, TaskState.STOPPED, reason="its group has ended")
            continue
        unpublished = [
            each for each in read_sequences(tx, task.base) if each.state is not SequenceState.PUBLISHED
        ]
        if not unpublished:  # a replica published everything; the supervisor has not seen it yet
            end_task(tx, task, TaskState.STOPPED, reason=PUBLISHED)
            continue
        first = unpublished[0]
        bases.add(task.base)
        claimed = attrs.evolve(
            task,
            state=TaskState.RUNNING,
            worker=worker,
            n=first.n,
            read=first.starts,
            planned=first.starts,
            started_ms=tx.now_ms,
            seen_ms=tx.now_ms,
        )
        write_task(tx, claimed)
        taken.append(order := _order(tx, claimed, group, first))
        log_now(tx, task.id, f"begun by worker {worker}, for group {group.gid}")
        log_now(tx, task.id, _sequence_text("reads", first.n, first.starts, order.streams))
    if taken:
        announce(tx)
    return taken


def own_tasks(tx: Tx, worker: str) -> list[TaskOrder]:
    """Return the live tasks of a worker. A task that it runs and that is missing here was stopped."""
    tasks = tasks_of_worker(tx, worker)
    groups = {each.base: find_group(tx, each.base) for each in tasks}
    return [
        _order(tx, task, group, get_sequence(tx, task.base, task.n))
        for task in tasks
        if (group := groups[task.base]) is not None
    ]


def _order(tx: Tx, task: IngestTask, group: IngestGroup, sequence: IngestSequence) -> TaskOrder:
    streams = _stream_names(tx, task.supervisor)
    return TaskOrder(task=task, group=group, n=sequence.n, starts=sequence.starts, streams=streams)


def _sequence_text(verb: str, n: int, positions: Positions, streams: Mapping[int, str]) -> str:
    """Return a line about a sequence. positions: where it begins or ends."""
    places = ", ".join(
        f"{streams.get(key[0], f'stream {key[0]}')} {format_segment(key[1])} at {offset:,}"
        for key, offset in sorted(positions.items())
    )
    return f"{verb} sequence {n}: {places}"


def _stream_names(tx: Tx, supervisor: str) -> Mapping[int, str]:
    return {stream_id: name for name, stream_id in read_streams(tx, supervisor).items()}


def get_running(tx: Tx, task_id: str, worker: str) -> IngestTask:
    """Return a task that this worker still runs. Raises TaskFenced."""
    task = find_task(tx, task_id)
    if task is None or task.worker != worker or task.state is not TaskState.RUNNING:
        raise TaskFenced(task=task_id, state="replaced" if task is None else task.state.value)
    return task


def with_publications(task: IngestTask, stats: TaskStats) -> TaskStats:
    """Return what a worker reports of a task, with its publications, which `publish` counts."""
    return attrs.evolve(stats, published=task.stats.published)


def plan_slice(
    tx: Tx,
    task_id: str,
    worker: str,
    n: int,
    *,
    read: Positions,
    wanted: Positions,
    stats: TaskStats,
) -> SlicePlan:
    """Report how far sequence `n` was read, and return what to read next. To be called at each border of a slice.

    wanted: where the next slice should end in each partition; a missing one is not read now. The plan bounds it by the
    sequence's ends. An empty `until` with `closed` means that the sequence was read to its end, or is published.
    Raises TaskFenced; NotFound if the group has no such sequence.
    """
    task = get_running(tx, task_id, worker)
    sequence = get_sequence(tx, task.base, n)
    until: dict[PartitionKey, int] = {}
    if sequence.state is not SequenceState.PUBLISHED:
        for key, start in sequence.starts.items():
            at = max(read.get(key, start), start)
            end = max(wanted.get(key, at), at)
            if sequence.ends is not None:
                end = min(end, sequence.ends[key])
            if end > at:
                until[key] = end
    done = {key: max(read.get(key, start), start) for key, start in sequence.starts.items()}
    write_task(
        tx,
        attrs.evolve(
            task,
            n=n,
            read=done,
            planned={**done, **until},
            seen_ms=tx.now_ms,
            stats=with_publications(task, stats),
        ),
    )
    return SlicePlan(
        n=n,
        streams=_stream_names(tx, task.supervisor),
        starts=sequence.starts,
        ends=sequence.ends,
        until=until,
        final=_is_final(tx, sequence),
        state=sequence.state,
    )


def _is_final(tx: Tx, sequence: IngestSequence) -> bool:
    """Return whether no sequence follows. A group that reads always has an open one behind the closed ones."""
    return (
        sequence.state is not SequenceState.OPEN and find_sequence(tx, sequence.base, sequence.n + 1) is None
    )


def close_sequence(tx: Tx, task_id: str, worker: str, n: int) -> Positions:
    """End sequence `n` while its group goes on reading, and open the next; return the ends.

    A replica that closed it first has set the ends. Raises TaskFenced, NotFound.
    """
    task = get_running(tx, task_id, worker)
    sequence = get_sequence(tx, task.base, n)
    if sequence.ends is not None:
        return sequence.ends
    group = find_group(tx, task.base)
    assert group is not None, "a group with an open sequence exists"
    ends = sequence_ends(sequence, tasks_of_group(tx, group))
    write_sequence(tx, attrs.evolve(sequence, ends=ends, state=SequenceState.CLOSED))
    write_sequence(
        tx,
        IngestSequence(base=task.base, n=n + 1, starts=ends, ends=None, state=SequenceState.OPEN),
    )
    log_now(tx, task_id, _sequence_text("closed", n, ends, _stream_names(tx, task.supervisor)))
    announce(tx)
    return ends


def keep_task(tx: Tx, task_id: str, worker: str, stats: TaskStats) -> None:
    """Write a heartbeat, for a task that writes or publishes for long. Raises TaskFenced."""
    task = get_running(tx, task_id, worker)
    write_task(tx, attrs.evolve(task, seen_ms=tx.now_ms, stats=with_publications(task, stats)))


def finish_task(tx: Tx, task_id: str, worker: str, *, error: str | None, stats: TaskStats) -> None:
    """End a task: with an error, or because everything to its group's ends is published.

    Raises TaskFenced; InvalidArgument if there is no error and something is left to publish.
    """
    task = get_running(tx, task_id, worker)
    if error is None:
        group = find_group(tx, task.base)
        left = [each.n for each in read_sequences(tx, task.base) if each.state is not SequenceState.PUBLISHED]
        if left or (group is not None and group.state is IngestGroupState.ACTIVE):
            raise InvalidArgument(
                what="task", value=task_id, reason=f"it has not published its sequences {left or 'to come'}"
            )
    state = TaskState.SUCCEEDED if error is None else TaskState.FAILED
    end_task(tx, attrs.evolve(task, stats=with_publications(task, stats)), state, error=error)
    post_notice(tx, task.supervisor)


def end_task(
    tx: Tx, task: IngestTask, state: TaskState, *, error: str | None = None, reason: str | None = None
) -> None:
    """Write the final state of a task. From then on its worker is fenced. reason: for its log, if it did not fail."""
    text = None if error is None else storable(error, ERROR_CHARS_MAX)
    write_task(tx, attrs.evolve(task, state=state, finished_ms=tx.now_ms, error=text))
    log_now(tx, task.id, ": ".join(filter(None, (state.value, error or reason))))
