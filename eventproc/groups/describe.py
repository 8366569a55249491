"""Descriptions of a group for people: readers, owners, positions, and lag. Functions of a transaction."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, TypeAlias

import attrs

from eventproc.groups.cuts import end_offsets, stream_cut
from eventproc.groups.state import GroupState
from eventproc.groups.stored_state import folded_state
from eventproc.store.catalog import (
    StreamRecord,
    UnfinishedPart,
    find_stream,
    head_offsets,
    record_names,
    unfinished_part,
    unfinished_segments,
)
from eventproc.store.database import Tx
from eventproc.store.groups import (
    GROUP,
    GroupOptions,
    GroupStream,
    SegmentKey,
    member_statuses,
    progress_by_segment,
    progress_times,
)
from eventproc.store.model.cuts import StreamCut
from eventproc.store.model.errors import InvalidCut, NotFound
from eventproc.store.model.ids import SegmentId, printable
from eventproc.store.model.list_pages import COMPLETE, ListPage
from eventproc.store.model.progress import Progress
from eventproc.store.model.short_repr import short_repr_of_fields
from eventproc.store.records import get
from eventproc.store.segments import first_event_age_ms

GroupPhase: TypeAlias = Literal["empty", "assigning", "reconciling", "stable"]
"""What a group is doing; see `GroupDescription`."""


@attrs.frozen(kw_only=True)
class GroupInfo:
    """A group as `Eventproc.reader_groups` lists it.

    name: "scope/group". streams: what it reads. kind: "readers", or "processor" when a processor owns it.
    generation: grows with each change of members or owners. created_ms: wall clock. paused: whether it is paused.
    options: as given when it was created.
    """

    __repr__ = short_repr_of_fields

    name: str
    streams: tuple[GroupStream, ...]
    kind: str
    generation: int
    created_ms: int
    paused: bool
    options: GroupOptions


@attrs.frozen
class MemberDescription:
    """A reader that is online, or a static one that is away.

    status: what it published last, as JSON, or None.
    owned: the number of its segments.
    subscription: the streams that it reads, names or patterns; None: every stream of the group.
    away: whether it is a static reader that has ended or died, and may come back.
    """

    reader: str
    instance: str
    epoch: int
    joined_ms: int
    status: str | None
    owned: int
    subscription: tuple[str, ...] | None = None
    away: bool = False


@attrs.frozen
class SegmentLag:
    """A segment that the group has not finished.

    owner: the reader that owns it. target: the reader that shall own it.
    waiting: predecessors to be finished first. A segment that waits, or that the group has not reached (`reached`
        False), has no owner.
    offset, number: where reading continues.
    events, bytes: what is not finished.
    age_ms: time since the first unfinished event was appended; None without one.
    moved_ms: when progress last became durable, wall clock.
    """

    stream: str
    stream_id: int
    segment: SegmentId
    owner: str | None
    target: str | None
    owner_epoch: int
    offset: int
    number: int
    waiting: tuple[SegmentId, ...]
    reached: bool
    sealed: bool
    events: int
    bytes: int
    age_ms: int | None
    moved_ms: int | None


@attrs.frozen
class GroupDescription:
    """A group at one moment.

    replaced: names of its streams that were deleted; the group must be reset.
    lost_events: number of events that were truncated before the group read them.
    checkpoints_started: names of the checkpoints under way.
    assignor: name of the assignor that decides which reader owns which segment.
    phase: "empty" without readers, "assigning" while the group waits for its own assignor, "reconciling" while segments
        are on their way to their readers, else "stable".
    """

    __repr__ = short_repr_of_fields

    name: str
    kind: str
    streams: tuple[GroupStream, ...]
    paused: bool
    generation: int
    created_ms: int
    members: tuple[MemberDescription, ...]
    segments: tuple[SegmentLag, ...]
    replaced: tuple[str, ...]
    lost_events: int
    checkpoints_started: tuple[str, ...]
    assignor: str
    phase: GroupPhase

    @property
    def events(self) -> int:
        """Unfinished events in all segments."""
        return sum(each.events for each in self.segments)

    @property
    def bytes(self) -> int:
        """Unfinished bytes in all segments."""
        return sum(each.bytes for each in self.segments)

    @property
    def age_ms(self) -> int | None:
        """Time since the oldest unfinished event was appended; None without one."""
        return max((each.age_ms for each in self.segments if each.age_ms is not None), default=None)


def group_info(tx: Tx, name: str) -> GroupInfo:
    """Return what the group's record says. Raises NotFound."""
    group = get(tx, GROUP, name).value
    return GroupInfo(
        name=group.name,
        streams=group.streams,
        kind=group.kind,
        generation=group.generation,
        created_ms=group.created_ms,
        paused=group.paused,
        options=group.options,
    )


def list_group_infos(tx: Tx, scope: str | None = None, page: ListPage = COMPLETE) -> list[GroupInfo]:
    """Return the groups of a scope, or of all scopes, sorted by scope and name. Raises NotFound (the scope)."""
    return [group_info(tx, name) for name in record_names(tx, GROUP, scope, page)]


