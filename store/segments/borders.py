"""Where events begin and end in a segment, asked for without reading any event: index rows, and one blob's ends."""

from __future__ import annotations

from array import array
from bisect import bisect_right

from eventproc.store.database import Tx
from eventproc.store.model.ids import SegmentId
from eventproc.store.segments.append import BLOB_FORMAT
from eventproc.store.segments.file_blobs import FILE_BLOB_FORMAT, load_file_blob_ends
from eventproc.store.segments.read import BlobLoader, Extent, read_extents, segment_state


def number_at(tx: Tx, stream_id: int, segment: SegmentId, offset: int) -> int:
    """Return how many events of the segment begin before `offset`, an event border.

    Before the head and beyond the tail it counts as these. Two look-ups, and one blob's ends if no extent begins there.
    """
    state = segment_state(tx, stream_id, segment)
    assert state is not None, f"segment {segment} of stream {stream_id} is not there"
    if offset >= state.tail:
        return state.tail_number
    if offset <= state.head:
        return state.head_number
    extent = read_extents(tx, stream_id, segment, offset, limit=1)[0]
    if offset == extent.start:
        return extent.first_number
    return extent.first_number + _ExtentBoundaries(tx, extent).count_before(offset)


def offset_after(tx: Tx, stream_id: int, segment: SegmentId, offset: int, count: int) -> int:
    """Return the border `count` events after `offset`, an event border within [head, tail]; at most the tail.

    Walks the index rows in between, and reads the ends of two blobs.
    """
    state = segment_state(tx, stream_id, segment)
    assert state is not None, f"segment {segment} of stream {stream_id} is not there"
    number = number_at(tx, stream_id, segment, offset) + count
    if number >= state.tail_number:
        return state.tail
    row = tx.execute(
        "SELECT start FROM extent WHERE stream_id = ? AND segment = ? AND first_number + count > ?"
        " AND start >= (SELECT max(start) FROM extent WHERE stream_id = ? AND segment = ? AND start <= ?)"
        " ORDER BY start LIMIT 1",
        (stream_id, segment, number, stream_id, segment, offset),
    ).fetchone()
    extent = read_extents(tx, stream_id, segment, row[0], limit=1)[0]
    return _ExtentBoundaries(tx, extent).border(number - extent.first_number)


def boundary_before(tx: Tx, stream_id: int, segment: SegmentId, offset: int) -> int:
    """Return the last event border at or before `offset`, which lies in [head, tail]. One blob's ends."""
    found = read_extents(tx, stream_id, segment, offset, limit=1)
    if not found or found[0].end <= offset:
        return offset
    borders = _ExtentBoundaries(tx, found[0])
    return borders.border(borders.count_before(offset + 1) - 1)


class _ExtentBoundaries:
    """The borders of the events of one extent, counted in it."""

    def __init__(self, tx: Tx, extent: Extent) -> None:
        self._extent = extent
        self._ends = _ends(tx, extent)
        self._begun = bisect_right(self._ends, extent.place_offset)

    def count_before(self, offset: int) -> int:
        """Return how many events of the extent begin before `offset`."""
        if offset <= self._extent.start:
            return 0
        at = self._extent.place_offset + offset - self._extent.start
        # One event begins with the extent, and one more with each end that lies before.
        return 1 + bisect_right(self._ends, at - 1) - self._begun

    def border(self, count: int) -> int:
        """Return the offset after the first `count` events."""
        if count == 0:
            return self._extent.start
        return self._ends[self._begun + count - 1] - self._extent.place_offset + self._extent.start


def _ends(tx: Tx, extent: Extent) -> array[int]:
    """Return the ends of the columns that hold the extent; of a blob, without its other columns."""
    row = tx.execute(
        "SELECT format, ends, chunk, iif(chunk IS NULL, NULL, data) FROM blob WHERE id = ?", (extent.place,)
    ).fetchone()
    if row is not None and row[0] == FILE_BLOB_FORMAT:
        return load_file_blob_ends(tx, row[2], row[3])
    if row is None or row[0] != BLOB_FORMAT:
        return BlobLoader(tx).columns(extent)[1]  # inline, or says what is wrong
    ends = array("I")
    ends.frombytes(row[1])
    return ends
