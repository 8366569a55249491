"""The state of a group in the database: a record, a log, and rows for segments and members.

The log holds the state (`state`), as updates with a snapshot now and then. A change folds the tail of the log, applies
updates, appends them, and writes the rows that differ, in one transaction, so conflicts are impossible. The rows are
what SQL needs. Progress moves in its row alone, fenced by the owner epoch (`store.progress.move_progress`), and enters
the log when a segment changes hands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import attrs

from eventproc.groups.state import GroupState, OnlineReader, SegmentAssignment, apply
from eventproc.groups.targets import NOT_COUNTED, following, needs_lag, needs_targets
from eventproc.groups.updates import (
    UPDATES,
    GroupReset,
    OptionsChanged,
    SegmentCompleted,
    StreamAdded,
    StreamDropped,
    StreamSkipped,
    Update,
)
from eventproc.store.database import Tx
from eventproc.store.groups import (
    GROUP,
    KAFKA,
    PRAVEGA,
    TRUNCATABLE,
    GroupKind,
    GroupRecord,
    SegmentKey,
    channel_of,
    delete_member,
    delete_segment_rows,
    insert_member,
    progress_by_segment,
    stored_assignments,
    stored_members,
    stored_waits,
    truncatable_key,
    with_patience,
    write_owner,
    write_segment,
    write_waiting,
)
from eventproc.store.model.errors import NotFound
from eventproc.store.model.group_errors import GroupNotEmpty, NotAReaderGroup
from eventproc.store.records import Versioned, delete_all, get, replace
from eventproc.store.replicated import FoldedState, ReplicatedType, append, fold_tail
from eventproc.store.segments import segment_state

GROUP_LOG: Final[ReplicatedType[GroupState, Update]] = ReplicatedType(
    name="group",
    state=GroupState,
    updates=UPDATES,
    fold=apply,
    format=2,
    upcasts={1: with_patience},
)

_UPDATES_OF_CLIENTS: Final[Mapping[GroupKind, tuple[type[Update], ...]]] = {
    KAFKA: (GroupReset, SegmentCompleted, StreamAdded, StreamDropped),
    PRAVEGA: (GroupReset, OptionsChanged, StreamAdded, StreamDropped, StreamSkipped),
}
"""The updates of the groups whose members and owners are decided elsewhere: by the servers of Kafka's clients
(`kafka_groups`), and by Pravega's clients among themselves (`pravega_groups`)."""


def change(tx: Tx, name: str, *updates: Update) -> GroupState:
    """Apply updates to the group, with the targets that follow, as one entry; return its state. Raises NotFound."""
    record = get(tx, GROUP, name)
    before = folded_state(tx, record.value).state
    if not updates:
        return before
    if (possible := _UPDATES_OF_CLIENTS.get(record.value.kind)) is not None:
        _verify_may_follow(record.value, before, updates, possible)
    after = GROUP_LOG.fold_all(before, updates)
    if record.value.log is not None and needs_targets(updates):
        unread = unread_events(tx, name, after) if needs_lag(after, updates) else NOT_COUNTED
        decided = following(after, updates, tx.monotonic_ms, unread)
        after = GROUP_LOG.fold_all(after, decided)
        updates = (*updates, *decided)
    if record.value.log is not None:
        append(tx, record.value.log, GROUP_LOG, updates, after=after)
    if any(isinstance(each, GroupReset) for each in updates):
        record = attrs.evolve(record, value=attrs.evolve(record.value, reset=after.generation))
    write_state(tx, record, before, after)
    return after


def refusal_of(group: GroupRecord) -> NotAReaderGroup:
    """Return the error for what only the readers of a group, or its own clients, may do."""
    return NotAReaderGroup(
        group=group.name, streams=tuple(each.name for each in group.streams), kind=group.kind
    )


def _verify_may_follow(
    group: GroupRecord, before: GroupState, updates: Sequence[Update], possible: tuple[type[Update], ...]
) -> None:
    if not all(isinstance(each, possible) for each in updates):
        raise refusal_of(group)
    if before.members and any(isinstance(each, GroupReset) for each in updates):
        raise GroupNotEmpty(group=group.name, event="a reset", readers=tuple(before.members))


