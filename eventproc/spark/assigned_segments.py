"""Queries of chosen segments, as Kafka's `assign`: these alone, and not their successors.

The position of such a query in a stream is no cut: it has an offset for each of its segments that is not finished. What
happens to other segments, a truncation or a scale, does not matter to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import attrs

from eventproc.spark.batch_cursor import BatchCursor
from eventproc.spark.source_options import ASSIGNED
from eventproc.store.catalog import StoredHistory, StreamRecord, current_router
from eventproc.store.catalog.queries import tail_cut
from eventproc.store.database import Tx
from eventproc.store.model.argument_checks import invalid_argument
from eventproc.store.model.cuts import StreamCut, segments_between
from eventproc.store.model.errors import EventprocError, InvalidArgument, InvalidCut, NotFound
from eventproc.store.model.frontier import Frontier
from eventproc.store.model.ids import SegmentId, format_segment, parse_segment
from eventproc.store.segments import SegmentState, segment_state
from eventproc.store.segments.holds import HeldRange
from eventproc.store.segments.offsets import is_event_boundary, number_at
from eventproc.streams.stream_cuts import truncated

_FINISHED: Final = " finished "


@attrs.frozen
class AssignedPosition:
    """Where a query of chosen segments is: {segment: offset}, and the segments that it has read to their ends.

    Its text is "assigned 7:2.1=120 finished 0.0,1.0".
    """

    stream_id: int
    offsets: Mapping[SegmentId, int]
    finished: frozenset[SegmentId] = frozenset()

    @classmethod
    def parse(cls, text: str, stream: str) -> AssignedPosition:
        """Return the position with this text. Raises InvalidCut."""
        if not text.startswith(ASSIGNED):
            reason = "it is not a position of chosen segments: give a query with the option assign a new checkpoint"
            raise InvalidCut(stream=stream, cut=text, reason=reason)
        own, _, ended = text.removeprefix(ASSIGNED).partition(_FINISHED)
        try:
            finished = frozenset(parse_segment(each) for each in ended.split(",") if each)
        except InvalidArgument as why:
            raise InvalidCut(stream=stream, cut=text, reason=str(why)) from None
        if own.endswith(":") and own[:-1].isdecimal():
            return cls(int(own[:-1]), {}, finished)
        cut = StreamCut.parse(own, stream)
        return cls(cut.stream_id, cut.offsets, finished)

    def __str__(self) -> str:
        entries = (f"{format_segment(each)}={offset}" for each, offset in sorted(self.offsets.items()))
        ended = ",".join(format_segment(each) for each in sorted(self.finished))
        return f"{ASSIGNED}{self.stream_id}:{','.join(entries)}{_FINISHED + ended if ended else ''}"


def parse_position(text: str, stream: str) -> StreamCut | AssignedPosition:
    """Return the position of a query in `stream` with this text. Raises InvalidCut."""
    if text.startswith(ASSIGNED):
        return AssignedPosition.parse(text, stream)
    return StreamCut.parse(text, stream)


def find_assigned(tx: Tx, stream: StreamRecord, given: Sequence[SegmentId | str]) -> list[SegmentId]:
    """Return the segments that the option `assign` names: partitions of a topic by their numbers.

    given: segments by id, and partitions as the text of their number. Raises InvalidArgument for a partition.
    """
    found = {
        current_router(tx, stream).partition(int(each), topic=stream.name) if isinstance(each, str) else each
        for each in given
    }
    return sorted(found)


def ends_of(tx: Tx, stream: StreamRecord, segments: Sequence[SegmentId], *, tail: bool) -> AssignedPosition:
    """Return the heads of the segments, or their tails. Raises NotFound."""
    states = {each: existing_segment(tx, stream, each) for each in segments}
    ends = {each: state.tail if tail else state.head for each, state in states.items()}
    return AssignedPosition(stream.stream_id, ends)


def within_cut(
    tx: Tx, stream: StreamRecord, segments: Sequence[SegmentId], cut: StreamCut
) -> AssignedPosition:
    """Return where a cut passes through the segments. A segment before it is finished, one behind it is not begun."""
    behind = set(segments_between(StoredHistory(tx, stream), cut, tail_cut(tx, stream)))
    ahead = [each for each in segments if each in behind or each in cut.offsets]
    offsets = {each: max(cut.offsets.get(each, 0), existing_segment(tx, stream, each).head) for each in ahead}
    return AssignedPosition(stream.stream_id, offsets, frozenset(segments) - offsets.keys())


def at_offsets(
    tx: Tx, stream: StreamRecord, segments: Sequence[SegmentId], given: Mapping[SegmentId, int]
) -> AssignedPosition:
    """Return the given offsets, and the heads of the other segments. Raises InvalidArgument."""
    offsets = dict(ends_of(tx, stream, segments, tail=False).offsets)
    for segment, offset in given.items():
        if segment not in offsets:
            shown = f"offset in segment {format_segment(segment)} of {stream.name}"
            raise invalid_argument(shown, offset, "the option assign does not name the segment")
        check_offset(tx, stream, segment, existing_segment(tx, stream, segment), offset)
        offsets[segment] = offset
    return AssignedPosition(stream.stream_id, offsets)


class AssignedCursor(BatchCursor):
    """The end of a batch in chosen segments of a stream. A segment that is finished is left."""

    def __init__(
        self,
        tx: Tx,
        stream: StreamRecord,
        position: AssignedPosition,
        limits: Mapping[SegmentId, int] | None,
    ) -> None:
        super().__init__(tx, stream, Frontier(position.offsets, {}), limits)
        self._finished = position.finished

    def complete(self) -> None:
        """Leave the segments that were read to their ends."""
        held = self.frontier.held
        ended = [each for each, offset in held.items() if self._is_end(each, offset)]
        for segment in ended:
            del held[segment]
        self._finished |= set(ended)

    def position(self) -> str:
        """Return the text of the cursor's position."""
        return str(self._position())

    def unread_events(self) -> int:
        """Return how many events lie between the cursor and the tails."""
        return sum(events for events, _ in unread_of(self._tx, self._position()).values())

    def _position(self) -> AssignedPosition:
        return AssignedPosition(self.stream.stream_id, dict(self.frontier.held), self._finished)