def describe_group(tx: Tx, name: str) -> GroupDescription:
    """Return the description of the group. Raises NotFound.

    Costs a few look-ups for each segment of its streams that has events.
    """
    group = get(tx, GROUP, name).value
    state = folded_state(tx, group).state
    finished = progress_by_segment(tx, name)
    segments: list[SegmentLag] = []
    replaced: list[str] = []
    streams: list[GroupStream] = []
    moved = progress_times(tx, name)
    for each in group.streams:
        found = find_stream(tx, each.name)
        if found is None or found.value.stream_id != each.stream_id:
            if group.options.on_deleted == "error":
                replaced.append(each.name)
                streams.append(each)
        else:
            streams.append(each)
            segments.extend(_of_stream(tx, each, found.value, state, finished, moved))
    return GroupDescription(
        name=name,
        kind=group.kind,
        streams=tuple(streams),
        paused=group.paused,
        generation=group.generation,
        created_ms=group.created_ms,
        members=tuple(_members(tx, name, state)),
        segments=tuple(segments),
        replaced=tuple(replaced),
        lost_events=state.lost_events,
        checkpoints_started=tuple(each.name for each in state.started),
        assignor=state.assignor,
        phase=phase_of(state),
    )


def phase_of(state: GroupState) -> GroupPhase:
    """Return what the group is doing, as `GroupDescription.phase` says."""
    if not state.members:
        return "empty"
    if state.assigning is not None:
        return "assigning"
    awaited = (each for each in state.assignments if each.target is None or each.target in state.present)
    return "reconciling" if any(each.owner != each.target for each in awaited) else "stable"


def _members(tx: Tx, name: str, state: GroupState) -> Iterator[MemberDescription]:
    statuses = dict(member_statuses(tx, name))
    for reader, member in sorted(state.members.items()):
        yield MemberDescription(
            reader,
            member.instance,
            member.epoch,
            member.joined_ms,
            statuses.get(reader),
            len(state.owned_by(reader)),
            member.subscription,
            member.away_since_ms is not None,
        )


def _of_stream(
    tx: Tx,
    where: GroupStream,
    stream: StreamRecord,
    state: GroupState,
    finished: Mapping[SegmentKey, Progress],
    moved: Mapping[SegmentKey, int | None],
) -> Iterator[SegmentLag]:
    stream_id = stream.stream_id
    for key in sorted(state.open.keys() | state.waiting.keys()):
        if key[0] != stream_id:
            continue
        assignment = state.open.get(key)
        progress = finished.get(key, Progress())
        part = unfinished_part(tx, stream_id, key[1], progress, end=state.end_offsets.get(key))
        yield attrs.evolve(
            _lag(tx, stream, progress, part),
            owner=None if assignment is None else assignment.owner,
            target=None if assignment is None else assignment.target,
            owner_epoch=0 if assignment is None else assignment.owner_epoch,
            waiting=tuple(sorted(state.waiting.get(key, ()))),
            moved_ms=moved.get(key),
        )
    for part in _not_reached(tx, where, stream, state, finished):
        yield attrs.evolve(_lag(tx, stream, Progress(), part), reached=False)


def _lag(tx: Tx, stream: StreamRecord, progress: Progress, part: UnfinishedPart) -> SegmentLag:
    return SegmentLag(
        stream=stream.name,
        stream_id=stream.stream_id,
        segment=printable(part.segment),
        owner=None,
        target=None,
        owner_epoch=0,
        offset=progress.offset,
        number=progress.number,
        waiting=(),
        reached=True,
        sealed=part.sealed,
        events=part.events,
        bytes=part.bytes,
        age_ms=first_event_age_ms(tx, stream.stream_id, part.segment, part.offset) if part.events else None,
        moved_ms=None,
    )


def _not_reached(
    tx: Tx,
    where: GroupStream,
    stream: StreamRecord,
    state: GroupState,
    finished: Mapping[SegmentKey, Progress],
) -> Iterator[UnfinishedPart]:
    """Yield the segments that the group will read, and that its state does not hold yet."""
    stream_id = stream.stream_id
    offsets = {key: progress.offset for key, progress in finished.items()}
    ends = end_offsets(state, stream_id)
    try:
        cut = stream_cut(tx, where, state, offsets, state.waiting.keys())
        wanted = unfinished_segments(tx, stream, cut, ends)
        ended = {segment for segment, offset in cut.offsets.items() if offset >= 0}
    except (
        InvalidCut,
        NotFound,
    ):  # segments of the group were truncated and forgotten: it will go on at the head
        head = StreamCut(stream.name, stream_id, head_offsets(tx, stream))
        wanted, ended = unfinished_segments(tx, stream, head, ends), set()
    for segment, end in wanted.items():
        key = stream_id, segment
        if key not in state.open and key not in state.waiting and segment not in ended:
            yield unfinished_part(tx, stream_id, segment, Progress(), end=end)