def unread_events(tx: Tx, name: str, state: GroupState) -> dict[SegmentKey, int]:
    """Return how many events of each open segment the group has not finished. Two look-ups for each segment."""
    moved = progress_by_segment(tx, name)
    found: dict[SegmentKey, int] = {}
    for each in state.assignments:
        segment = segment_state(tx, *each.key)
        progress = moved.get(each.key, each.progress)
        if segment is not None and segment.tail_number > progress.number:
            found[each.key] = progress.unfinished(progress.number, segment.tail_number)
    return found


def folded_state(
    tx: Tx, group: GroupRecord, known: FoldedState[GroupState] | None = None
) -> FoldedState[GroupState]:
    """Return the group's state; progress is as of the last change of owner. known: a state to continue from."""
    if group.kind in _UPDATES_OF_CLIENTS:
        return FoldedState(0, _state_of_rows(tx, group), 0, 0)
    folded = None if group.log is None else fold_tail(tx, group.log, GROUP_LOG, known=known)
    if folded is None:
        raise NotFound(kind="group", name=group.name)
    return folded


def _state_of_rows(tx: Tx, group: GroupRecord) -> GroupState:
    """Return the state of a group without a log, whose record and rows say everything; all progress is in it."""
    members = {
        reader: OnlineReader(instance, epoch, joined_ms)
        for reader, (instance, epoch, joined_ms) in stored_members(tx, group.name).items()
    }
    return GroupState(
        generation=group.generation,
        streams=group.streams,
        paused=group.paused,
        members=members,
        assignments=tuple(
            SegmentAssignment(*key, progress, owner, owner_epoch, target)
            for key, (progress, owner, owner_epoch, target) in stored_assignments(tx, group.name).items()
        ),
        waits=stored_waits(tx, group.name),
        options=group.options,
    )


def recorded(group: GroupRecord, state: GroupState) -> GroupRecord:
    """Return the record that belongs to the state: it says without a fold what lists and other rooms look up."""
    created = group.created_options or group.options
    return attrs.evolve(
        group,
        streams=state.streams,
        dropped=state.dropped,
        generation=state.generation,
        paused=state.paused,
        options=state.options,
        created_options=None if created == state.options else created,
    )


def member_rows(state: GroupState) -> dict[str, tuple[str, int, int]]:
    """Return the rows of members that belong to the state: instance, epoch and joined_ms of each reader online."""
    return {
        reader: (member.instance, member.epoch, member.joined_ms) for reader, member in state.present.items()
    }


def write_state(tx: Tx, record: Versioned[GroupRecord], before: GroupState, after: GroupState) -> None:
    """Write the record and the rows that differ, and wake the group's subscribers.

    What the group let be truncated of a stream counts no longer once it has left the stream.
    """
    name, old, new = record.key, member_rows(before), member_rows(after)
    replace(tx, GROUP, record, recorded(record.value, after))
    for reader in old:
        if new.get(reader) != old[reader]:
            delete_member(tx, name, reader)
    for reader, (instance, epoch, joined_ms) in new.items():
        if old.get(reader) != new[reader]:
            insert_member(tx, name, reader, instance=instance, epoch=epoch, joined_ms=joined_ms)
    write_segments(tx, name, before, after)
    left = {each.stream_id for each in before.streams} - {each.stream_id for each in after.streams}
    delete_all(tx, TRUNCATABLE, [truncatable_key(name, each) for each in sorted(left)])
    tx.wake(channel_of(name))


def write_segments(tx: Tx, name: str, before: GroupState, after: GroupState) -> None:
    """Write the rows of the segments that differ; `before` may be empty."""
    gone = (before.open.keys() | before.waiting.keys()) - (after.open.keys() | after.waiting.keys())
    delete_segment_rows(tx, name, sorted(gone))
    for key, assignment in after.open.items():
        old = before.open.get(key)
        if old is not assignment:
            _write_assignment(tx, name, old, assignment)
    for key, predecessors in after.waiting.items():
        if before.waiting.get(key) != predecessors:
            write_waiting(tx, name, key, predecessors)


def _write_assignment(tx: Tx, name: str, old: SegmentAssignment | None, new: SegmentAssignment) -> None:
    owner, epoch, target = new.owner, new.owner_epoch, new.target
    given_back = old is not None and old.owner is not None and owner is None
    if old is not None and old.progress == new.progress and not given_back:
        # The progress in the row is newer than the one in the state.
        write_owner(tx, name, new.key, owner=owner, owner_epoch=epoch, target=target)
    else:
        write_segment(tx, name, new.key, new.progress, owner=owner, owner_epoch=epoch, target=target)