def cursor_at(
    tx: Tx,
    stream: StreamRecord,
    segments: Sequence[SegmentId],
    position: AssignedPosition,
    limit: AssignedPosition | None,
    lose: Callable[[EventprocError], None],
) -> AssignedCursor:
    """Return the cursor in `segments` at a position. A segment that the position does not know begins at its head.

    limit: where to stop. lose: called with what was truncated; raises unless the query goes on at the head.
    """
    held = {}
    for segment in segments:
        if segment in position.finished:
            continue
        state = segment_state(tx, stream.stream_id, segment)
        offset = position.offsets.get(segment, 0 if state is None else state.head)
        head = offset if state is None else state.head
        if state is None or head > offset:
            lose(truncated(tx, stream, segment, offset))
        if state is not None:
            held[segment] = max(offset, head)
    limits = None
    if limit is not None:  # what was finished at the limit is read to its end
        limits = {each: max(limit.offsets[each], held[each]) for each in held if each in limit.offsets}
    found = AssignedPosition(stream.stream_id, held, position.finished & set(segments))
    return AssignedCursor(tx, stream, found, limits)


def assigned_ranges(
    tx: Tx,
    stream: StreamRecord,
    start: AssignedPosition,
    end: AssignedPosition,
    lose: Callable[[EventprocError], None],
) -> list[list[HeldRange]]:
    """Return the ranges between two positions, one group for each segment."""
    groups = []
    for segment in sorted((end.offsets.keys() | end.finished) - start.finished):
        state = segment_state(tx, stream.stream_id, segment)
        begin = start.offsets.get(segment, 0 if state is None else state.head)
        stop = end.offsets.get(segment)
        if stop is None and state is None:
            lose(truncated(tx, stream, segment, begin))
        elif stop is None and state is not None:
            stop = state.tail  # finished by this batch: sealed, so its tail stays
        if stop is not None and stop > begin:
            groups.append([HeldRange(segment, begin, stop)])
    return groups


def unread_of(tx: Tx, position: AssignedPosition) -> dict[SegmentId, tuple[int, int]]:
    """Return the unread (events, bytes) of each segment; of one that was truncated, what is left."""
    found = {}
    for segment, offset in position.offsets.items():
        state = segment_state(tx, position.stream_id, segment)
        if state is not None:
            begin = max(offset, state.head)
            numbers = [number_at(tx, position.stream_id, segment, at) for at in (begin, state.tail)]
            found[segment] = (numbers[1] - numbers[0], state.tail - begin)
    return found


def check_offset(tx: Tx, stream: StreamRecord, segment: SegmentId, state: SegmentState, offset: int) -> None:
    """Raise InvalidArgument unless the offset lies before the head, or between two events. state: of the segment."""
    shown = f"offset in segment {format_segment(segment)} of {stream.name}"
    if offset > state.tail:
        raise invalid_argument(shown, offset, f"the segment ends at {state.tail}")
    if offset >= state.head and not is_event_boundary(tx, stream.stream_id, segment, offset):
        raise invalid_argument(shown, offset, "it lies inside an event")


def existing_segment(tx: Tx, stream: StreamRecord, segment: SegmentId) -> SegmentState:
    """Return how far a segment goes. Raises NotFound."""
    state = segment_state(tx, stream.stream_id, segment)
    if state is None:
        raise NotFound(kind="segment", name=f"{format_segment(segment)} of {stream.name}")
    return state
