"""How much of a stream lies behind a position, in events and bytes: the lag of reader groups and of Spark's queries."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import attrs

from eventproc.store.catalog.stored_history import StoredHistory
from eventproc.store.catalog.stream_records import StreamRecord
from eventproc.store.database import Tx
from eventproc.store.model.cuts import StreamCut, divide_cut
from eventproc.store.model.epochs import Segment
from eventproc.store.model.errors import NotFound
from eventproc.store.model.history import History, get_segment
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.progress import Progress
from eventproc.store.segments import number_at, progress_at, segment_ids, segment_state

NO_ENDS: Final[Mapping[Any, Any]] = MappingProxyType({})


@attrs.frozen
class UnfinishedPart:
    """What is not finished of one segment.

    offset: where reading goes on, at the head or behind it. sealed: no further events will be appended.
    """

    segment: SegmentId
    offset: int
    events: int
    bytes: int
    sealed: bool


def unfinished_part(
    tx: Tx,
    stream_id: int,
    segment: SegmentId,
    progress: Progress,
    *,
    end: int | None = None,
    count_truncated: bool = False,
) -> UnfinishedPart:
    """Return what is not finished of a segment; nothing when the segment has no row any more.

    end: offset to count to, an event boundary. None: the tail.
    count_truncated: also count events before the head, which can no longer be read.
    Cost: one look-up, and what `number_at` costs if `end` lies before the tail.
    """
    state = segment_state(tx, stream_id, segment)
    if state is None:
        return UnfinishedPart(segment, progress.offset, 0, 0, sealed=True)
    tail, tail_number = state.tail, state.tail_number
    if end is not None and end < tail:
        tail, tail_number = max(end, state.head), number_at(tx, stream_id, segment, end)
    offset = max(progress.offset, state.head)
    events = progress.unfinished(0 if count_truncated else state.head_number, tail_number)
    return UnfinishedPart(segment, offset, events, max(tail - offset, 0), state.sealed)


def unfinished_parts(
    tx: Tx, stream: StreamRecord, cut: StreamCut, ends: Mapping[SegmentId, int] = NO_ENDS
) -> list[UnfinishedPart]:
    """Return what lies behind `cut` in each segment, to the tail or to the cut `ends`, sorted by segment.

    Raises InvalidCut and NotFound when the history of the stream no longer knows segments of the cut.
    Cost: two look-ups for each segment.
    """
    return [
        unfinished_part(
            tx,
            stream.stream_id,
            segment,
            progress_at(tx, stream.stream_id, segment, cut.offsets.get(segment, 0)),
            end=end,
        )
        for segment, end in unfinished_segments(tx, stream, cut, ends).items()
    ]


def unfinished_segments(
    tx: Tx, stream: StreamRecord, cut: StreamCut, ends: Mapping[SegmentId, int] = NO_ENDS
) -> dict[SegmentId, int | None]:
    """Return the segments that are still to be read from `cut` on, sorted, each with the offset to stop at.

    ends: where reading stops, as a cut; empty: nowhere. None: the segment is read to its tail.
    Raises InvalidCut and NotFound when the history of the stream no longer knows segments of the cut.
    """
    history = StoredHistory(tx, stream)
    start = divide_cut(cut, history)
    end = divide_cut(StreamCut(stream.name, stream.stream_id, ends), history) if ends else None
    found: dict[SegmentId, int | None] = {}
    for segment in known_segments(tx, stream.stream_id, history).values():
        if start.is_behind(segment):
            continue
        if end is None or end.is_behind(segment):
            found[segment.id] = ends.get(segment.id)
        elif ends.get(segment.id, 0) > 0:
            found[segment.id] = ends[segment.id]
    return found


def known_segments(tx: Tx, stream_id: int, history: History) -> dict[SegmentId, Segment]:
    """Return the segments that have a row and lie in an epoch that is kept, sorted by id. One query."""
    found: dict[SegmentId, Segment] = {}
    for segment in segment_ids(tx, stream_id):
        try:
            found[segment] = get_segment(history, segment)
        except NotFound:  # it lies before the oldest epoch kept; the reaper has not removed its row yet
            continue
    return found
