"""Groups in the database: a record each, a row for each segment and for each member.

A change reads the state, applies updates to it (`state.apply`) and writes the rows that differ, in one transaction;
within it nobody else can change the group, so that there are no conflicts. Progress moves between changes, in the
rows alone: `store.progress.move_progress`.
"""

from __future__ import annotations

import json
from typing import Final

import attrs

from eventproc.groups.keys import GroupStream, SegmentKey
from eventproc.groups.state import GroupState, Member, Portion, apply
from eventproc.groups.updates import Update
from eventproc.store.database import Tx, Watch
from eventproc.store.model.ids import SegmentId
from eventproc.store.progress import progress_of_text, progress_text
from eventproc.store.records import Kind, Versioned, get, replace


@attrs.frozen(kw_only=True)
class Group:
    """A group as its record says: who reads what is in the rows beside it.

    name: "scope/group". generation: grows with each change of members or owners. kind: "processor" or "readers".
    """

    name: str
    streams: tuple[GroupStream, ...]
    generation: int
    kind: str
    created_ms: int
    paused: bool = False


def _group_may_follow(before: Group | None, after: Group) -> str | None:
    if before is not None and after.generation <= before.generation:
        return f"its generation grows; {before.generation} -> {after.generation}"
    return None


GROUP: Final = Kind(name="group", value=Group, invariant=_group_may_follow)


def topic_of(group: str) -> tuple[str, str]:
    """Return what to wake when a group changed."""
    return "group", group


def watch_group(group: str) -> Watch:
    """Return what to subscribe to in order to learn of changes of members and owners. One look-up a bell."""

    def probe(tx: Tx) -> object:
        row = tx.execute(
            "SELECT version FROM record WHERE kind = ? AND key = ?", (GROUP.name, group)
        ).fetchone()
        return None if row is None else row[0]

    return Watch(topic_of(group), probe)


def change(tx: Tx, name: str, *updates: Update) -> GroupState:
    """Apply updates to the group, and return its state. Raises NotFound. One read of all its rows."""
    record = get(tx, GROUP, name)
    before = state_of(tx, record.value)
    after = before
    for update in updates:
        after = apply(after, update)
    if updates:
        write_state(tx, record, before, after)
    return after


def state_of(tx: Tx, group: Group) -> GroupState:
    """Return the group's state, each segment with its progress of this moment."""
    opened: dict[SegmentKey, Portion] = {}
    waiting: dict[SegmentKey, frozenset[SegmentId]] = {}
    rows = tx.execute(
        "SELECT stream_id, segment, finished, owner, owner_epoch, target, waiting FROM group_segment"
        " WHERE group_name = ?",
        (group.name,),
    ).fetchall()
    for stream_id, segment, finished, owner, owner_epoch, target, predecessors in rows:
        if predecessors is not None:
            waiting[stream_id, segment] = frozenset(json.loads(predecessors))
            continue
        progress = progress_of_text(finished, group.name, stream_id, segment)
        opened[stream_id, segment] = Portion(progress, owner, owner_epoch, target)
    return GroupState(
        generation=group.generation,
        streams=group.streams,
        paused=group.paused,
        members=members_of(tx, group.name),
        open=opened,
        waiting=waiting,
    )


def members_of(tx: Tx, name: str) -> dict[str, Member]:
    """Return the readers that are members of the group."""
    rows = tx.execute(
        "SELECT reader, instance, epoch, joined_ms FROM group_member WHERE group_name = ?", (name,)
    ).fetchall()
    return {reader: Member(instance, epoch, joined_ms) for reader, instance, epoch, joined_ms in rows}


def write_state(tx: Tx, record: Versioned[Group], before: GroupState, after: GroupState) -> None:
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
        if before.members[reader] is not after.members.get(reader):
            tx.execute("DELETE FROM group_member WHERE group_name = ? AND reader = ?", (name, reader))
    for reader, member in after.members.items():
        if before.members.get(reader) is not member:
            tx.execute(
                "INSERT INTO group_member (group_name, reader, instance, epoch, joined_ms) VALUES (?, ?, ?, ?, ?)",
                (name, reader, member.instance, member.epoch, member.joined_ms),
            )


def write_segments(tx: Tx, name: str, before: GroupState, after: GroupState) -> None:
    """Write the rows of the segments that differ; `before` may be empty."""
    gone = (before.open.keys() | before.waiting.keys()) - (after.open.keys() | after.waiting.keys())
    tx.executemany(
        "DELETE FROM group_segment WHERE group_name = ? AND stream_id = ? AND segment = ?",
        [(name, *key) for key in sorted(gone)],
    )
    for key, portion in after.open.items():
        old = before.open.get(key)
        if old is not portion:
            progress = portion.progress
            moved_ms = tx.now_ms if old is None or old.progress is not progress else None
            tx.execute(
                "INSERT INTO group_segment (group_name, stream_id, segment, offset, number, finished, owner,"
                " owner_epoch, target, moved_ms) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
                " ON CONFLICT DO UPDATE SET offset = excluded.offset, number = excluded.number,"
                " finished = excluded.finished, owner = excluded.owner, owner_epoch = excluded.owner_epoch,"
                " target = excluded.target, waiting = NULL, moved_ms = coalesce(excluded.moved_ms, moved_ms)",
                (
                    *(name, *key, progress.offset, progress.number, progress_text(progress)),
                    *(portion.owner, portion.owner_epoch, portion.target, moved_ms),
                ),
            )
    for key, predecessors in after.waiting.items():
        if before.waiting.get(key) != predecessors:
            tx.execute(
                "INSERT INTO group_segment (group_name, stream_id, segment, offset, number, finished, waiting)"
                " VALUES (?, ?, ?, 0, 0, '[0,0]', ?) ON CONFLICT DO UPDATE SET waiting = excluded.waiting",
                (name, *key, json.dumps(sorted(predecessors))),
            )
