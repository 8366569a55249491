"""Joining runs of small inline extents into blobs.

Readers do not notice: an offset finds its bytes wherever they lie.
"""

from __future__ import annotations

from itertools import takewhile
from typing import Final

from eventproc.store.database import Tx
from eventproc.store.model.ids import SegmentId
from eventproc.store.segments.append import flush_appends
from eventproc.store.segments.extents import (
    INSERT_EXTENT,
    JOIN_EXTENTS_MAX,
    Extent,
    concatenate_inline,
    insert_blob,
    read_extents,
)
from eventproc.store.segments.reaper import STEP_EXTENTS_MAX

JOIN_EXTENTS_MIN: Final = 32
"""Consecutive inline extents that are worth joining. Shorter runs save little and rewrite the same bytes often."""


def join_step(tx: Tx, stream_id: int, segment: SegmentId, offset: int) -> int | None:
    """Join the run of inline extents at `offset` into one blob, if it is long enough.

    Returns the offset at which the next step begins, None if the rest of the segment is not worth joining yet.
    """
    flush_appends(tx, stream_id)
    found = read_extents(tx, stream_id, segment, offset, limit=STEP_EXTENTS_MAX)
    if not found:
        return None
    run: list[Extent] = []
    for extent in found:
        if extent.place is not None:
            break
        run.append(extent)
    if len(run) < JOIN_EXTENTS_MIN:
        passed = found[: len(run) + 1]
        # At the tail the last extent is found, which ends at `offset`: nothing is left.
        return passed[-1].end if len(passed) > len(run) and passed[-1].end > offset else None
    _replace_by_blob(tx, stream_id, segment, run)
    return run[-1].end


def join_tail(tx: Tx, stream_id: int, segment: SegmentId) -> None:
    """Join the inline extents at the end of a segment when they are INLINE_EXTENT_COUNTER_MAX in a row.

    For callers that commit from a new process each time, where `InlineExtentCounter` never counts far enough. Reads one
    row per extent, up to the first that is not inline.
    """
    flush_appends(tx, stream_id)
    cursor = tx.execute(
        "SELECT start, place FROM extent WHERE stream_id = ? AND segment = ? ORDER BY start DESC LIMIT ?",
        (stream_id, segment, JOIN_EXTENTS_MAX),
    )
    run = [start for start, _ in takewhile(lambda row: row[1] is None, cursor)]
    cursor.close()
    if len(run) == JOIN_EXTENTS_MAX:
        join_step(tx, stream_id, segment, run[-1])


def _replace_by_blob(tx: Tx, stream_id: int, segment: SegmentId, run: list[Extent]) -> None:
    columns, times = concatenate_inline(run)
    first, last = run[0], run[-1]
    tx.execute(
        "DELETE FROM extent WHERE stream_id = ? AND segment = ? AND start BETWEEN ? AND ?",
        (stream_id, segment, first.start, last.start),
    )
    where = (stream_id, segment, first.start, last.end - first.start, first.first_number, len(times))
    tx.execute(INSERT_EXTENT, (*where, times[0], times[-1], insert_blob(tx, stream_id, columns), 0, None))
