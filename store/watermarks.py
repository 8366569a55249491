"""How far event time has come for a processor with timers: the watermark of its group.

See docs/design/event-time.md.
"""

from __future__ import annotations

from collections.abc import Mapping

from eventproc.store.database import Tx, find_number
from eventproc.store.groups import SegmentKey, progress_channel
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.limits import SET_BACK_MS
from eventproc.store.segments import segment_state


def note_event_times(tx: Tx, group: str, times: Mapping[SegmentKey, int]) -> None:
    """Note the highest event time of what is finished of segments, without a gap. The caller owns them."""
    tx.executemany(
        "UPDATE group_segment SET event_ms = ? WHERE group_name = ? AND stream_id = ? AND segment = ?"
        " AND (event_ms IS NULL OR event_ms < ?)",
        [(event_ms, group, *key, event_ms) for key, event_ms in times.items()],
    )


def event_time_of(tx: Tx, group: str, key: SegmentKey) -> int | None:
    """Return what was noted for a segment; None if nothing was. One look-up."""
    query = "SELECT event_ms FROM group_segment WHERE group_name = ? AND stream_id = ? AND segment = ?"
    return find_number(tx, query, group, *key)


def stored_watermark(tx: Tx, group: str, stream_id: int) -> int | None:
    """Return the watermark; None before the first one. One look-up."""
    query = "SELECT reached_ms FROM watermark WHERE stream_id = ? AND group_name = ?"
    return find_number(tx, query, stream_id, group)


def is_set_back(tx: Tx, group: str, stream_id: int) -> bool:
    """Return whether the wall clock was set back since progress of a segment was stored. One query."""
    query = "SELECT max(moved_ms) FROM group_segment WHERE group_name = ? AND stream_id = ?"
    return (find_number(tx, query, group, stream_id) or 0) > tx.now_ms + SET_BACK_MS


def next_watermark(tx: Tx, group: str, stream_id: int, idle_ms: int | None) -> int | None:
    """Return how far event time has come, which is not stored yet; None if nothing says so. Two look-ups a segment.

    It is the lowest event time of the segments that count: those with events that are not finished, or with one that
    was finished within `idle_ms`; None: those that ever had one. Without any, it is the highest one.
    """
    rows = tx.execute(
        'SELECT segment, "offset", event_ms, moved_ms FROM group_segment'
        " WHERE group_name = ? AND stream_id = ? AND waiting IS NULL ORDER BY segment",
        (group, stream_id),
    ).fetchall()
    counting: list[int | None] = []
    idle: list[int] = []
    for segment, offset, event_ms, moved_ms in rows:
        state = segment_state(tx, stream_id, SegmentId(segment))
        is_read = state is None or offset >= state.tail
        if is_read and (moved_ms is None or (idle_ms is not None and moved_ms <= tx.now_ms - idle_ms)):
            idle += [] if event_ms is None else [event_ms]
        else:
            counting.append(event_ms)
    if not counting:
        return max(idle, default=None)
    return None if None in counting else min(each for each in counting if each is not None)


def advance_watermark(tx: Tx, group: str, stream_id: int, idle_ms: int | None) -> int | None:
    """Store how far event time has come, if that is further than before; return the watermark.

    After the wall clock was set back, segments count as if their last event had just been finished.
    """
    tx.execute(
        "UPDATE group_segment SET moved_ms = ? WHERE group_name = ? AND stream_id = ? AND moved_ms > ?",
        (tx.now_ms, group, stream_id, tx.now_ms + SET_BACK_MS),
    )
    stored = stored_watermark(tx, group, stream_id)
    reached = next_watermark(tx, group, stream_id, idle_ms)
    if reached is None or (stored is not None and reached <= stored):
        return stored
    tx.execute(
        "INSERT INTO watermark (stream_id, group_name, reached_ms) VALUES (?, ?, ?)"
        " ON CONFLICT (stream_id, group_name) DO UPDATE SET reached_ms = excluded.reached_ms",
        (stream_id, group, reached),
    )
    tx.wake(progress_channel(group))
    return reached
