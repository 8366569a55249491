"""Groups in the database: a record and a log each, and rows for segments and members.

The log holds the state (`state`), as updates and a snapshot now and then. A change folds its tail, applies updates,
appends them, and writes the rows that differ, in one transaction; within it nobody else can change the group, so that
there are no conflicts. The rows are what SQL needs: progress moves in them alone, fenced by the owner epoch that the
log decided (`store.progress.move_progress`), and comes to the log when a segment changes hands.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final

import attrs

from eventproc.groups.keys import SegmentKey
from eventproc.groups.state import GroupState, SegmentAssignment, apply
from eventproc.groups.updates import (
    CheckpointPassed,
    CheckpointStarted,
    GroupReset,
    PauseChanged,
    ReaderJoined,
    ReaderLeft,
    SegmentCompleted,
    SegmentProgress,
    SegmentsAcquired,
    SegmentsReleased,
    StreamAdded,
    StreamSkipped,
    Update,
)
from eventproc.store.database import Tx, Watch
from eventproc.store.groups import GROUP, GroupRecord, topic_of
from eventproc.store.model.errors import NotFound
from eventproc.store.model.progress import Progress
from eventproc.store.progress import progress_of_text, progress_text
from eventproc.store.records import Versioned, get, replace
from eventproc.store.replicated import FoldedState, ReplicatedType, append, fold_tail

GROUP_LOG: Final[ReplicatedType[GroupState, Update]] = ReplicatedType(
    name="group",
    state=GroupState,
    updates={
        "joined": ReaderJoined,
        "left": ReaderLeft,
        "acquired": SegmentsAcquired,
        "released": SegmentsReleased,
        "completed": SegmentCompleted,
        "stream_added": StreamAdded,
        "stream_skipped": StreamSkipped,
        "reset": GroupReset,
        "pause_set": PauseChanged,
        "checkpoint_started": CheckpointStarted,
        "checkpoint_passed": CheckpointPassed,
    },
    fold=apply,
)


def watch_group(group: str) -> Watch:
    """Return what to subscribe to in order to learn of changes of members and owners. One look-up a bell."""

    def probe(tx: Tx) -> object:
        row = tx.execute(
            "SELECT version FROM record WHERE kind = ? AND key = ?", (GROUP.name, group)
        ).fetchone()
        return None if row is None else row[0]

    return Watch(topic_of(group), probe)


def watch_progress(group: str) -> Watch:
    """Return what to subscribe to in order to learn that segments are finished further. One query a bell.

    Another process's ranges beyond a completed prefix are not heard of before the prefix has moved.
    """

    def probe(tx: Tx) -> object:
        # Between two changes of the group, which others watch, no prefix moves back: the sum tells of each move.
        return tx.execute(
            "SELECT total(number) FROM group_segment WHERE group_name = ?", (group,)
        ).fetchone()[0]

    return Watch(progress_topic(group), probe)


def progress_topic(group: str) -> tuple[str, str]:
    """Return what to wake when progress of a group was made durable."""
    return "progress", group


def change(tx: Tx, name: str, *updates: Update) -> GroupState:
    """Apply updates to the group, and return its state. Raises NotFound."""
    record = get(tx, GROUP, name)
    before = folded_state(tx, record.value).state
    if not updates:
        return before
    after = append(tx, record.value.log, GROUP_LOG, updates).state
    write_state(tx, record, before, after)
    return after


def folded_state(
    tx: Tx, group: GroupRecord, known: FoldedState[GroupState] | None = None
) -> FoldedState[GroupState]:
    """Return the group's state; progress is as of the last change of hands. known: a state to go on from."""
    folded = fold_tail(tx, group.log, GROUP_LOG, known=known)
    if folded is None:
        raise NotFound(kind="state of group", name=group.name)
    return folded


def positions_of(tx: Tx, name: str, keys: Iterable[SegmentKey]) -> tuple[SegmentProgress, ...]:
    """Return the durable progress of segments of the group. One look-up each."""
    found: list[SegmentProgress] = []
    for stream_id, segment in keys:
        row = tx.execute(
            "SELECT finished FROM group_segment WHERE group_name = ? AND stream_id = ? AND segment = ?",
            (name, stream_id, segment),
        ).fetchone()
        found.append(((stream_id, segment), progress_of_text(row[0], name, stream_id, segment)))
    return tuple(found)


