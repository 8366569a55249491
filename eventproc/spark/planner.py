"""Plans batches: where a query begins, where a batch ends, and which chunk files contain its events."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Final

import attrs

from eventproc.base.clock import new_id
from eventproc.spark.assigned_segments import (
    AssignedCursor,
    AssignedPosition,
    assigned_ranges,
    at_offsets,
    check_offset,
    cursor_at,
    ends_of,
    existing_segment,
    find_assigned,
    parse_position,
    within_cut,
)
from eventproc.spark.batch_cursor import BatchBudget, BatchCursor, advance, ranges_between
from eventproc.spark.partitioning import FileSlice
from eventproc.spark.planner_directory import HoldKey, PlannerDirectory
from eventproc.spark.source_options import (
    ASSIGNED,
    SEGMENT_HEAD,
    SEGMENT_TAIL,
    Positions,
    PositionSpec,
    SourceOptions,
)
from eventproc.store.catalog import (
    StoredHistory,
    StreamRecord,
    find_stream,
    get_stream,
    list_streams,
    unfinished_parts,
)
from eventproc.store.catalog.queries import head_cut, tail_cut, time_cut
from eventproc.store.chunks.export import ChunkExporter
from eventproc.store.chunks.index import (
    ChunkFile,
    LocatedRange,
    drop_missing,
    find_missing,
    locate_range,
    register_chunks,
)
from eventproc.store.database import Tx
from eventproc.store.file_store import FileStore
from eventproc.store.model.argument_checks import invalid_argument
from eventproc.store.model.cuts import StreamCut
from eventproc.store.model.errors import (
    EventprocError,
    InvalidArgument,
    InvalidCut,
    StreamReplaced,
    Truncated,
)
from eventproc.store.model.frontier import Frontier
from eventproc.store.model.ids import SegmentId, epoch_of
from eventproc.store.segments import segment_state
from eventproc.store.segments.holds import HeldRange, find_held_plan, held_ranges, place_hold
from eventproc.streams.fetch import limits_of
from eventproc.streams.stream_cuts import frontier_at, truncated

LOG = logging.getLogger("eventproc.spark")

Offsets = Mapping[str, str]
"""A position as Spark's checkpoint stores it: {full stream name: text of a cut}, sorted by name."""

TOLERATE: Final = 'give the query a new checkpoint, or set the option failOnDataLoss to "false"'
"""What a user may do about lost events, for the texts of errors."""

_ROUNDS_MAX: Final = 4
"""How often missing files are exported again before the plan fails."""


@attrs.frozen
class PlannedRanges:
    """The ranges that a batch reads of one stream, in groups that are each read in order."""

    stream: str
    stream_id: int
    groups: list[list[HeldRange]]

    def ranges(self) -> Iterator[HeldRange]:
        """Yield all ranges, group by group."""
        for group in self.groups:
            yield from group


@attrs.frozen
class SegmentRanges:
    """Exact ranges to read of one stream: {segment: (start, end)}. stream_id: the incarnation, None for any."""

    stream: str
    stream_id: int | None
    own: Mapping[SegmentId, tuple[int, int]]


