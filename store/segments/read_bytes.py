"""Reading a segment as bytes, from any offset on: what clients of Pravega's protocol ask for.

The bytes are those of the frames. A read ends where it likes, also inside a frame; the client puts frames together.
"""

from __future__ import annotations

from eventproc.store.database import Tx
from eventproc.store.model.errors import CorruptRecord
from eventproc.store.model.ids import SegmentId, format_segment
from eventproc.store.segments.blob_cache import CachedBlobLoader
from eventproc.store.segments.extents import read_extents
from eventproc.store.segments.read import LOADED_BYTES_MAX
from eventproc.store.segments.state import segment_state


def read_bytes(tx: Tx, stream_id: int, segment: SegmentId, offset: int, bytes_max: int) -> bytes:
    """Return the segment's bytes from `offset` on: at least one if there is one, at most `bytes_max`.

    offset: in [head, tail]; at the tail nothing is returned. The segment must exist.
    Cost: one look-up, one query per 256 extents, and the blobs that hold the bytes, each loaded and verified unless it
    was read before.
    """
    state = segment_state(tx, stream_id, segment)
    assert state is not None, f"segment {format_segment(segment)} of stream {stream_id} not found"
    end = min(state.tail, offset + bytes_max)
    blobs = CachedBlobLoader(tx)
    parts: list[bytes] = []
    while offset < end:
        before = offset
        for extent in read_extents(tx, stream_id, segment, offset):
            if offset >= end or not extent.start <= offset < extent.end:
                break
            columns, _ = blobs.columns(extent)
            first = extent.place_offset + offset - extent.start
            last = extent.place_offset + min(extent.end, end) - extent.start
            parts.append(columns.data[first:last])
            offset = min(extent.end, end)
            if blobs.loaded_bytes >= LOADED_BYTES_MAX:  # small parts of large blobs
                end = offset
        if offset == before:
            key = f"stream {stream_id} segment {format_segment(segment)}"
            raise CorruptRecord(
                key=key, reason=f"no extent holds offset {offset}, which lies before its tail"
            )
    return parts[0] if len(parts) == 1 else b"".join(parts)