def progress_by_segment(tx: Tx, name: str) -> dict[SegmentKey, Progress]:
    """Return the durable progress of all open segments of the group. One query."""
    rows = tx.execute(
        "SELECT stream_id, segment, finished FROM group_segment WHERE group_name = ? AND waiting IS NULL",
        (name,),
    ).fetchall()
    return {
        (stream_id, segment): progress_of_text(text, name, stream_id, segment)
        for stream_id, segment, text in rows
    }


def write_state(tx: Tx, record: Versioned[GroupRecord], before: GroupState, after: GroupState) -> None:
    """Write what differs, and wake who watches the group."""
    name = record.key
    group = attrs.evolve(
        record.value, streams=after.streams, generation=after.generation, paused=after.paused
    )
    replace(tx, GROUP, record, group)
    _write_members(tx, name, before, after)
    write_segments(tx, name, before, after)
    tx.wake(topic_of(name))


def _write_members(tx: Tx, name: str, before: GroupState, after: GroupState) -> None:
    for reader in before.members:
        if before.members[reader] != after.members.get(reader):
            tx.execute("DELETE FROM group_member WHERE group_name = ? AND reader = ?", (name, reader))
    for reader, member in after.members.items():
        if before.members.get(reader) != member:
            tx.execute(
                "INSERT INTO group_member (group_name, reader, instance, epoch, joined_ms, seen_ms)"
                " VALUES (?, ?, ?, ?, ?, ?)",
                (name, reader, member.instance, member.epoch, member.joined_ms, tx.monotonic_ms),
            )


def write_segments(tx: Tx, name: str, before: GroupState, after: GroupState) -> None:
    """Write the rows of the segments that differ; `before` may be empty."""
    gone = (before.open.keys() | before.waiting.keys()) - (after.open.keys() | after.waiting.keys())
    tx.executemany(
        "DELETE FROM group_segment WHERE group_name = ? AND stream_id = ? AND segment = ?",
        [(name, *key) for key in sorted(gone)],
    )
    for key, assignment in after.open.items():
        old = before.open.get(key)
        if old is not assignment:
            _write_assignment(tx, name, old, assignment)
    for key, predecessors in after.waiting.items():
        if before.waiting.get(key) != predecessors:
            tx.execute(
                "INSERT INTO group_segment (group_name, stream_id, segment, offset, number, finished, waiting)"
                " VALUES (?, ?, ?, 0, 0, '[0,0]', ?) ON CONFLICT DO UPDATE SET waiting = excluded.waiting",
                (name, *key, json.dumps(sorted(predecessors))),
            )


def _write_assignment(
    tx: Tx, name: str, old: SegmentAssignment | None, assignment: SegmentAssignment
) -> None:
    owner = assignment.owner, assignment.owner_epoch, assignment.target
    given_back = old is not None and old.owner is not None and assignment.owner is None
    if old is not None and old.progress == assignment.progress and not given_back:
        # The row knows better how far it is finished.
        tx.execute(
            "UPDATE group_segment SET owner = ?, owner_epoch = ?, target = ?"
            " WHERE group_name = ? AND stream_id = ? AND segment = ?",
            (*owner, name, *assignment.key),
        )
        return
    progress = assignment.progress
    tx.execute(
        "INSERT INTO group_segment (group_name, stream_id, segment, offset, number, finished, owner,"
        " owner_epoch, target, moved_ms) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT DO UPDATE SET offset = excluded.offset, number = excluded.number,"
        " finished = excluded.finished, owner = excluded.owner, owner_epoch = excluded.owner_epoch,"
        " target = excluded.target, waiting = NULL, moved_ms = excluded.moved_ms",
        (
            *(name, *assignment.key, progress.offset, progress.number, progress_text(progress)),
            *(*owner, tx.now_ms),
        ),
    )
