"""Looks at a stream for its picture: when its segments began and ended, and where its groups are.

See docs/design/stream-picture.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final

import attrs

from eventproc.store.catalog import StoredHistory, StreamRecord
from eventproc.store.catalog.queries import head_cut
from eventproc.store.database import Tx
from eventproc.store.groups import group_cuts
from eventproc.store.model.cuts import later
from eventproc.store.model.errors import InvalidCut
from eventproc.store.model.history import History
from eventproc.store.model.ids import SegmentId, epoch_of, printable
from eventproc.store.model.partitions import is_reserve
from eventproc.store.model.ranges import KeyRange
from eventproc.store.segments import SegmentState, read_extents, segment_states
from eventproc.streams.picture import PicturePosition, PictureSegment, StreamPicture

SEGMENTS_SHOWN_MAX: Final = 10_000
"""Segments of a picture, the newest ones. Higher: a browser takes seconds for it; each takes about 200 bytes."""

GROUPS_SHOWN_MAX: Final = 50
"""Groups of a picture, the first ones by name. Higher: nobody tells the lines apart; each takes a look-up for each
segment that it is in."""


@attrs.define
class _Life:
    range: KeyRange
    from_ms: int
    to_ms: int | None = None


def picture_of(
    tx: Tx, stream: StreamRecord, from_ms: int | None = None, to_ms: int | None = None
) -> StreamPicture:
    """Return the picture of a stream between two times. None: from the oldest epoch that is kept; until now.

    Cost: the epochs of the time, two look-ups for each segment of the stream, and one for each segment and group.
    """
    history = StoredHistory(tx, stream)
    last_ms = tx.now_ms if to_ms is None else to_ms
    lives = _lives(history, from_ms, last_ms)
    left_out = max(len(lives) - SEGMENTS_SHOWN_MAX, 0)
    shown = dict(islice(lives.items(), left_out, None))
    states = dict(segment_states(tx, stream.stream_id))
    segments = tuple([_segment(tx, stream, each, life, states.get(each)) for each, life in shown.items()])
    first_ms = min((each.from_ms for each in segments), default=last_ms)
    return StreamPicture(
        stream=stream.name,
        from_ms=first_ms if from_ms is None or left_out else from_ms,
        to_ms=last_ms,
        segments=segments,
        positions=tuple(_positions(tx, stream, history, shown)),
        left_out=left_out,
    )


def _lives(history: History, from_ms: int | None, to_ms: int) -> Mapping[SegmentId, _Life]:
    """Return the segments that lived between two times, the older ones first, with their ends, whenever these were."""
    first = history.first if from_ms is None else history.number_at(from_ms)
    found: dict[SegmentId, _Life] = {}
    living: set[SegmentId] = set()
    for number in range(first, history.current + 1):
        epoch = history.epoch(number)
        for ended in living - epoch.by_id.keys():
            found[ended].to_ms = epoch.created_ms
        living &= epoch.by_id.keys()
        if epoch.created_ms > to_ms and number > first:
            if living:
                continue  # it begins too late, and may end others
            break
        for each in epoch.segments if number == first else epoch.opened:
            if not is_reserve(each.id):
                begun = epoch if number != first else history.epoch(max(epoch_of(each.id), history.first))
                found[each.id] = _Life(each.range, begun.created_ms)
                living.add(each.id)
    return found


def _segment(
    tx: Tx, stream: StreamRecord, segment: SegmentId, life: _Life, state: SegmentState | None
) -> PictureSegment:
    end_ms = tx.now_ms if life.to_ms is None else life.to_ms
    truncated_ms = end_ms if state is None else None
    if state is not None and state.head > 0:
        truncated_ms = _time_at(tx, stream, segment, state.head, life)
    events = None if state is None else state.tail_number
    lasted_s = max(end_ms - life.from_ms, 1) / 1000
    return PictureSegment(
        segment=printable(segment),
        low=life.range.low,
        high=life.range.high,
        from_ms=life.from_ms,
        to_ms=life.to_ms,
        truncated_ms=truncated_ms,
        events=events,
        events_per_second=None if events is None else round(events / lasted_s, 3),
    )


def _positions(
    tx: Tx, stream: StreamRecord, history: History, shown: Mapping[SegmentId, _Life]
) -> Iterator[PicturePosition]:
    head = head_cut(tx, stream)
    for group, finished in islice(group_cuts(tx, stream), GROUPS_SHOWN_MAX):
        try:
            cut = later(finished, head, history)
        except InvalidCut:  # it lies before the history that is kept
            cut = head
        for segment, offset in cut.offsets.items():
            if (life := shown.get(segment)) is not None:
                yield PicturePosition(
                    group=group.name,
                    segment=printable(segment),
                    low=life.range.low,
                    high=life.range.high,
                    at_ms=_time_at(tx, stream, segment, offset, life),
                )


def _time_at(tx: Tx, stream: StreamRecord, segment: SegmentId, offset: int, life: _Life) -> int:
    """Return about when the event at an offset was appended; without one, the end of the segment, or now.

    The events of an extent are taken as if they were spread evenly over its time: no event is decoded.
    """
    end_ms = tx.now_ms if life.to_ms is None else life.to_ms
    found = read_extents(tx, stream.stream_id, segment, offset, limit=1)
    if not found or offset >= found[0].end:
        return end_ms
    extent = found[0]
    passed = max(offset - extent.start, 0) * (extent.last_time - extent.first_time) // extent.length
    return min(max(extent.first_time + passed, life.from_ms), end_ms)
