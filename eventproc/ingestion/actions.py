"""What a supervisor decides to do, as values, and how they are done: all actions of a decision in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import attrs

from eventproc.ingestion.memory import Memory
from eventproc.store.database import Tx
from eventproc.store.ingestion import announce, post_notice
from eventproc.store.ingestion.holds import hold_unpublished
from eventproc.store.ingestion.logs import log_now
from eventproc.store.ingestion.rows import (
    IngestOffset,
    count_task,
    delete_group,
    delete_offset,
    find_task,
    forget_streams,
    forget_tasks,
    open_sequence,
    write_group,
    write_offset,
    write_sequence,
    write_stream,
    write_task,
)
from eventproc.store.ingestion.supervisors import end_supervisor
from eventproc.store.ingestion.tasks import end_task
from eventproc.store.model.ingestion import (
    NO_POSITIONS,
    IngestGroup,
    IngestSequence,
    IngestTask,
    PartitionKey,
    Positions,
    SequenceState,
    TaskState,
)

TASKS_KEPT = 200
"""Ended tasks of a supervisor whose reports are kept. Higher: more history, about 1 kB each."""


@attrs.frozen
class NoteStream:
    """Read this incarnation of a stream from now on."""

    name: str
    stream_id: int


@attrs.frozen
class SetOffset:
    """Set the committed offset of a partition."""

    key: PartitionKey
    offset: IngestOffset


@attrs.frozen
class ForgetOffset:
    """Forget the committed offset of a partition that exists no more."""

    key: PartitionKey


@attrs.frozen
class ForgetOffsets:
    """Forget all committed offsets, and the incarnations of the streams."""


@attrs.frozen
class ForgetStream:
    """Forget a stream that exists no more, with its committed offsets."""

    stream_id: int


@attrs.frozen
class CreateGroup:
    """Let a new group read."""

    group: IngestGroup


@attrs.frozen
class ExtendGroup:
    """Let a reading group read more partitions. group: with them."""

    group: IngestGroup
    added: Positions


@attrs.frozen
class EndGroup:
    """Let a group read to its ends, publish, and complete. group: with its ends and deadline."""

    group: IngestGroup


@attrs.frozen
class SetDeadline:
    """Let the time of a pending group begin again, or stop. group: with its deadline."""

    group: IngestGroup


@attrs.frozen
class DropGroup:
    """Remove a group that is complete or failed."""

    base: str


@attrs.frozen
class CreateTask:
    """Let a worker take a new task."""

    task: IngestTask


@attrs.frozen
class EndTask:
    """End a task, and fence its worker. reason: for its log, if it did not fail."""

    task_id: str
    state: TaskState
    error: str | None = None
    reason: str | None = None


@attrs.frozen
class CountTask:
    """Note that the end of a task was seen."""

    task_id: str


@attrs.frozen
class HoldEvents:
    """Keep these events readable until a wall time, and no others. ends: of the ranges that have one."""

    starts: Positions
    until_ms: int
    ends: Positions = NO_POSITIONS


@attrs.frozen
class PostNotice:
    """Put a notice into the supervisor's queue."""

    kind: str
    body: str


@attrs.frozen
class EndSupervisor:
    """Forget a terminated supervisor."""


Action: TypeAlias = (
    NoteStream
    | SetOffset
    | ForgetOffset
    | ForgetOffsets
    | ForgetStream
    | CreateGroup
    | ExtendGroup
    | EndGroup
    | SetDeadline
    | DropGroup
    | CreateTask
    | EndTask
    | CountTask
    | HoldEvents
    | PostNotice
    | EndSupervisor
)


@attrs.frozen
class Decision:
    """What to do, in this order, what to remember, and when the next run is due (wall ms); None: as before."""

    actions: Sequence[Action]
    memory: Memory
    due_ms: int | None


def apply_actions(tx: Tx, supervisor: str, actions: Sequence[Action]) -> None:
    """Do what was decided. Cost: one statement or two per action."""
    for action in actions:
        _apply(tx, supervisor, action)
    if any(not isinstance(each, HoldEvents) for each in actions):
        forget_tasks(tx, supervisor, kept=TASKS_KEPT)
        announce(tx)


def _apply(tx: Tx, supervisor: str, action: Action) -> None:
    match action:
        case NoteStream(name, stream_id):
            write_stream(tx, supervisor, name, stream_id)
        case SetOffset(key, offset):
            write_offset(tx, supervisor, key, offset)
        case ForgetOffset(key):
            delete_offset(tx, supervisor, key)
        case ForgetOffsets():
            forget_streams(tx, supervisor)
        case ForgetStream(stream_id):
            forget_streams(tx, supervisor, stream_id)
        case CreateGroup(group):
            write_group(tx, group)
            write_sequence(tx, _open(group.base, 0, group.starts))
        case ExtendGroup(group, added):
            write_group(tx, group)
            current = open_sequence(tx, group.base)
            assert current is not None, "an active group has an open sequence"
            write_sequence(tx, attrs.evolve(current, starts={**current.starts, **added}))
        case EndGroup(group):
            write_group(tx, group)
            current = open_sequence(tx, group.base)
            assert current is not None, "an active group has an open sequence"
            write_sequence(tx, attrs.evolve(current, ends=group.ends, state=SequenceState.CLOSED))
        case SetDeadline(group):
            write_group(tx, group)
        case DropGroup(base):
            delete_group(tx, base)
        case CreateTask(task):
            write_task(tx, task)
            log_now(tx, task.id, f"created, as replica {task.replica}; it waits for a worker")
        case EndTask(task_id, state, error, reason):
            if (found := find_task(tx, task_id)) is not None and found.state.live:
                end_task(tx, found, state, error=error, reason=reason)
            count_task(tx, task_id)
        case CountTask(task_id):
            count_task(tx, task_id)
        case HoldEvents(starts, until_ms, ends):
            hold_unpublished(tx, supervisor, starts, until_ms, ends)
        case PostNotice(kind, body):
            post_notice(tx, supervisor, kind, body)
        case EndSupervisor():
            end_supervisor(tx, supervisor)


def _open(base: str, n: int, starts: Positions) -> IngestSequence:
    return IngestSequence(base=base, n=n, starts=starts, ends=None, state=SequenceState.OPEN)
