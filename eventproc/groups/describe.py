"""Descriptions of groups for people: members, owners, deliveries, positions, and lag. Functions of a transaction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias

import attrs

from eventproc.groups.cuts import end_offsets, stream_cut
from eventproc.groups.kafka_groups import present_members
from eventproc.groups.state import GroupState
from eventproc.groups.stored_state import folded_state
from eventproc.store.catalog import (
    StreamRecord,
    UnfinishedPart,
    find_stream,
    head_offsets,
    unfinished_part,
    unfinished_segments,
)
from eventproc.store.database import Peers, Tx
from eventproc.store.groups import (
    GROUP,
    KAFKA,
    SHARE,
    DeliveryCounts,
    GroupKind,
    GroupOptions,
    GroupRecord,
    GroupStream,
    SegmentKey,
    ShareOptions,
    TakenIn,
    count_deliveries,
    followed,
    get_group,
    online_members,
    progress_by_segment,
    progress_times,
    read_held,
    read_taken_in,
    unopened_segments,
)
from eventproc.store.model.cuts import StreamCut
from eventproc.store.model.deliveries import DeliveredRange
from eventproc.store.model.errors import InvalidCut, NotFound
from eventproc.store.model.ids import SegmentId, number_of, printable
from eventproc.store.model.kafka_rounds import KafkaMembers, KafkaPhase
from eventproc.store.model.partitions import is_reserve
from eventproc.store.model.progress import Progress
from eventproc.store.model.short_repr import short_repr_of_fields
from eventproc.store.records import get
from eventproc.store.records.plain import derived
from eventproc.store.segments import first_event_age_ms

GroupPhase: TypeAlias = Literal["empty", "assigning", "reconciling", "stable"]
"""What a group is doing; see `GroupDescription`."""

_KAFKA_PHASES: Final[Mapping[KafkaPhase, GroupPhase]] = {
    "empty": "empty",
    "joining": "reconciling",
    "syncing": "assigning",
    "stable": "stable",
}


ShareState: TypeAlias = Literal["empty", "active"]
"""Whether consumers hold events of a share group ("active") or not ("empty")."""


@attrs.frozen(kw_only=True)
class GroupInfo:
    """A group as `Eventproc.groups` and `Eventproc.share_groups` list it.

    name: "scope/group". streams: what it reads. kind: "readers", "processor" when a processor owns it, "share", or
        "kafka" or "pravega" for clients of these.
    generation: grows with each change of members or owners; of a share group, with each reset. created_ms: wall clock.
    paused: whether it is paused. options: what it was created with, and was changed to. share: those of a share group;
        None for another one.
    """

    __repr__ = short_repr_of_fields

    name: str
    streams: tuple[GroupStream, ...]
    kind: GroupKind
    generation: int
    created_ms: int
    paused: bool
    options: GroupOptions
    share: ShareOptions | None = None


@attrs.frozen
class MemberDescription:
    """A reader that is online, or a static one that is away.

    status: what it published last, as JSON, or None.
    owned: the number of its segments.
    pid, alive: of the process, which may be suspended. None: not known.
    subscription: the streams that it reads, names or patterns; None: every stream of the group.
    away: whether it is a static reader that has ended or died, and may come back.
    """

    reader: str
    instance: str
    epoch: int
    joined_ms: int
    status: str | None
    owned: int
    pid: int | None = None
    alive: bool | None = None
    subscription: tuple[str, ...] | None = None
    away: bool = False


@attrs.frozen(kw_only=True)
class UnfinishedSegment:
    """A segment that a group has not finished.

    offset, number: the first event that is not finished.
    events, bytes: what is not finished.
    age_ms: time since the first unfinished event was appended; None without one.
    sealed: no further events will be appended.
    """

    stream: str
    stream_id: int
    segment: SegmentId
    offset: int
    number: int
    events: int
    bytes: int
    age_ms: int | None
    sealed: bool


@attrs.frozen(kw_only=True)
class SegmentLag(UnfinishedSegment):
    """A segment that the group has not finished.

    owner: the reader that owns it. target: the reader that shall own it.
    waiting: predecessors to be finished first. A segment that waits, or that the group has not reached (`reached`
        False), has no owner.
    moved_ms: when progress last became durable, wall clock.
    """

    owner: str | None = None
    target: str | None = None
    owner_epoch: int = 0
    waiting: tuple[SegmentId, ...] = ()
    reached: bool = True
    moved_ms: int | None = None


@attrs.frozen(kw_only=True)
class SharedSegment(UnfinishedSegment):
    """A segment that a share group has not finished.

    next_number: the first event that the group has not taken in: neither delivered nor sorted by priority.
    in_flight: events that consumers hold. available: other events that it has taken in, and may deliver now.
    set_aside: those that it delivers later. deliveries: how many of all these were delivered how often.
    """

    __repr__ = short_repr_of_fields

    next_number: int
    in_flight: int
    available: int
    set_aside: int
    deliveries: Mapping[int, int]


@attrs.frozen
class ShareHolder:
    """A consumer that holds events.

    events: how many. instance: the opening of the directory that it belongs to. pid: of its process; None in memory.
    """

    __repr__ = short_repr_of_fields

    consumer: str
    instance: str
    events: int
    pid: int | None


@attrs.frozen(kw_only=True)
class DescribedGroup:
    """A group of any kind at one moment.

    lost_events: number of events that were truncated before the group finished them.
    """

    __repr__ = short_repr_of_fields

    name: str
    kind: GroupKind
    streams: tuple[GroupStream, ...]
    generation: int
    created_ms: int
    paused: bool
    segments: tuple[UnfinishedSegment, ...]
    lost_events: int

    @derived
    def events(self) -> int:
        """Unfinished events in all segments."""
        return sum(each.events for each in self.segments)

    @derived
    def bytes(self) -> int:
        """Unfinished bytes in all segments."""
        return sum(each.bytes for each in self.segments)

    @derived
    def age_ms(self) -> int | None:
        """Time since the oldest unfinished event was appended; None without one."""
        return max((each.age_ms for each in self.segments if each.age_ms is not None), default=None)


@attrs.frozen(kw_only=True)
class GroupDescription(DescribedGroup):
    """A group at one moment.

    cuts: its durable position in each stream that was not deleted. No reader of it needs an earlier event.
    replaced: names of its streams that were deleted; the group must be reset.
    checkpoints_started: names of the checkpoints under way.
    assignor: name of the assignor that decides which reader owns which segment.
    phase: "empty" without readers, "assigning" while the group waits for its own assignor, "reconciling" while segments
        are on their way to their readers, else "stable". "empty" for clients of Pravega, who do not show their readers.
    """

    __repr__ = short_repr_of_fields

    segments: tuple[SegmentLag, ...]
    options: GroupOptions
    members: tuple[MemberDescription, ...]
    cuts: Mapping[str, StreamCut]
    replaced: tuple[str, ...]
    checkpoints_started: tuple[str, ...]
    assignor: str
    phase: GroupPhase

    @derived
    def moved_ms(self) -> int | None:
        """When progress last became durable in a segment that is not finished, wall clock."""
        return max((each.moved_ms for each in self.segments if each.moved_ms is not None), default=None)

    @derived
    def assignment(self) -> dict[str, tuple[tuple[str, int], ...]]:
        """The partitions of each reader or consumer: {id: ((topic, partition), ...)}."""
        owned = [each for each in self.segments if not is_reserve(each.segment)]
        return {
            member.reader: tuple(
                sorted(
                    (each.stream, number_of(each.segment)) for each in owned if each.owner == member.reader
                )
            )
            for member in self.members
        }


@attrs.frozen(kw_only=True)
class ShareGroupDescription(DescribedGroup):
    """A share group at one moment.

    state: "active" while consumers hold events, else "empty".
    deleted: names of its streams that were deleted, and not created again.
    """

    __repr__ = short_repr_of_fields

    segments: tuple[SharedSegment, ...]
    state: ShareState
    deleted: tuple[str, ...]
    options: ShareOptions
    consumers: tuple[ShareHolder, ...]

    @derived
    def in_flight(self) -> int:
        """Events that consumers hold, in all segments."""
        return sum(each.in_flight for each in self.segments)

    @derived
    def deliveries(self) -> dict[int, int]:
        """How many events in flight, or waiting again, were delivered how often: {deliveries: events}."""
        total: Counter[int] = Counter()
        for each in self.segments:
            total.update(each.deliveries)
        return dict(sorted(total.items()))


def group_info(group: GroupRecord) -> GroupInfo:
    """Return what the record of a group says."""
    return GroupInfo(
        name=group.name,
        streams=group.streams,
        kind=group.kind,
        generation=group.generation,
        created_ms=group.created_ms,
        paused=group.paused,
        options=group.options,
        share=group.share if group.kind == SHARE else None,
    )


def describe_group(tx: Tx, name: str, peers: Peers | None = None) -> GroupDescription:
    """Return the description of the group. Raises NotFound.

    peers: the openings of the database; None: members have no `pid` and `alive`, as those of Kafka's clients.
    Costs a few look-ups for each segment of its streams that has events.
    """
    group = get_group(tx, name)
    state = folded_state(tx, group).state
    if (kafka := present_members(tx, name) if group.kind == KAFKA else None) is not None:
        state = _with_members_of(state, kafka)
    finished = progress_by_segment(tx, name)
    segments: list[SegmentLag] = []
    replaced: list[str] = []
    streams: list[GroupStream] = []
    moved, cuts = progress_times(tx, name), dict[str, StreamCut]()
    for each in group.streams:
        found = find_stream(tx, each.name)
        if found is None or found.value.stream_id != each.stream_id:
            if group.options.on_deleted == "error":
                replaced.append(each.name)
                streams.append(each)
        else:
            streams.append(each)
            cuts[each.name], beyond = _position(tx, each, found.value, state, finished)
            segments.extend(_of_stream(tx, found.value, state, finished, moved, beyond))
    return GroupDescription(
        name=name,
        kind=group.kind,
        streams=tuple(streams),
        paused=group.paused,
        generation=group.generation,
        created_ms=group.created_ms,
        options=group.options,
        members=tuple(_members(tx, name, state, peers if kafka is None else None)),
        cuts=cuts,
        segments=tuple(segments),
        replaced=tuple(replaced),
        lost_events=state.lost_events,
        checkpoints_started=tuple(each.name for each in state.started),
        assignor=state.assignor if kafka is None else kafka.protocol or "",
        phase=phase_of(state) if kafka is None else _KAFKA_PHASES[kafka.phase],
    )


def _with_members_of(state: GroupState, kafka: KafkaMembers) -> GroupState:
    """Return the state of a group without the clients whose sessions have ended: perhaps no other one expires them."""
    return attrs.evolve(
        state,
        members={name: each for name, each in state.members.items() if name in kafka.members},
        assignments=tuple(
            each if each.owner in kafka.members else attrs.evolve(each, owner=None, target=None)
            for each in state.assignments
        ),
    )


def phase_of(state: GroupState) -> GroupPhase:
    """Return what the group is doing, as `GroupDescription.phase` says."""
    if not state.members:
        return "empty"
    if state.assigning is not None:
        return "assigning"
    awaited = (each for each in state.assignments if each.target is None or each.target in state.present)
    return "reconciling" if any(each.owner != each.target for each in awaited) else "stable"


def _members(tx: Tx, name: str, state: GroupState, peers: Peers | None) -> Iterator[MemberDescription]:
    statuses = {reader: status for reader, _, _, status in online_members(tx, name)}
    for reader, member in sorted(state.members.items()):
        yield MemberDescription(
            reader,
            member.instance,
            member.epoch,
            member.joined_ms,
            statuses.get(reader),
            len(state.owned_by(reader)),
            None if peers is None else peers.pid_of(member.instance),
            None if peers is None else peers.is_alive(member.instance),
            member.subscription,
            member.away_since_ms is not None,
        )


def _of_stream(
    tx: Tx,
    stream: StreamRecord,
    state: GroupState,
    finished: Mapping[SegmentKey, Progress],
    moved: Mapping[SegmentKey, int | None],
    beyond: Mapping[SegmentId, int | None],
) -> Iterator[SegmentLag]:
    stream_id = stream.stream_id
    for key in sorted(state.open.keys() | state.waiting.keys()):
        if key[0] != stream_id:
            continue
        assignment = state.open.get(key)
        progress = finished.get(key, Progress())
        part = unfinished_part(tx, stream_id, key[1], progress, end=state.end_offsets.get(key))
        yield SegmentLag(
            **_unfinished(tx, stream.name, stream_id, progress, part),
            owner=None if assignment is None else assignment.owner,
            target=None if assignment is None else assignment.target,
            owner_epoch=0 if assignment is None else assignment.owner_epoch,
            waiting=tuple(sorted(state.waiting.get(key, ()))),
            moved_ms=moved.get(key),
        )
    for segment, end in beyond.items():
        part = unfinished_part(tx, stream_id, segment, Progress(), end=end)
        yield SegmentLag(**_unfinished(tx, stream.name, stream_id, Progress(), part), reached=False)


def _unfinished(
    tx: Tx, stream: str, stream_id: int, progress: Progress, part: UnfinishedPart
) -> dict[str, Any]:
    """Return the fields of an `UnfinishedSegment`."""
    return {
        "stream": stream,
        "stream_id": stream_id,
        "segment": printable(part.segment),
        "offset": progress.offset,
        "number": progress.number,
        "events": part.events,
        "bytes": part.bytes,
        "age_ms": first_event_age_ms(tx, stream_id, part.segment, part.offset) if part.events else None,
        "sealed": part.sealed,
    }


def _position(
    tx: Tx,
    where: GroupStream,
    stream: StreamRecord,
    state: GroupState,
    finished: Mapping[SegmentKey, Progress],
) -> tuple[StreamCut, dict[SegmentId, int | None]]:
    """Return the position in a stream, and the segments that the group will read and does not hold, with their ends."""
    stream_id = stream.stream_id
    offsets = {key: progress.offset for key, progress in finished.items()}
    ends = end_offsets(state, stream_id)
    try:
        cut = stream_cut(tx, where, state, offsets, state.waiting.keys())
        wanted = unfinished_segments(tx, stream, cut, ends)
        ended = {segment for segment, offset in cut.offsets.items() if offset >= 0}
    except (InvalidCut, NotFound):  # segments were truncated and forgotten: the group will go on at the head
        cut = StreamCut(stream.name, stream_id, head_offsets(tx, stream))
        wanted, ended = unfinished_segments(tx, stream, cut, ends), set()
    held = {
        segment for each, segment in state.open.keys() | state.waiting.keys() if each == stream_id
    } | ended
    return cut, {segment: end for segment, end in wanted.items() if segment not in held}


def describe_any(tx: Tx, name: str, peers: Peers | None = None) -> GroupDescription | ShareGroupDescription:
    """Return the description of a group of any kind. Raises NotFound. peers: as of the others."""
    if get(tx, GROUP, name).value.kind == SHARE:
        return describe_share_group(tx, name, peers)
    return describe_group(tx, name, peers)


def describe_share_group(tx: Tx, name: str, peers: Peers | None = None) -> ShareGroupDescription:
    """Return the description of a share group. Raises NotFound.

    peers: the openings of the database; None: consumers have no `pid`.
    Cost: a few look-ups for each segment that is not finished.
    """
    record = get_group(tx, name, share=True)
    stored, names, deleted = read_taken_in(tx, name), dict[int, str](), list[str]()
    for each in record.streams:
        if (found := find_stream(tx, each.name)) is None:
            deleted.append(each.name)
            continue
        stream_id = found.value.stream_id
        names[stream_id] = each.name
        for segment in unopened_segments(tx, followed(each, stream_id)):
            stored[stream_id, segment] = TakenIn(0, 0, 0, 0)
    counts, holders = count_deliveries(tx, name), tuple(_holders(read_held(tx, name), peers))
    return ShareGroupDescription(
        name=name,
        kind=record.kind,
        state="active" if holders else "empty",
        streams=record.streams,
        deleted=tuple(deleted),
        paused=record.paused,
        generation=record.generation,
        created_ms=record.created_ms,
        options=record.share,
        consumers=holders,
        segments=tuple(
            _shared_segment(tx, names[key[0]], key, taken_in, counts.get(key, DeliveryCounts()))
            for key, taken_in in stored.items()
            if key[0] in names
        ),
        lost_events=record.lost_events,
    )


def _holders(
    held: Mapping[SegmentKey, Iterable[DeliveredRange]], peers: Peers | None
) -> Iterator[ShareHolder]:
    events: Counter[tuple[str, str, str]] = Counter()
    for ranges in held.values():
        for each in ranges:
            assert each.lock is not None, "a held range has a lock"
            events[each.lock.consumer, each.lock.instance, each.lock.session] += each.high - each.low
    for (consumer, instance, _), count in sorted(events.items()):
        yield ShareHolder(consumer, instance, count, None if peers is None else peers.pid_of(instance))


def _shared_segment(
    tx: Tx, stream: str, key: SegmentKey, taken_in: TakenIn, counts: DeliveryCounts
) -> SharedSegment:
    new = unfinished_part(tx, *key, Progress(taken_in.next_number, taken_in.next_offset))
    first = Progress(taken_in.number, taken_in.offset)
    part = UnfinishedPart(
        new.segment,
        first.offset if counts.events else new.offset,
        new.events + counts.events,
        new.bytes + counts.size_bytes,
        new.sealed,
    )
    return SharedSegment(
        **_unfinished(tx, stream, key[0], first, part),
        next_number=taken_in.next_number,
        in_flight=counts.in_flight,
        available=counts.available,
        set_aside=counts.set_aside,
        deliveries=counts.deliveries,
    )
