"""How fast segments are being written, from the index: over several windows before now, without counters.

The index knows when each extent was appended. The events of a window are those of the extents in it, found by halving.
Of an extent that began before the window, the part within is taken as if its events were spread evenly over its time.
No event is decoded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs

from eventproc.store.database import Tx
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.limits import SET_BACK_MS
from eventproc.store.segments.extents import find_extent
from eventproc.store.segments.state import segment_ids

RATE_MS: Final = 60_000
"""`write_rate` is the rate of this time before now. Higher: a writer that stopped shows for longer. Lower: the rate of
a few events a minute jumps."""

KNOWN_MS_MIN: Final = 1_000
"""Least time that a rate is taken over, if the beginning of its window was truncated. Lower: a burst of some ms looks
like millions of events per second."""

_ENDS: Final = """
    SELECT s.head, s.head_number, e.start + e.length, e.first_number + e.count, e.last_time, coalesce(
        (SELECT t.last_time FROM extent t WHERE t.stream_id = s.stream_id AND t.segment = s.segment
         AND t.start < s.head ORDER BY t.start DESC LIMIT 1), s.base_time)
    FROM segment s JOIN extent e ON e.stream_id = s.stream_id AND e.segment = s.segment
    WHERE s.stream_id = ? AND s.segment = ? ORDER BY e.start DESC LIMIT 1
"""
"""The last column is when the last truncated event was appended, or later: the reaper notes the time of the tail, when
it frees the extents before the head."""

_WRITTEN: Final = """
    SELECT DISTINCT s.stream_id FROM segment s WHERE (
        SELECT e.last_time FROM extent e WHERE e.stream_id = s.stream_id AND e.segment = s.segment
        ORDER BY e.start DESC LIMIT 1) >= ?
"""


@attrs.frozen
class SegmentRate:
    """What was appended to a segment per second, over one window."""

    events: float
    bytes: float


_NONE: Final = SegmentRate(0.0, 0.0)


def segment_rates(
    tx: Tx, stream_id: int, segment: SegmentId, windows_ms: Sequence[int]
) -> tuple[SegmentRate, ...]:
    """Return the rate of a segment over each window that ends now.

    windows_ms: in ascending order.
    A segment that is younger than a window counts as silent before it was created. If events of a window may have been
    truncated, the rate is that of the time since the head; events that were truncated before it count as none.
    A segment counts as silent, too, while its rates are not known (`rates_known_ms`).
    Cost: one look-up if nothing was appended in any window; else the halving, up to 0.2 ms, for each window.
    """
    ends = tx.execute(_ENDS, (stream_id, segment)).fetchone()
    if ends is None:
        return (_NONE,) * len(windows_ms)
    low, head_number, tail, tail_number, last_ms, truncated_ms = ends
    found: list[SegmentRate] = []
    for window_ms in reversed(windows_ms):
        since_ms = tx.now_ms - window_ms
        if last_ms < since_ms or low >= tail or _is_ahead(tx, last_ms):
            found.append(_NONE)
            continue
        extent = find_extent(tx, stream_id, segment, (low, tail), "last_time", since_ms)
        assert extent is not None, f"segment {segment} of stream {stream_id} ends before its last event"
        spread_ms = max(extent.last_time - extent.first_time, 1)
        before = max(since_ms - extent.first_time, 0) / spread_ms
        offset = max(extent.start + extent.length * before, low)
        number = max(extent.first_number + extent.count * before, head_number)
        took_ms = window_ms
        may_miss = head_number > 0 and truncated_ms >= since_ms
        if may_miss and extent.first_number <= head_number and not before:
            took_ms = min(max(tx.now_ms - extent.first_time, KNOWN_MS_MIN), window_ms)
        found.append(SegmentRate((tail_number - number) * 1000 / took_ms, (tail - offset) * 1000 / took_ms))
        low = max(extent.start, low)  # a shorter window begins no earlier
    return tuple(reversed(found))


def rates_known_ms(tx: Tx, stream_id: int, segment: SegmentId) -> int | None:
    """Return from when on the rates of a segment are known, wall ms; None if they are. One look-up.

    Times of events never decrease in a segment. After the wall clock was set back, its new events have the time of the
    last one from before, until the clock has come as far again.
    """
    ends = tx.execute(_ENDS, (stream_id, segment)).fetchone()
    return None if ends is None or not _is_ahead(tx, ends[4]) else int(ends[4])


def _is_ahead(tx: Tx, last_ms: int) -> bool:
    return last_ms > tx.now_ms + SET_BACK_MS


def write_rate(tx: Tx, stream_id: int) -> float:
    """Return the number of events per second that were written to the stream in the last minute.

    Cost: one look-up per segment, and the halving for each segment that was written in the last minute.
    """
    return sum(
        segment_rates(tx, stream_id, segment, (RATE_MS,))[0].events for segment in segment_ids(tx, stream_id)
    )


def written_streams(tx: Tx) -> set[int]:
    """Return the ids of the streams that were written in the last minute: `write_rate` of others is 0.

    Cost: one query, with a look-up for each segment of the store.
    """
    return {stream_id for (stream_id,) in tx.execute(_WRITTEN, (tx.now_ms - RATE_MS,))}
