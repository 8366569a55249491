"""How fast events are being written to a stream, from the index of its newest events."""

from __future__ import annotations

from typing import Final

from eventproc.store.database import Tx
from eventproc.store.model.ids import SegmentId
from eventproc.store.segments.state import segment_ids

RATE_MS: Final = 60_000
"""The rate is that of this time before now. Higher: a writer that stopped shows for longer. Lower: the rate of a few
events a minute jumps."""

EXTENTS_MAX: Final = 32
"""Extents that are read of each segment; older ones are left out, and the rate is that of a shorter time. Higher: a
listing of many busy streams takes longer, some 2 us for each extent."""

_LAST: Final = """
    SELECT count, first_time, last_time FROM extent WHERE stream_id = ? AND segment = ? ORDER BY start DESC LIMIT ?
"""


def write_rate(tx: Tx, stream_id: int) -> float:
    """Return the number of events per second that were written to the stream in the last minute.

    Cost: one look-up per segment, and one read of at most EXTENTS_MAX rows per segment written in the last minute.
    """
    return sum(_segment_rate(tx, stream_id, segment) for segment in segment_ids(tx, stream_id))


def _segment_rate(tx: Tx, stream_id: int, segment: SegmentId) -> float:
    since_ms = tx.now_ms - RATE_MS
    newest = tx.execute(_LAST, (stream_id, segment, 1)).fetchone()
    if newest is None or newest[2] < since_ms:
        return 0.0
    rows = tx.execute(_LAST, (stream_id, segment, EXTENTS_MAX)).fetchall()
    events = 0.0
    begin_ms = since_ms
    for count, first_ms, last_ms in rows:
        if last_ms < since_ms:
            break
        # Of an extent that began before, the part within the time, as if its events were spread evenly.
        events += count if first_ms >= since_ms else count * (last_ms - since_ms) / max(last_ms - first_ms, 1)
    else:
        if len(rows) == EXTENTS_MAX:
            begin_ms = max(since_ms, rows[-1][1])
    return events * 1000 / max(tx.now_ms - begin_ms, 1000)
