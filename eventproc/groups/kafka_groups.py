"""Groups of Kafka's clients, as functions of a transaction: rounds, commits, and the state that all groups have.

What the clients know is in one record (`kafka_rounds`), which any server may change; so several servers serve one
group. Where the group stands is in rows, as for every group: a topic has rows from the first commit or assignment on.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping

import attrs

from eventproc.groups.changes import completion, ended_reserves, insert_group
from eventproc.groups.followed_streams import follow_catalog
from eventproc.groups.start_positions import start_position_of
from eventproc.groups.stored_state import change, folded_state, write_state
from eventproc.groups.updates import StreamAdded
from eventproc.store.catalog import find_stream, get_scope, verify_active
from eventproc.store.database import Tx
from eventproc.store.groups import (
    GROUP,
    KAFKA,
    GroupOptions,
    KafkaCommit,
    SegmentKey,
    begin_epoch,
    commit_progress,
    delete_member,
    epoch_of_member,
    find_members,
    insert_member,
    is_kafka_group,
    last_heard,
    progress_channel,
    write_heartbeat,
    write_members,
    write_note,
    write_segment,
)
from eventproc.store.model.ids import number_of
from eventproc.store.model.kafka_rounds import (
    NO_MEMBERS,
    KafkaMembers,
    MemberProblem,
    MemberRefused,
    end_if_due,
    leave,
    overdue,
)
from eventproc.store.model.partitions import is_reserve
from eventproc.store.model.progress import Progress
from eventproc.store.records import get
from eventproc.store.segments import known_state, offset_of_number

Step = Callable[[KafkaMembers], KafkaMembers]


def ensure_kafka_group(tx: Tx, name: str) -> None:
    """Create the group, unless it exists. Raises MemberRefused if the name is that of a group of another kind.

    name: a valid one. Raises NotFound and IllegalTransition as `ensure_group`.
    """
    if (is_kafka := is_kafka_group(tx, name)) is None:
        verify_active(get_scope(tx, name.partition("/")[0]).value, "create a group")
        # A topic that is deleted leaves the group: its clients find out by themselves.
        insert_group(tx, name, KAFKA, (), GroupOptions(on_deleted="drop"))
    elif not is_kafka:
        raise MemberRefused(
            MemberProblem.INCONSISTENT_GROUP_PROTOCOL,
            f"{name} is a group of another kind; choose another name",
        )


def silent_kafka_members(tx: Tx, name: str, state: KafkaMembers) -> set[str]:
    """Return the members that were silent for too long. One query."""
    if not state.members:
        return set()
    shortest_ms = min(each.session_ms for each in state.members.values())
    return overdue(state, last_heard(tx, name, tx.monotonic_ms - shortest_ms), tx.monotonic_ms)


def write_heard(tx: Tx, name: str, member_id: str) -> None:
    """Note that a member was heard now, if it is one."""
    if (epoch := epoch_of_member(tx, name, member_id)) is not None:
        write_heartbeat(tx, name, member_id, epoch)


def present_members(tx: Tx, name: str) -> KafkaMembers:
    """Return the members as `change_members` would leave them; nothing is written."""
    found = find_members(tx, name)
    before = NO_MEMBERS if found is None else found.value
    now_ms = tx.monotonic_ms
    return end_if_due(leave(before, silent_kafka_members(tx, name, before), now_ms), now_ms)


def change_members(tx: Tx, name: str, step: Step | None = None) -> KafkaMembers:
    """Expire silent members, end a round that is over, apply a step, and return the members. Raises what it raises."""
    found = find_members(tx, name)
    before, after = NO_MEMBERS if found is None else found.value, present_members(tx, name)
    if step is not None:
        after = step(after)
    if after != before:
        write_members(tx, name, found, after)
        _write_member_rows(tx, name, before, after)
        if before.owners != after.owners:
            _write_owners(tx, name, after.owners)
    return after


def _write_member_rows(tx: Tx, name: str, before: KafkaMembers, after: KafkaMembers) -> None:
    for member in before.members.keys() - after.members.keys():
        delete_member(tx, name, member)
    for member in sorted(after.members.keys() - before.members.keys()):
        said = after.members[member]
        status = json.dumps({"client": said.client, "host": said.host, "instance": said.instance})
        insert_member(
            *(tx, name, member), instance="", epoch=after.generation, joined_ms=tx.now_ms, status=status
        )
    if after.generation != before.generation:
        begin_epoch(tx, name, after.generation)


def _write_owners(tx: Tx, name: str, owners: Mapping[tuple[str, int], str]) -> None:
    """Write the owners of partitions. Partitions of topics that do not exist have no row."""
    follow_topics(tx, name, {topic for topic, _ in owners})
    record = get(tx, GROUP, name)
    before = folded_state(tx, record.value).state
    names, generation = {each.stream_id: each.name for each in before.streams}, before.generation + 1
    assignments = []
    for each in before.assignments:
        owner = owners.get((names[each.stream_id], number_of(each.segment)))
        if is_reserve(each.segment) or owner == each.owner:
            assignments.append(each)
        else:
            assignments.append(attrs.evolve(each, owner=owner, target=owner, owner_epoch=generation))
    after = attrs.evolve(before, generation=generation, assignments=tuple(assignments))
    write_state(tx, record, before, after)


def follow_topics(tx: Tx, name: str, topics: Iterable[str]) -> None:
    """Let the group have rows of all partitions of these topics, and of those that it has already."""
    state = follow_catalog(tx, name)
    known = {each.name for each in state.streams}
    for topic in sorted(set(topics) - known):
        found = find_stream(tx, topic)
        if found is not None and found.value.config.is_topic:
            state = change(tx, name, StreamAdded(start_position_of(tx, topic, added=True)))
    while reserves := ended_reserves(tx, state):
        for key in reserves:
            state = change(tx, name, completion(tx, name, state, key, ""))


def verify_committer(
    tx: Tx, name: str, *, member_id: str, generation: int, is_transactional: bool = False
) -> None:
    """Raise MemberRefused unless a client may commit now. A group is created for a client without membership.

    generation: that of the member's round; -1 without a member, for a group that has none. is_transactional: the commit
    counts with a transaction, whose producer fences it where no member is named. Raises as `ensure_kafka_group`.
    """
    if generation < 0:
        ensure_kafka_group(tx, name)
        if (member_id or not is_transactional) and change_members(tx, name).members:
            raise MemberRefused(
                MemberProblem.UNKNOWN_MEMBER_ID, f"{name} has members, and this is none of them"
            )
        return
    epoch = epoch_of_member(tx, name, member_id) if is_kafka_group(tx, name) else None
    if epoch is None:
        raise MemberRefused(MemberProblem.UNKNOWN_MEMBER_ID, f"{member_id!r} is no member of {name}")
    if epoch != generation:
        raise MemberRefused(MemberProblem.ILLEGAL_GENERATION, f"round {generation} of {name} is over")


def store_commits(tx: Tx, name: str, commits: Iterable[KafkaCommit]) -> None:
    """Store where the group reads on, in any direction. A number outside a partition is its nearest end.

    What was deleted meanwhile is left out: the group, a topic. Cost: some look-ups and an UPDATE for each partition.
    """
    if not is_kafka_group(tx, name):
        return
    for each in commits:
        found = find_stream(tx, each.stream)
        if found is not None and found.value.stream_id == each.key[0]:
            _commit(tx, name, each)
            write_note(tx, name, each.key, each.note)
    tx.wake(progress_channel(name))


def _commit(tx: Tx, name: str, commit: KafkaCommit) -> None:
    progress = _progress_at(tx, commit.key, commit.number)
    if commit_progress(tx, name, commit.key, progress):
        return
    follow_topics(tx, name, [commit.stream])
    if not commit_progress(tx, name, commit.key, progress):
        # An empty partition of a sealed topic: a group begins behind it.
        write_segment(tx, name, commit.key, progress, owner=None, owner_epoch=0, target=None)
        commit_progress(tx, name, commit.key, progress)


def _progress_at(tx: Tx, key: SegmentKey, number: int) -> Progress:
    state = known_state(tx, *key)
    kept = min(max(number, state.head_number), state.tail_number)
    return Progress(kept, offset_of_number(tx, *key, kept))
