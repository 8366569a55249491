"""A segment as the bytes of its payloads, one after the other: what byte streams of Pravega's clients count and read.

Each event takes FRAME_BYTES more than its payload, so that the offset of a payload follows from the offset of its event
and the event's number, which every extent stores.
"""

from __future__ import annotations

from bisect import bisect_right
from struct import Struct
from typing import Final

from eventproc.store.database import Tx
from eventproc.store.model.ids import SegmentId, format_segment
from eventproc.store.model.limits import FRAME_BYTES
from eventproc.store.segments.extents import Extent, find_extent
from eventproc.store.segments.offsets import ExtentBoundaries
from eventproc.store.segments.read_bytes import read_bytes
from eventproc.store.segments.state import SegmentState, segment_state

_HEAD: Final = Struct(">ii")
_PAYLOAD_END: Final = f"start + length - {FRAME_BYTES} * (first_number + count)"


def payload_head(state: SegmentState) -> int:
    """Return the offset of the first payload that can be read."""
    return state.head - FRAME_BYTES * state.head_number


def payload_tail(state: SegmentState) -> int:
    """Return the offset behind the last payload."""
    return state.tail - FRAME_BYTES * state.tail_number


def read_payload_bytes(tx: Tx, stream_id: int, segment: SegmentId, offset: int, bytes_max: int) -> bytes:
    """Return bytes of payloads from `offset` on: at least one if there is one, at most `bytes_max`.

    offset: of payloads, in [head, tail]; at the tail nothing is returned. The segment must exist.
    Cost: as `find_extent` and `read_bytes`, and one blob's ends.
    """
    state = _state_of(tx, stream_id, segment)
    if offset >= payload_tail(state) or bytes_max < 1:
        return b""
    extent, index = _event_at(tx, stream_id, segment, state, offset)
    boundaries = ExtentBoundaries(tx, extent)
    end = boundaries.offset_after(index + 1)
    left = end - FRAME_BYTES * (extent.first_number + index + 1) - offset
    found = read_bytes(tx, stream_id, segment, end - left, bytes_max)
    parts, at = [found[:left]], left
    while at + FRAME_BYTES < len(found):
        length: int = _HEAD.unpack_from(found, at)[1]
        at += FRAME_BYTES
        parts.append(found[at : at + length])
        at += length
    return b"".join(parts)


def event_before(tx: Tx, stream_id: int, segment: SegmentId, offset: int) -> int:
    """Return the offset of the event that holds a byte of the payloads; the tail for an offset there or behind.

    offset: of payloads, not before the head.
    """
    state = _state_of(tx, stream_id, segment)
    if offset >= payload_tail(state):
        return state.tail
    extent, index = _event_at(tx, stream_id, segment, state, offset)
    return max(ExtentBoundaries(tx, extent).offset_after(index), state.head)


def _event_at(
    tx: Tx, stream_id: int, segment: SegmentId, state: SegmentState, offset: int
) -> tuple[Extent, int]:
    """Return the extent with the byte at `offset` of the payloads, and the place of its event in the extent."""
    within = state.head, state.tail
    extent = find_extent(tx, stream_id, segment, within, _PAYLOAD_END, offset + 1)
    assert extent is not None, f"no extent of {format_segment(segment)} holds payload offset {offset}"
    boundaries = ExtentBoundaries(tx, extent)

    def payload_end(index: int) -> int:
        return boundaries.offset_after(index + 1) - FRAME_BYTES * (extent.first_number + index + 1)

    return extent, bisect_right(range(extent.count), offset, key=payload_end)


def _state_of(tx: Tx, stream_id: int, segment: SegmentId) -> SegmentState:
    state = segment_state(tx, stream_id, segment)
    assert state is not None, f"segment {format_segment(segment)} of stream {stream_id} not found"
    return state
