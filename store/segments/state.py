"""Which segments a stream has, and how far each of them goes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import attrs

from eventproc.store.database import Tx, find_number
from eventproc.store.model.errors import NotFound, SegmentSealed
from eventproc.store.model.ids import SegmentId, format_segment
from eventproc.store.model.list_pages import NO_LIMIT


@attrs.frozen
class SegmentState:
    """How far a segment goes: [head, tail) is readable. sealed: the tail is its end."""

    head: int
    head_number: int
    tail: int
    tail_number: int
    sealed: bool


@attrs.define
class SegmentTail:
    """Where the next append to a segment goes. time: append time of its last event, in ms, which never decreases."""

    offset: int
    number: int
    time: int


_FIND: Final = """
    SELECT s.head, s.head_number, coalesce(e.start + e.length, s.base_offset),
           coalesce(e.first_number + e.count, s.base_number), coalesce(e.last_time, s.base_time),
           s.sealed_length IS NOT NULL
    FROM segment s LEFT JOIN extent e ON e.stream_id = s.stream_id AND e.segment = s.segment
    WHERE s.stream_id = ? AND s.segment = ?
    ORDER BY e.start DESC LIMIT 1
"""
"""The tail is not stored: it is the end of the last extent, or the base where no extent is left."""


_FIND_ALL: Final = """
    SELECT s.segment, s.head, s.head_number, coalesce(e.start + e.length, s.base_offset),
           coalesce(e.first_number + e.count, s.base_number), s.sealed_length IS NOT NULL
    FROM segment s LEFT JOIN extent e ON e.stream_id = s.stream_id AND e.segment = s.segment AND e.start =
         (SELECT max(start) FROM extent l WHERE l.stream_id = s.stream_id AND l.segment = s.segment)
    WHERE s.stream_id = ?
"""
"""The same for all segments of a stream."""


def segment_ids(tx: Tx, stream_id: int, *, active_only: bool = False) -> list[SegmentId]:
    """Return the ids of the stream's segments in ascending order, of active and of sealed ones. One query."""
    only = " AND sealed_length IS NULL" if active_only else ""
    rows = tx.execute(f"SELECT segment FROM segment WHERE stream_id = ?{only} ORDER BY segment", (stream_id,))
    return [SegmentId(segment) for (segment,) in rows.fetchall()]


def segment_state(tx: Tx, stream_id: int, segment: SegmentId) -> SegmentState | None:
    """Return how far the segment goes, or None if the stream has no such segment. One look-up."""
    row = tx.execute(_FIND, (stream_id, segment)).fetchone()
    if row is None:
        return None
    head, head_number, tail, tail_number, _, sealed = row
    return SegmentState(head, head_number, tail, tail_number, bool(sealed))


def known_state(tx: Tx, stream_id: int, segment: SegmentId) -> SegmentState:
    """Return how far a segment goes that the stream must have. One look-up."""
    state = segment_state(tx, stream_id, segment)
    assert state is not None, f"stream {stream_id} has no segment {format_segment(segment)}"
    return state


def segment_states(
    tx: Tx, stream_id: int, *, active_only: bool = False
) -> Iterator[tuple[SegmentId, SegmentState]]:
    """Yield each segment of the stream with its state, in ascending order. One query, two look-ups per segment."""
    only = " AND s.sealed_length IS NULL" if active_only else ""
    rows = tx.execute(f"{_FIND_ALL}{only} ORDER BY s.segment", (stream_id,)).fetchall()
    for segment, head, head_number, tail, tail_number, sealed in rows:
        yield SegmentId(segment), SegmentState(head, head_number, tail, tail_number, bool(sealed))


def find_tail(tx: Tx, stream: str, stream_id: int, segment: SegmentId) -> SegmentTail:
    """Return the tail of an active segment. stream: name, for errors. Raises NotFound, SegmentSealed."""
    row = tx.execute(_FIND, (stream_id, segment)).fetchone()
    if row is None:
        raise NotFound(kind="segment", name=f"{stream} {format_segment(segment)}")
    if row[5]:
        raise SegmentSealed(stream=stream, segment=format_segment(segment))
    return SegmentTail(offset=row[2], number=row[3], time=row[4])


def verify_active(tx: Tx, stream: str, stream_id: int, segment: SegmentId) -> None:
    """Raise NotFound or SegmentSealed unless the segment is active. Reads one row, and no extent."""
    row = tx.execute(
        "SELECT sealed_length FROM segment WHERE stream_id = ? AND segment = ?", (stream_id, segment)
    ).fetchone()
    if row is None:
        raise NotFound(kind="segment", name=f"{stream} {format_segment(segment)}")
    if row[0] is not None:
        raise SegmentSealed(stream=stream, segment=format_segment(segment))


def sealed_segments(
    tx: Tx, stream_id: int, *, first_epoch: int = 0, after: SegmentId | None = None, limit: int | None = None
) -> list[SegmentId]:
    """Return the ids of sealed segments, in ascending order. One query.

    first_epoch: only segments of this epoch or a later one. after: only greater ids. limit: at most that many.
    """
    rows = tx.execute(
        "SELECT segment FROM segment WHERE stream_id = ? AND segment > ? AND sealed_length IS NOT NULL"
        " AND (sealed_epoch IS NULL OR sealed_epoch > ?) ORDER BY segment LIMIT ?",
        (stream_id, -1 if after is None else after, first_epoch, NO_LIMIT if limit is None else limit),
    )
    return [SegmentId(segment) for (segment,) in rows.fetchall()]


def sealed_epoch(tx: Tx, stream_id: int, segment: SegmentId) -> int | None:
    """Return the first epoch that no longer contains the segment, None while it is active. One look-up."""
    query = "SELECT sealed_epoch FROM segment WHERE stream_id = ? AND segment = ?"
    return find_number(tx, query, stream_id, segment)


def readable_sealed(tx: Tx, stream_id: int) -> dict[SegmentId, int]:
    """Return the sealed segments that have readable events, each with the epoch that replaced it."""
    rows = tx.execute(
        "SELECT segment, sealed_epoch FROM segment WHERE stream_id = ? AND sealed_epoch IS NOT NULL"
        " AND head < sealed_length ORDER BY segment",
        (stream_id,),
    )
    return dict(rows.fetchall())