class Planner:
    """Plans the batches of the streams that `options` name, on an open directory."""

    def __init__(self, options: SourceOptions, directory: PlannerDirectory) -> None:
        self._options = options
        self._directory = directory
        self._limits: Offsets | None = None
        self._planned_ms: int | None = None  # when the last batch was

    def position(self, places: Positions) -> dict[str, str]:
        """Return the position that the options name in every stream.

        Raises NotFound, StreamReplaced, InvalidCut, Truncated.
        """
        return self._directory.read(partial(self._position, places))

    def freeze(self, end: Offsets) -> None:
        """Limit all batches to `end`. Streams that are not in `end` are not read."""
        self._limits = dict(end)

    def next_position(self, start: Offsets, budget: BatchBudget) -> tuple[dict[str, str], dict[str, str]]:
        """Return the end of the next batch and the tails of its streams: (end, tails). One read.

        A stream that is not in `start` was created since and is read from its head. Raises Truncated and
        StreamReplaced, unless `failOnDataLoss` is false: then reading continues at the head of the stream.

        The end is `start` while there are fewer than `minEventsPerTrigger` events, up to `maxTriggerDelay` after the
        last batch. The first batch and a frozen query do not wait.
        """
        end, tails = self._directory.read(partial(self._next, start, budget))
        if end != start:
            self._planned_ms = self._directory.db.clock.monotonic_ms()
        return end, tails

    def plan(self, start: Offsets, end: Offsets, *, batch: str, glued: bool) -> list[list[FileSlice]]:
        """Return the file slices between two positions, in groups that are each read in order.

        First places a hold, so that the events stay readable, then exports events that are in no chunk file yet.
        Raises Truncated, StreamReplaced, OSError.

        batch: the key under which the directory keeps the hold.
        glued: whether a segment and its successors form one group.
        """
        held = self._directory.write(partial(self._hold, start, end, batch=batch, glued=glued))
        self._directory.note(batch, [hold for _, hold in held])
        return [group for each, _ in held for group in self._exported(each)]

    def plan_ranges(self, ranges: Sequence[SegmentRanges], *, batch: str) -> list[list[FileSlice]]:
        """Return the file slices of exactly these ranges, one group for each segment. Holds them as `plan` does.

        Raises NotFound (a stream, a segment), StreamReplaced, InvalidArgument (an offset beyond the tail or inside an
        event), Truncated unless a hold kept the range, OSError.
        """
        held = self._directory.write(partial(self._hold_ranges, ranges))
        self._directory.note(batch, [hold for _, hold in held])
        return [group for each, _ in held for group in self._exported(each)]

    def _hold_ranges(self, ranges: Sequence[SegmentRanges], tx: Tx) -> list[tuple[PlannedRanges, HoldKey]]:
        found: list[tuple[PlannedRanges, HoldKey]] = []
        for each in ranges:
            stream = get_stream(tx, each.stream, stream_id=each.stream_id).value
            kept = held_ranges(tx, stream.stream_id)
            groups = []
            for segment, (start, end) in sorted(each.own.items()):
                wanted = HeldRange(segment, start, end)
                _check_range(tx, stream, wanted)
                held_before = any(
                    one.segment == segment and one.start <= start and end <= one.end for one in kept
                )
                if start < end:
                    groups.append(list(self._left(tx, stream, wanted, held_before=held_before)))
            planned = PlannedRanges(stream.name, stream.stream_id, [group for group in groups if group])
            if planned.groups:
                name, until_ms = f"spark-{new_id(tx.clock)}", tx.now_ms + self._directory.hold_ms
                place_hold(tx, stream.stream_id, name, plan=name, ranges=planned.groups, until_ms=until_ms)
                found.append((planned, (stream.stream_id, name)))
        return found

    def _streams(self, tx: Tx) -> list[StreamRecord]:
        if self._options.pattern is not None:
            pattern = re.compile(self._options.pattern)
            return [each for each in list_streams(tx) if pattern.fullmatch(each.name)]
        return [get_stream(tx, name).value for name in sorted(self._options.streams)]

    def _position(self, places: Positions, tx: Tx) -> dict[str, str]:
        return {
            each.name: self._position_in(tx, each, places.of(each.name), strict=places.strict)
            for each in self._streams(tx)
        }

    def _position_in(self, tx: Tx, stream: StreamRecord, place: PositionSpec, *, strict: bool) -> str:
        if (given := self._options.assigned.get(stream.name)) is None:
            return str(_cut_of(tx, stream, place, strict=strict))
        if isinstance(place, str) and place.startswith(ASSIGNED):
            return place
        segments = find_assigned(tx, stream, given)
        if place == "earliest" or place == "latest":
            return str(ends_of(tx, stream, segments, tail=place == "latest"))
        if isinstance(place, Mapping):
            offsets = {segment: _offset_of(tx, stream, segment, at) for segment, at in place.items()}
            return str(at_offsets(tx, stream, segments, offsets))
        return str(within_cut(tx, stream, segments, _cut_of(tx, stream, place, strict=strict)))

    def _next(self, start: Offsets, budget: BatchBudget, tx: Tx) -> tuple[dict[str, str], dict[str, str]]:
        walks, tails = [], {}
        for stream in self._read_on(tx, start):
            limit = None if self._limits is None else self._limits.get(stream.name)
            if self._limits is not None and limit is None:
                continue
            if stream.name in self._options.assigned:
                walk: BatchCursor = self._assigned_cursor(tx, stream, start.get(stream.name), limit)
                tails[stream.name] = str(ends_of(tx, stream, list(walk.frontier.held), tail=True))
            else:
                frontier = self._frontier(tx, stream, start.get(stream.name))
                cut = None if limit is None else StreamCut.parse(limit, stream.name)
                bounds = None if cut is None else limits_of(tx, stream.name, cut, frontier.held)
                walk = BatchCursor(tx, stream, frontier, bounds)
                tails[stream.name] = str(tail_cut(tx, stream))
            walks.append(walk)
        if self._is_early(walks):
            return dict(start), tails
        advance(walks, budget)
        return {walk.stream.name: walk.position() for walk in walks}, tails

    def _assigned_cursor(
        self, tx: Tx, stream: StreamRecord, text: str | None, limit: str | None
    ) -> AssignedCursor:
        begin = None if text is None else AssignedPosition.parse(text, stream.name)
        if begin is None or begin.stream_id != stream.stream_id:
            begin = AssignedPosition(stream.stream_id, {})  # every segment begins at its head
        end = None if limit is None else AssignedPosition.parse(limit, stream.name)
        segments = find_assigned(tx, stream, self._options.assigned[stream.name])
        return cursor_at(tx, stream, segments, begin, end, self._lose)

    def _is_early(self, walks: Sequence[BatchCursor]) -> bool:
        """Return whether the next batch should wait for more events."""
        least = self._options.events_min
        if least is None or self._limits is not None or self._planned_ms is None:
            return False
        waited_ms = self._directory.db.clock.monotonic_ms() - self._planned_ms
        if waited_ms >= self._options.trigger_delay_ms:
            return False
        return sum(walk.unread_events() for walk in walks) < least

    def _read_on(self, tx: Tx, start: Offsets) -> list[StreamRecord]:
        """Return the streams to continue with. A stream of `start` that no longer exists counts as data loss."""
        for name, text in start.items():
            stream_id = parse_position(text, name).stream_id
            found = find_stream(tx, name)
            if found is None or found.value.stream_id != stream_id:
                current = None if found is None else found.value.stream_id
                self._lose(StreamReplaced(stream=name, stream_id=stream_id, current_id=current))
        if self._options.pattern is not None:
            return self._streams(tx)
        found_streams = [find_stream(tx, name) for name in sorted(self._options.streams)]
        return [each.value for each in found_streams if each is not None]

    def _frontier(self, tx: Tx, stream: StreamRecord, text: str | None) -> Frontier:
        cut = None if text is None else StreamCut.parse(text, stream.name)
        if cut is not None and cut.stream_id == stream.stream_id:
            try:
                return frontier_at(tx, stream, cut)
            except Truncated as why:
                self._lose(why)
        return frontier_at(tx, stream, head_cut(tx, stream))

    def _hold(
        self, start: Offsets, end: Offsets, tx: Tx, *, batch: str, glued: bool
    ) -> list[tuple[PlannedRanges, HoldKey]]:
        self._directory.end_done(tx)
        name = f"spark-{new_id(tx.clock)}"
        found: list[tuple[PlannedRanges, HoldKey]] = []
        for stream, text in end.items():
            plan = plan_key(start.get(stream), text, glued)
            held = self._ranges(tx, stream, start.get(stream), text, plan=plan, glued=glued)
            if held is not None and held.groups:
                until_ms = tx.now_ms + self._directory.hold_ms
                place_hold(tx, held.stream_id, name, plan=plan, ranges=held.groups, until_ms=until_ms)
                found.append((held, (held.stream_id, name)))
        return found

    def _ranges(
        self, tx: Tx, name: str, start: str | None, end: str, *, plan: str, glued: bool
    ) -> PlannedRanges | None:
        """Return the readable ranges between two positions in a stream. Unreadable ones count as data loss."""
        until = parse_position(end, name)
        try:
            stream = get_stream(tx, name, stream_id=until.stream_id).value
        except StreamReplaced as why:
            self._lose(why)
            return None
        groups = find_held_plan(tx, stream.stream_id, plan)
        held_before = groups is not None
        if groups is None and isinstance(until, AssignedPosition):
            since = None if start is None else AssignedPosition.parse(start, name)
            if since is None or since.stream_id != stream.stream_id:
                since = AssignedPosition(stream.stream_id, {})
            groups = assigned_ranges(tx, stream, since, until, self._lose)
        elif groups is None and isinstance(until, StreamCut):
            groups = self._ranges_of_cuts(tx, stream, start, until, glued=glued)
        if groups is None:
            return None
        left = [
            [part for each in group for part in self._left(tx, stream, each, held_before=held_before)]
            for group in groups
        ]
        return PlannedRanges(name, stream.stream_id, [group for group in left if group])

    def _ranges_of_cuts(
        self, tx: Tx, stream: StreamRecord, start: str | None, until: StreamCut, *, glued: bool
    ) -> list[list[HeldRange]] | None:
        """Return the ranges between two cuts, readable or not; None if they count as lost."""
        since = None if start is None else StreamCut.parse(start, stream.name)
        if since is None or since.stream_id != stream.stream_id:
            since = head_cut(tx, stream)
        try:
            groups = ranges_between(tx, stream, since, until)
        except (InvalidCut, InvalidArgument) as why:
            self._lose(why)  # the history of a cut, or the complete range, was truncated
            return None
        if glued:
            return groups
        return [[each] for each in sorted((e for g in groups for e in g), key=lambda e: e.segment)]

    def _left(
        self, tx: Tx, stream: StreamRecord, held: HeldRange, *, held_before: bool
    ) -> Iterator[HeldRange]:
        """Yield the readable parts of a range.

        Events before the head are readable if they were held when the head passed them. Otherwise they count as
        lost, even if the reaper has not freed them yet: the result must not depend on when the reaper runs.
        """
        if not held_before:
            state = segment_state(tx, stream.stream_id, held.segment)
            head = held.end if state is None else state.head
            if head > held.start:
                self._lose(truncated(tx, stream, held.segment, held.start))
            held = HeldRange(held.segment, min(max(held.start, head), held.end), held.end)
        for piece in locate_range(tx, stream.stream_id, held):
            if piece.lost:
                self._lose(truncated(tx, stream, held.segment, held.start))
            else:
                yield HeldRange(held.segment, piece.start, piece.end)

    def _lose(self, why: EventprocError) -> None:
        """Raise `why`, or log it if the query tolerates data loss."""
        if self._options.fail_on_data_loss:
            if isinstance(why, Truncated):
                why.remedy = f"{TOLERATE} to continue with the events behind them"
            elif isinstance(why, StreamReplaced):
                why.remedy = f"{TOLERATE} to read the stream of that name from its head"
            raise why
        LOG.warning("the query lost events: %s", why)

    def _exported(self, held: PlannedRanges) -> list[list[FileSlice]]:
        """Return the slices of all ranges, after exporting events that are in no file."""
        files = self._directory.files
        for _ in range(_ROUNDS_MAX):
            pieces = self._directory.read(partial(_pieces, held))
            if missing := find_missing(files, _chunks(pieces)):
                self._directory.write(partial(drop_missing, chunks=missing))
            elif to_export := [
                HeldRange(each.segment, piece.start, piece.end)
                for each, found in pieces.items()
                for piece in found
                if piece.chunk is None
            ]:
                self._export(files, held, to_export)
            else:
                return [
                    [slice_ for each in group for slice_ in _slices(files, held.stream, pieces[each])]
                    for group in held.groups
                ]
        raise OSError(
            f"{files.place}: chunk files disappear as soon as they are written; check whether another"
            " program deletes them"
        )

    def _export(self, files: FileStore, held: PlannedRanges, ranges: Sequence[HeldRange]) -> None:
        export = ChunkExporter(
            files=files,
            stream=held.stream,
            stream_id=held.stream_id,
            instance=self._directory.db.instance_id,
            sync=self._directory.synced,
        )
        for written in export.run(self._directory.read, ranges):
            self._directory.write(partial(register_chunks, written=written))


