"""Byte streams of clients: segments whose offsets count payloads, and whose blocks are events.

A client that writes bytes at an offset makes an empty segment a byte stream. Each of its blocks is one event, which our
readers read as such. To clients, offsets of the segment count the bytes of payloads alone, without frames.
"""

from __future__ import annotations

from typing import Final

import attrs

from eventproc.server.wire.segment_names import WireSegment
from eventproc.store.database import Tx
from eventproc.store.model.argument_checks import invalid_argument
from eventproc.store.model.errors import NotFound, OffsetConflict
from eventproc.store.model.ids import SegmentId, format_segment
from eventproc.store.model.limits import FRAME_BYTES
from eventproc.store.segments import SegmentState, segment_state
from eventproc.store.segments.append import next_append
from eventproc.store.segments.attributes import find_attribute, set_attribute
from eventproc.store.segments.offsets import boundary_before
from eventproc.store.segments.read_bytes import (
    event_before,
    payload_head,
    payload_tail,
    read_bytes,
    read_payload_bytes,
)

_IS_BYTES: Final = b"byte stream"
"""Attribute of a byte stream. Those of clients have 16 bytes."""

_HEAD: Final = b"payload head"
"""Attribute with the offset at which a client truncated a byte stream: its head may lie within a block."""


@attrs.frozen
class WireState:
    """How far a segment goes, in the offsets of clients: [head, tail) is readable. sealed: the tail is its end."""

    head: int
    tail: int
    sealed: bool
    is_bytes: bool


def wire_state(tx: Tx, target: WireSegment, stream_id: int) -> WireState:
    """Return how far a segment goes. Raises NotFound, also for what a transaction has staged."""
    state = segment_state(tx, stream_id, target.segment)
    if state is None or target.txn is not None:
        raise NotFound(kind="segment", name=f"{target.stream} {format_segment(target.segment)}")
    if find_attribute(tx, stream_id, target.segment, _IS_BYTES) is None:
        return WireState(state.head, state.tail, state.sealed, is_bytes=False)
    return WireState(
        _payload_head(tx, stream_id, target.segment, state), payload_tail(state), state.sealed, True
    )


def read_wire_bytes(tx: Tx, target: WireSegment, stream_id: int, offset: int, bytes_max: int) -> bytes:
    """Return bytes of a segment from an offset of clients on, which lies in [head, tail)."""
    if wire_state(tx, target, stream_id).is_bytes:
        return read_payload_bytes(tx, stream_id, target.segment, offset, bytes_max)
    return read_bytes(tx, stream_id, target.segment, offset, bytes_max)


def offset_of_next_block(tx: Tx, target: WireSegment, stream_id: int, expected: int) -> int:
    """Return where the block of a byte stream goes that its client expects at `expected`; mark an empty segment.

    Raises OffsetConflict, SegmentSealed, NotFound, and InvalidArgument for a segment that holds events of others.
    """
    offset, number, _ = next_append(tx, target.stream, stream_id, target.segment)
    if find_attribute(tx, stream_id, target.segment, _IS_BYTES) is None:
        if number:
            reason = "it holds events; a byte stream begins with an empty stream"
            raise invalid_argument("segment", f"{target.stream} {format_segment(target.segment)}", reason)
        set_attribute(tx, stream_id, target.segment, _IS_BYTES, 1)
    actual = offset - FRAME_BYTES * number
    if actual != expected:
        segment = format_segment(target.segment)
        raise OffsetConflict(stream=target.stream, segment=segment, expected=expected, actual=actual)
    return offset


def event_of_offset(tx: Tx, target: WireSegment, stream_id: int, offset: int) -> int:
    """Return the offset of the event at or before an offset of clients, for a truncation.

    offset: behind the head; beyond the tail means the tail.
    """
    state = wire_state(tx, target, stream_id)
    offset = min(offset, state.tail)
    if state.is_bytes:
        return event_before(tx, stream_id, target.segment, offset)
    return boundary_before(tx, stream_id, target.segment, offset)


def note_head(tx: Tx, target: WireSegment, stream_id: int, offset: int) -> None:
    """Let a byte stream begin at this offset for clients. Does nothing for events, and before the head."""
    state = wire_state(tx, target, stream_id)
    if state.is_bytes and offset > state.head:
        set_attribute(tx, stream_id, target.segment, _HEAD, min(offset, state.tail))


def _payload_head(tx: Tx, stream_id: int, segment: SegmentId, state: SegmentState) -> int:
    return max(payload_head(state), find_attribute(tx, stream_id, segment, _HEAD) or 0)
