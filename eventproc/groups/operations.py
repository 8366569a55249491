"""Operations on a group while its readers work: checkpoints, reset and its preview, declaring a reader dead."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

import attrs

from eventproc.groups.changes import verify_movable, verify_streams
from eventproc.groups.cuts import checkpoint_cuts, end_offsets, group_cuts
from eventproc.groups.describe import describe_group
from eventproc.groups.followed_streams import follow_catalog, stream_updates
from eventproc.groups.kafka_groups import change_members
from eventproc.groups.liveness import expire_silent
from eventproc.groups.names import check_checkpoint, check_reader, stream_names
from eventproc.groups.start_positions import (
    GroupEnd,
    GroupResetEnd,
    GroupStart,
    check_start,
    start_position_of,
    start_positions_of,
)
from eventproc.groups.state import CheckpointState, GroupState
from eventproc.groups.stored_state import GROUP_LOG, change, folded_state
from eventproc.groups.updates import CheckpointStarted, GroupReset, ReaderLeft, StartPosition, StreamAdded
from eventproc.store.catalog import StoredHistory, find_stream, get_stream, unfinished_parts
from eventproc.store.database import Database, Tx
from eventproc.store.groups import (
    KAFKA,
    PRAVEGA,
    GroupRecord,
    GroupStream,
    SegmentKey,
    forget_said,
    get_group,
    note_committed,
    progress_by_segment,
    progress_of,
    progress_times,
)
from eventproc.store.model.argument_checks import check_int, check_mapping, check_str, invalid_argument
from eventproc.store.model.cuts import NOT_REACHED, StreamCut, with_ends
from eventproc.store.model.errors import InvalidCut, NotFound
from eventproc.store.model.group_errors import GroupNotEmpty, TooManyCheckpoints
from eventproc.store.model.history import History
from eventproc.store.model.ids import SegmentId, as_segment, format_segment, number_of
from eventproc.store.model.partitions import is_reserve
from eventproc.store.model.progress import Progress
from eventproc.store.model.short_repr import short_repr_of_fields
from eventproc.store.segments import (
    is_event_boundary,
    number_at,
    offset_at_time,
    offset_of_number,
    segment_state,
)
from eventproc.streams.queries import Moment

CHECKPOINTS_OUTSTANDING_MAX: Final = 3
"""Checkpoints under way at the same time, without automatic ones. More than one is a sign of a slow reader."""


@attrs.frozen
class GroupCheckpoint:
    """A complete checkpoint: the position of all readers, as a cut of each stream, to reset to or to truncate at.

    A stream that the group began to read later has no cut.
    """

    __repr__ = short_repr_of_fields

    name: str
    at_ms: int
    automatic: bool
    cuts: Mapping[str, StreamCut]


def start_checkpoint(tx: Tx, group: str, name: str) -> None:
    """Ask every online reader for its position. Complete immediately without readers.

    Does nothing if a checkpoint of that name is under way or kept.
    Raises NotFound, InvalidArgument, TooManyCheckpoints.
    """
    state = follow_catalog(tx, group)
    if any(each.name == name for each in (*state.started, *state.checkpoints)):
        return
    check_checkpoint(name)
    outstanding = [each for each in state.started if not each.automatic]
    if len(outstanding) >= CHECKPOINTS_OUTSTANDING_MAX:
        raise TooManyCheckpoints(group=group, outstanding=tuple(each.name for each in outstanding))
    change(tx, group, CheckpointStarted(name, tx.now_ms))


def list_checkpoints(tx: Tx, group: str) -> list[GroupCheckpoint]:
    """Return the complete checkpoints that are kept, oldest first. Raises NotFound, GroupStreamReplaced."""
    state = _followed(tx, group)
    verify_streams(tx, attrs.evolve(get_group(tx, group), streams=state.streams))
    return [_described(tx, state, each) for each in state.checkpoints]


def pending_readers(tx: Tx, group: str, name: str) -> tuple[str, ...]:
    """Return the readers that a checkpoint waits for; none if it is not under way. Raises NotFound (the group)."""
    return next((each.pending for each in _state(tx, group).started if each.name == name), ())


def find_checkpoint(tx: Tx, group: str, name: str) -> GroupCheckpoint | None:
    """Return a complete checkpoint; None while it is under way. Raises NotFound if it is neither."""
    state = _followed(tx, group)
    if any(each.name == name for each in state.started):
        return None
    for each in state.checkpoints:
        if each.name == name:
            return _described(tx, state, each)
    raise NotFound(kind=f"checkpoint of {group}", name=name)


def _described(tx: Tx, state: GroupState, checkpoint: CheckpointState) -> GroupCheckpoint:
    cuts = checkpoint_cuts(tx, state, checkpoint)
    return GroupCheckpoint(checkpoint.name, checkpoint.at_ms, checkpoint.automatic, cuts)


@attrs.frozen
class ResetPreview:
    """A stream before and after a reset: the group's position in it, and how much is left to read from there.

    The fields "before" are None for a stream that the group does not read now, or that was deleted since.
    """

    __repr__ = short_repr_of_fields

    stream: str
    cut_before: StreamCut | None
    cut_after: StreamCut
    events_before: int | None
    events_after: int
    bytes_before: int | None
    bytes_after: int


def reset_group(
    tx: Tx,
    group: str,
    start: GroupStart = "head",
    *,
    checkpoint: str | None = None,
    streams: Sequence[str] | None = None,
    until: GroupResetEnd = "same",
    dry_run: bool = False,
) -> list[ResetPreview]:
    """Move the group to `start`, or to the position of a checkpoint. Its readers continue there.

    Streams are found by name, so a stream that was deleted and created again is read from now on.
    streams: the streams to read from now on; None: the same.
    until: where the group ends; with a different end its checkpoints are dropped.
    dry_run: only return what would change.
    Raises NotFound, InvalidArgument, InvalidCut (also if the end lies before the start), and as `ensure_group`.
    Cost: a few look-ups for each segment of the streams.
    """
    verify_movable(record := get_group(tx, group))
    is_kafka = record.kind == KAFKA
    # A deleted stream that is left out now is not to be read when it is made again.
    if streams is None and not dry_run:
        follow_catalog(tx, group)
    if is_kafka and until not in ("same", None):
        raise invalid_argument("end", until, f"{group} belongs to clients of Kafka, which read without end")
    starts = reset_positions(tx, group, start, checkpoint=checkpoint, streams=streams, until=until)
    described = describe_group(tx, group)
    before = {} if described.replaced else group_cuts(tx, group)
    previews: list[ResetPreview] = []
    for start_position in starts:
        name = start_position.stream.name
        stream = get_stream(tx, name, stream_id=start_position.stream.stream_id).value
        cut = _cut_of(start_position, StoredHistory(tx, stream))
        parts = unfinished_parts(tx, stream, cut, dict(start_position.ends))
        left = [each for each in described.segments if each.stream == name]
        known = name in before
        previews.append(
            ResetPreview(
                stream=name,
                cut_before=before.get(name),
                cut_after=cut,
                events_before=sum(each.events for each in left) if known else None,
                events_after=sum(each.events for each in parts),
                bytes_before=sum(each.bytes for each in left) if known else None,
                bytes_after=sum(each.bytes for each in parts),
            )
        )
    if not dry_run:
        if is_kafka:
            change_members(tx, group)  # without those that are silent
        after = change(tx, group, GroupReset(tuple(starts)))
        if is_kafka:  # its clients begin where they like if nothing is committed
            _count_as_committed(tx, record, after.open)
    return previews


def _cut_of(start_position: StartPosition, history: History) -> StreamCut:
    own = {segment: progress.offset for segment, progress in start_position.held}
    own |= {segment: NOT_REACHED for segment, _ in start_position.waiting}
    offsets = with_ends(own, dict(start_position.ends), history)
    return StreamCut(start_position.stream.name, start_position.stream.stream_id, offsets)


def adopt_recreated_streams(tx: Tx, group: str) -> tuple[str, ...]:
    """Let the group read the streams that have its streams' names now; return the names created again.

    Raises NotFound.
    """
    verify_movable(record := get_group(tx, group))
    streams = record.streams
    replaced = [each.name for each in streams if get_stream(tx, each.name).value.stream_id != each.stream_id]
    if replaced:
        state = _state(tx, group)
        finished = progress_by_segment(tx, group)
        starts = (
            start_position_of(tx, each.name, added=each.added)
            if each.name in replaced
            else _standing(state, each, finished)
            for each in streams
        )
        change(tx, group, GroupReset(tuple(starts)))
    return tuple(replaced)


def _standing(
    state: GroupState, where: GroupStream, finished: Mapping[SegmentKey, Progress]
) -> StartPosition:
    """Return the start position at which the group continues in a stream where it is."""
    stream_id = where.stream_id
    return StartPosition(
        stream=where,
        held=tuple((key[1], progress) for key, progress in sorted(finished.items()) if key[0] == stream_id),
        waiting=tuple((key[1], before) for key, before in state.waits if key[0] == stream_id),
        ends=tuple(end_offsets(state, stream_id).items()),
    )


def reset_positions(
    tx: Tx,
    group: str,
    start: GroupStart,
    *,
    checkpoint: str | None,
    streams: Sequence[str] | None,
    until: GroupResetEnd,
) -> list[StartPosition]:
    """Return where `reset_group` would start the group; changes nothing. Raises the same."""
    now = _followed(tx, group).streams
    added = [each.name for each in now if each.added]
    names = [each.name for each in now] if streams is None else stream_names(streams)
    if checkpoint is not None:
        verify_streams(tx, attrs.evolve(get_group(tx, group), streams=now))
        check_str("checkpoint", checkpoint)
        found = find_checkpoint(tx, group, checkpoint)
        if found is None:
            raise invalid_argument("checkpoint", checkpoint, "it is not complete")
        if start != "head":
            raise invalid_argument("start", start, "the checkpoint says where to begin")
        if strangers := sorted(set(names) - found.cuts.keys() - set(added)):
            raise invalid_argument("checkpoint", checkpoint, f"the group did not read {strangers[0]} then")
        start = {name: cut for name, cut in found.cuts.items() if name in names}
    return start_positions_of(tx, names, start, _ends_after_reset(tx, group, names, until), added=added)


def _ends_after_reset(tx: Tx, group: str, names: Sequence[str], until: GroupResetEnd) -> GroupEnd:
    """Return where the group ends after a reset."""
    if until != "same":
        return until
    state = _state(tx, group)
    ends: dict[str, StreamCut] = {}
    for each in state.streams:
        found = find_stream(tx, each.name) if each.name in names else None
        offsets = end_offsets(state, each.stream_id)
        if found is not None and found.value.stream_id == each.stream_id and offsets:
            ends[each.name] = StreamCut(each.name, each.stream_id, offsets)
    return ends


@attrs.frozen(kw_only=True)
class GroupPartitionReset:
    """A partition of a group before and after a reset.

    committed: the number of the next event to read before it; None if none was ever committed.
    number: of the next event to read after it.
    clamped: the wanted event lay outside the partition, so the nearest one was taken.
    """

    __repr__ = short_repr_of_fields

    stream: str
    partition: int
    committed: int | None
    number: int
    clamped: bool = False


@attrs.frozen(kw_only=True)
class PartitionTarget:
    """Where each partition of a group is reset to: one of the fields, the others None. Raises InvalidArgument.

    start: an end, or the first event appended at that wall time or later. duration_ms: the first event that is not
    older. number: of an event. numbers: of an event, for each (stream, partition). shift: so many events further, or
    back if negative.
    """

    start: Moment | None = None
    duration_ms: int | None = None
    number: int | None = None
    numbers: Mapping[tuple[str, int], int] | None = None
    shift: int | None = None

    def __attrs_post_init__(self) -> None:
        given = [each for each in attrs.astuple(self) if each is not None]
        if len(given) != 1:
            reason = "exactly one of start, duration_ms, number and shift says where to go"
            raise invalid_argument("reset", given, reason)
        if self.start is not None:
            check_start(self.start, ())
        numbers = (self.number, *(self.numbers or {}).values())
        for what, value in (("duration", self.duration_ms), *(("number", each) for each in numbers)):
            if value is not None:
                check_int(what, value, least=0)
        if self.shift is not None:
            check_int("shift", self.shift)

    def start_at(self, tx: Tx) -> Moment | None:
        """Return the start position of a complete stream; None for a position that only a partition has."""
        return self.start if self.duration_ms is None else tx.now_ms - self.duration_ms

    def number_in(
        self, tx: Tx, key: SegmentKey, place: tuple[str, int], before: Progress
    ) -> tuple[int, bool]:
        """Return the event number to go to in a partition, and whether it was clamped into what is kept."""
        state, start = segment_state(tx, *key), self.start_at(tx)
        low, high = (0, 0) if state is None else (state.head_number, state.tail_number)
        if start in ("head", "tail"):
            return (low if start == "head" else high), False
        if isinstance(start, int):
            return (0 if state is None else number_at(tx, *key, offset_at_time(tx, *key, start))), False
        if self.numbers is not None:
            wanted = self.numbers[place]
        else:
            wanted = before.number + (self.shift or 0) if self.number is None else self.number
        number = min(max(wanted, low), high)
        return number, number != wanted


def reset_partitions(
    tx: Tx,
    db: Database,
    group: str,
    request: PartitionTarget,
    *,
    partitions: Collection[tuple[str, int]] | None = None,
    dry_run: bool = False,
) -> list[GroupPartitionReset]:
    """Move partitions of a group without online readers; return them as before and after.

    partitions: (stream, partition) of those to move; None: all. A partition is a segment that the group has reached.
    dry_run: change nothing. It is allowed while readers are online.
    Raises NotFound, GroupNotEmpty, GroupStreamReplaced, and InvalidArgument for a partition that the group does not
    read.
    """
    verify_movable(record := get_group(tx, group))
    if not dry_run:
        verify_empty(tx, db, group, event="a reset of partitions")
        follow_catalog(tx, group)
    before = {each.stream.name: each for each in _standings(tx, group)}
    moved_ms = progress_times(tx, group)
    wanted = None if partitions is None else set(partitions)
    start = request.start_at(tx)
    if start is None or wanted is not None:
        moved = [_moved_partitions(tx, each, request, wanted) for each in before.values()]
    elif before:
        positions = reset_positions(tx, group, start, checkpoint=None, streams=list(before), until="same")
        moved = [(each, frozenset[SegmentId]()) for each in positions]
    else:
        moved = []
    known = {
        (name, number_of(segment))
        for name, each in before.items()
        for segment, _ in each.held
        if not is_reserve(segment)
    }
    if wanted is not None and (strangers := sorted(wanted - known)):
        topic, partition = strangers[0]
        reason = f"{group} does not read partition {partition} of {topic}"
        raise invalid_argument("partitions", strangers[0], reason)
    if not dry_run:
        change(tx, group, GroupReset(tuple(after for after, _ in moved)))
    rows: list[GroupPartitionReset] = []
    committed_now: list[SegmentKey] = []
    for after, clamped in moved:
        name, stream_id = after.stream.name, after.stream.stream_id
        old = dict(before[name].held)
        for segment, progress in after.held:
            where = name, number_of(segment)
            if is_reserve(segment) or (wanted is not None and where not in wanted):
                continue
            committed = moved_ms.get((stream_id, segment)) is not None and segment in old
            rows.append(
                GroupPartitionReset(
                    stream=name,
                    partition=number_of(segment),
                    committed=old[segment].number if committed else None,
                    number=progress.number,
                    clamped=segment in clamped,
                )
            )
            committed_now.append((stream_id, segment))
    if not dry_run:
        _count_as_committed(tx, record, committed_now)
    return rows


def _count_as_committed(tx: Tx, group: GroupRecord, moved: Collection[SegmentKey]) -> None:
    """Count segments as committed where they were moved to, and nothing that clients of Kafka said of them before."""
    note_committed(tx, group.name, moved)
    if group.kind == KAFKA:
        forget_said(tx, group.name, set(moved))


def _standings(tx: Tx, group: str) -> list[StartPosition]:
    """Return where the group is in each stream that it reads once it has followed the catalog, and where it will begin.

    Raises NotFound, GroupStreamReplaced.
    """
    record, state = get_group(tx, group), _state(tx, group)
    following = stream_updates(tx, record, state)
    after = GROUP_LOG.fold_all(state, following)
    verify_streams(tx, attrs.evolve(record, streams=after.streams))
    added = {each.start.stream.name: each.start for each in following if isinstance(each, StreamAdded)}
    finished = progress_by_segment(tx, group)
    return [added.get(each.name) or _standing(state, each, finished) for each in after.streams]


def _moved_partitions(
    tx: Tx, where: StartPosition, request: PartitionTarget, wanted: set[tuple[str, int]] | None
) -> tuple[StartPosition, frozenset[SegmentId]]:
    """Return the position after the request, and the segments in which it was clamped."""
    held: list[tuple[SegmentId, Progress]] = []
    clamped: set[SegmentId] = set()
    for segment, before in where.held:
        key, progress = (where.stream.stream_id, segment), before
        place = where.stream.name, number_of(segment)
        if wanted is None or place in wanted:
            number, is_clamped = request.number_in(tx, key, place, before)
            if segment_state(tx, *key) is not None and number != before.number:
                progress = Progress(number, offset_of_number(tx, *key, number))
            if is_clamped:
                clamped.add(segment)
        held.append((segment, progress))
    return attrs.evolve(where, held=tuple(held)), frozenset(clamped)


def commit_numbers(tx: Tx, db: Database, group: str, numbers: Mapping[tuple[str, int], int]) -> None:
    """Commit event numbers for a group without online readers. Raises as `reset_partitions`."""
    if not numbers:
        return
    for each in reset_partitions(tx, db, group, PartitionTarget(numbers=numbers), partitions=numbers):
        if each.clamped:
            asked = numbers[each.stream, each.partition]
            side = "above" if asked > each.number else "below"
            reason = f"partition {each.partition} of {each.stream} has no number {side} {each.number}"
            raise invalid_argument("number", asked, reason)


def verify_empty(tx: Tx, db: Database, group: str, *, event: str) -> None:
    """Raise GroupNotEmpty if readers of the group are online; dead ones are removed.

    Raises NotFound, and InvalidArgument for a group of Pravega's clients.
    """
    if get_group(tx, group).kind == PRAVEGA:
        raise invalid_argument("group", group, "only clients of Pravega know whether it has readers")
    state = expire_silent(tx, db, group)
    if state.members:
        raise GroupNotEmpty(group=group, event=event, readers=tuple(sorted(state.members)))


def reader_offline(
    tx: Tx, group: str, reader: str, position: Mapping[str, Mapping[SegmentId, int]] | None = None
) -> None:
    """Declare a reader dead: its segments go to other readers; if it is alive, it is fenced and joins again.

    position: {stream: {segment: offset}}, what it finished according to the caller. None, and segments without an
        offset: the last durable progress.
    Does nothing if the reader is not online. Raises NotFound, InvalidArgument, and InvalidCut for an offset that is not
    the boundary of an event.
    """
    check_reader(reader)
    wanted = _offsets_of(position)
    state = _state(tx, group)
    if reader not in state.members:
        return
    positions = dict(progress_of(tx, group, state.owned_by(reader)))
    stream_ids = {stream.name: stream.stream_id for stream in state.streams}
    for name, offsets in wanted.items():
        if name not in stream_ids:
            raise invalid_argument("position", position, f"the group does not read {name}")
        for segment, offset in offsets.items():
            key = stream_ids[name], segment
            if key not in positions:
                raise invalid_argument(
                    "position", position, f"segment {format_segment(segment)} is not {reader}'s"
                )
            positions[key] = _progress_at(tx, name, key, offset)
    change(tx, group, ReaderLeft(reader, tuple(positions.items())))


def _offsets_of(position: object) -> dict[str, dict[SegmentId, int]]:
    """Return the position that a caller passed. Raises InvalidArgument."""
    if position is None:
        return {}
    shape = "it must be {stream: {segment: offset}}"
    return {
        check_str("stream", name): {
            as_segment(segment): check_int("offset", offset, least=0)
            for segment, offset in check_mapping("position", offsets, shape).items()
        }
        for name, offsets in check_mapping("position", position, shape).items()
    }


def _progress_at(tx: Tx, stream: str, key: SegmentKey, offset: int) -> Progress:
    stream_id, segment = key
    if segment_state(tx, stream_id, segment) is None or not is_event_boundary(tx, stream_id, segment, offset):
        where = f"{format_segment(SegmentId(segment))}={offset}"
        raise InvalidCut(stream=stream, cut=where, reason="no event begins or ends there")
    return Progress(number_at(tx, stream_id, segment, offset), offset)


def _followed(tx: Tx, group: str) -> GroupState:
    """Return the state of the group once it has followed the catalog; nothing is written."""
    record, state = get_group(tx, group), _state(tx, group)
    return GROUP_LOG.fold_all(state, stream_updates(tx, record, state))


def _state(tx: Tx, group: str) -> GroupState:
    return folded_state(tx, get_group(tx, group)).state
