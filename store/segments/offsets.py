"""Where events begin and end in a segment, asked for without reading any event: index rows, and one blob's ends."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right

from eventproc.store.database import Tx
from eventproc.store.model.cuts import StreamCut
from eventproc.store.model.errors import InvalidCut
from eventproc.store.model.ids import SegmentId, format_segment
from eventproc.store.model.limits import FRAME_BYTES
from eventproc.store.segments.extents import BLOB_FORMAT, BlobLoader, Extent, decode_extent, read_extents
from eventproc.store.segments.file_blobs import FILE_BLOB_FORMAT, load_file_blob_ends
from eventproc.store.segments.state import SegmentState, segment_state


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


def is_event_boundary(tx: Tx, stream_id: int, segment: SegmentId, offset: int) -> bool:
    """Return whether an event begins at `offset`, or the segment ends there. Reads one extent's ends."""
    state = segment_state(tx, stream_id, segment)
    if state is None or not state.head <= offset <= state.tail:
        return False
    if offset in (state.head, state.tail):
        return True
    found = read_extents(tx, stream_id, segment, offset, limit=1)[0]
    if found.start == offset:
        return True
    _, ends = BlobLoader(tx).columns(found)
    return found.place_offset + offset - found.start in ends


def verify_offset(tx: Tx, cut: StreamCut, segment: SegmentId) -> SegmentState | None:
    """Return the state of a segment of the cut, None when it has no row, if the cut's offset in it can be one.

    Raises InvalidCut for an offset beyond the end, or inside an event. What lies before the head is not judged:
    nobody knows any more. One look-up, and one extent's ends.
    """
    offset, state = cut.offsets[segment], segment_state(tx, cut.stream_id, segment)
    where = f"offset {offset} of segment {format_segment(segment)}"
    if state is not None and offset > state.tail:
        raise InvalidCut(stream=cut.stream, cut=str(cut), reason=f"{where} lies beyond its end {state.tail}")
    if (
        state is not None
        and offset > state.head
        and not is_event_boundary(tx, cut.stream_id, segment, offset)
    ):
        raise InvalidCut(stream=cut.stream, cut=str(cut), reason=f"{where} lies inside an event")
    return state


def offset_at_time(tx: Tx, stream_id: int, segment: SegmentId, time_ms: int) -> int:
    """Return the offset of the first event appended at or after `time_ms`, the tail when there is none.

    Times never fall within a segment, so it is the first extent that ends late enough; extents before it are
    walked, their index rows only.
    """
    state = segment_state(tx, stream_id, segment)
    if state is None:
        return 0
    row = tx.execute(
        "SELECT start FROM extent WHERE stream_id = ? AND segment = ? AND last_time >= ? ORDER BY start LIMIT 1",
        (stream_id, segment, time_ms),
    ).fetchone()
    if row is None:
        return state.tail
    run = decode_extent(BlobLoader(tx), segment, read_extents(tx, stream_id, segment, row[0], limit=1)[0])
    skipped = 0 if run.times is None else bisect_left(run.times, time_ms)
    skipped_bytes = sum(FRAME_BYTES + len(payload) for payload in run.payloads[:skipped])
    return max(run.start + skipped_bytes, state.head)


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