def plan_key(start: str | None, end: str, glued: bool) -> str:
    """Return the key under which the hold of a plan is found again."""
    return f"{start or 'earliest'} -> {end}{'' if glued else ' split'}"


def _cut_of(tx: Tx, stream: StreamRecord, place: PositionSpec, *, strict: bool) -> StreamCut:
    if place == "earliest":
        return head_cut(tx, stream)
    if place == "latest":
        return tail_cut(tx, stream)
    if isinstance(place, int):
        cut = time_cut(tx, stream, place)
        if strict and not any(each.events for each in unfinished_parts(tx, stream, cut)):
            reason = (
                f"{stream.name} has no event at or after it, and startingOffsetsByTimestampStrategy is error"
            )
            raise invalid_argument("starting time in ms", place, reason)
        return cut
    if isinstance(place, Mapping):
        offsets = {segment: _offset_of(tx, stream, segment, at) for segment, at in place.items()}
        cut = StreamCut(stream.name, stream.stream_id, offsets)
    else:
        cut = StreamCut.parse(place, stream.name)
    frontier_at(tx, stream, cut)
    return cut


def _offset_of(tx: Tx, stream: StreamRecord, segment: SegmentId, at: int) -> int:
    """Return an offset of a segment, or that of its head or tail. Raises NotFound."""
    state = existing_segment(tx, stream, segment)
    return {SEGMENT_HEAD: state.head, SEGMENT_TAIL: state.tail}.get(at, at)


