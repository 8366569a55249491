"""Reading a segment as bytes, from any offset on: what clients of Pravega's protocol ask for.

The bytes are those of the frames, or of the payloads, one after the other, which byte streams count and read. Each
event takes FRAME_BYTES more than its payload, so that the offset of a payload follows from the offset of its event and
the event's number, which every extent stores. A read ends where it likes; the client puts frames together.

The blobs that were read last are cached: a commit may write a blob of 4 MiB, and a client reads 1 MiB at a time, so
that each of its reads would otherwise load and verify the complete blob.
"""

from __future__ import annotations

from bisect import bisect_right
from struct import Struct
from typing import Final, TypeAlias

from eventproc.base.bounded_cache import BoundedCache
from eventproc.store.database import SharedSlot, Tx
from eventproc.store.model.errors import CorruptRecord
from eventproc.store.model.ids import SegmentId, format_segment
from eventproc.store.model.limits import FRAME_BYTES
from eventproc.store.segments.columns import Columns
from eventproc.store.segments.event_storage import STORAGE_BLOB_FORMAT
from eventproc.store.segments.extents import (
    BLOB_FORMAT,
    BlobLoader,
    Extent,
    find_extent,
    load_blob,
    read_extents,
)
from eventproc.store.segments.offsets import ExtentBoundaries
from eventproc.store.segments.read import LOADED_BYTES_MAX
from eventproc.store.segments.state import SegmentState, known_state


def read_bytes(tx: Tx, stream_id: int, segment: SegmentId, offset: int, bytes_max: int) -> bytes:
    """Return the segment's bytes from `offset` on: at least one if there is one, at most `bytes_max`.

    offset: in [head, tail]; at the tail nothing is returned. The segment must exist.
    Cost: one look-up, one query per 256 extents, and the blobs that hold the bytes, each loaded and verified unless it
    was read before.
    """
    state = known_state(tx, stream_id, segment)
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


CACHED_BYTES_MAX: Final = 16 * 2**20
"""Bytes of columns that are cached: four blobs of the usual largest size. Higher: more memory; lower: readers of
several segments load blobs again."""

_Key: TypeAlias = tuple[int, int, int, int]
"""Id, format, checksum and size of a blob. An id may be used again after its blob was deleted."""


BLOB_CACHE: Final = SharedSlot(
    lambda: BoundedCache[_Key, Columns](
        CACHED_BYTES_MAX, lambda columns: sum(len(column) for column in columns if column is not None)
    ),
    in_reads=True,
)
"""Blobs by what identifies their content, those that were used last."""


class CachedBlobLoader(BlobLoader):
    """Loads the blobs of one transaction through the cache."""

    def _load(self, blob_id: int) -> Columns:
        row = self._tx.execute(
            "SELECT id, format, checksum, length(data) FROM blob WHERE id = ?", (blob_id,)
        ).fetchone()
        if row is None or row[1] not in (BLOB_FORMAT, STORAGE_BLOB_FORMAT) or row[2] is None:
            return load_blob(self._tx, blob_id)
        known = self._tx.shared[BLOB_CACHE]
        if (found := known.use(row)) is None:
            found = load_blob(self._tx, blob_id)
            known.keep(row, found)
        return found


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
    state = known_state(tx, stream_id, segment)
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
    state = known_state(tx, stream_id, segment)
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
