"""Which segments a stream has, and how far each of them goes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import attrs

from eventproc.store.database import Tx
from eventproc.store.model.errors import NotFound, SegmentSealed
from eventproc.store.model.ids import SegmentId, format_segment


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


def segment_states(
    tx: Tx, stream_id: int, *, active_only: bool = False
) -> Iterator[tuple[SegmentId, SegmentState]]:
    """Yield each segment of the stream with its state, in ascending order. One look-up per segment."""
    for segment in segment_ids(tx, stream_id, active_only=active_only):
        state = segment_state(tx, stream_id, segment)
        assert state is not None, (
            f"segment {format_segment(segment)} of stream {stream_id} vanished within a snapshot"
        )
        yield segment, state


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


def readable_size(tx: Tx, stream_id: int) -> tuple[int, int]:
    """Return how many events and how many bytes of the stream can be read. One look-up per segment."""
    states = [state for _, state in segment_states(tx, stream_id)]
    events = sum(state.tail_number - state.head_number for state in states)
    return events, sum(state.tail - state.head for state in states)


def sealed_lengths(tx: Tx, stream_id: int) -> dict[SegmentId, int]:
    """Return the length of each sealed segment of the stream."""
    rows = tx.execute(
        "SELECT segment, sealed_length FROM segment WHERE stream_id = ? AND sealed_length IS NOT NULL",
        (stream_id,),
    )
    return dict(rows.fetchall())


def sealed_epoch(tx: Tx, stream_id: int, segment: SegmentId) -> int | None:
    """Return the first epoch that no longer contains the segment, None while it is active. One look-up."""
    row = tx.execute(
        "SELECT sealed_epoch FROM segment WHERE stream_id = ? AND segment = ?", (stream_id, segment)
    ).fetchone()
    return None if row is None else row[0]


def readable_sealed(tx: Tx, stream_id: int) -> dict[SegmentId, int]:
    """Return the sealed segments that have readable events, each with the epoch that replaced it."""
    rows = tx.execute(
        "SELECT segment, sealed_epoch FROM segment WHERE stream_id = ? AND sealed_epoch IS NOT NULL"
        " AND head < sealed_length",
        (stream_id,),
    )
    return dict(rows.fetchall())