def _check_range(tx: Tx, stream: StreamRecord, wanted: HeldRange) -> None:
    """Raise NotFound or InvalidArgument unless the range may be read. Offsets before the head are not checked."""
    state = segment_state(tx, stream.stream_id, wanted.segment)
    if state is None and epoch_of(wanted.segment) <= StoredHistory(tx, stream).current:
        return  # it was truncated completely
    state = state or existing_segment(tx, stream, wanted.segment)
    for offset in (wanted.start, wanted.end):
        check_offset(tx, stream, wanted.segment, state, offset)


def _pieces(held: PlannedRanges, tx: Tx) -> dict[HeldRange, list[LocatedRange]]:
    return {each: locate_range(tx, held.stream_id, each) for each in held.ranges()}


def _chunks(pieces: Mapping[HeldRange, Sequence[LocatedRange]]) -> list[ChunkFile]:
    return [piece.chunk for found in pieces.values() for piece in found if piece.chunk is not None]


def _slices(files: FileStore, stream: str, pieces: Sequence[LocatedRange]) -> Iterator[FileSlice]:
    for piece in pieces:
        chunk = piece.chunk
        assert chunk is not None, f"[{piece.start}, {piece.end}) is in no chunk file"
        yield FileSlice(
            place=files.place,
            path=chunk.path,
            stream=stream,
            segment=chunk.segment,
            offset=chunk.start,
            number=chunk.first_number,
            start=piece.start,
            end=piece.end,
        )
