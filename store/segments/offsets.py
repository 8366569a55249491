"""Event boundaries in a segment: offsets, event numbers and append times, converted into each other.

No event is decoded for this. The functions read index rows and the ends of one blob; only look-ups by time decode an
extent.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right

from eventproc.store.database import Tx
from eventproc.store.model.cuts import StreamCut
from eventproc.store.model.errors import InvalidCut
from eventproc.store.model.ids import SegmentId, format_segment
from eventproc.store.model.progress import Progress
from eventproc.store.segments.event_storage import STORAGE_BLOB_FORMAT
from eventproc.store.segments.extents import (
    BLOB_FORMAT,
    BlobLoader,
    Extent,
    find_extent,
    read_extents,
)
from eventproc.store.segments.file_blobs import FILE_BLOB_FORMAT, load_file_blob_ends
from eventproc.store.segments.state import SegmentState, known_state, segment_state


def progress_at(tx: Tx, stream_id: int, segment: SegmentId, offset: int) -> Progress:
    """Return the progress of a reader that has finished everything before `offset`, an event boundary.

    NOT_REACHED counts as 0. So does the number in a segment that was read to its end and whose row was removed since.
    """
    if offset <= 0 or segment_state(tx, stream_id, segment) is None:
        return Progress(0, max(offset, 0))
    return Progress(number_at(tx, stream_id, segment, offset), offset)


def number_at(tx: Tx, stream_id: int, segment: SegmentId, offset: int) -> int:
    """Return how many events of the segment begin before `offset`, an event boundary.

    An offset before the head counts as the head, one beyond the tail as the tail.
    Cost: two look-ups, and one blob's ends unless an extent begins at the offset.
    """
    state = known_state(tx, stream_id, segment)
    if offset >= state.tail:
        return state.tail_number
    if offset <= state.head:
        return state.head_number
    extent = read_extents(tx, stream_id, segment, offset, limit=1)[0]
    if offset == extent.start:
        return extent.first_number
    return extent.first_number + ExtentBoundaries(tx, extent).count_before(offset)


def offset_of_number(tx: Tx, stream_id: int, segment: SegmentId, number: int) -> int:
    """Return the offset at which event `number` of the segment begins: at least the head, at most the tail.

    Cost: O(log bytes) look-ups in the index, and one blob's ends.
    """
    state = known_state(tx, stream_id, segment)
    if number <= state.head_number:
        return state.head
    if number >= state.tail_number:
        return state.tail
    readable = (state.head, state.tail)
    extent = find_extent(tx, stream_id, segment, readable, "first_number + count", number + 1)
    assert extent is not None, f"segment {format_segment(segment)} ends before event {state.tail_number}"
    return max(ExtentBoundaries(tx, extent).offset_after(number - extent.first_number), state.head)


def offset_after(tx: Tx, stream_id: int, segment: SegmentId, offset: int, count: int) -> int:
    """Return the event boundary `count` events after `offset`, at most the tail.

    offset: an event boundary in [head, tail].
    Cost: as `number_at` and `offset_of_number`.
    """
    number = number_at(tx, stream_id, segment, offset) + count
    return offset if count == 0 else offset_of_number(tx, stream_id, segment, number)


def boundary_before(tx: Tx, stream_id: int, segment: SegmentId, offset: int) -> int:
    """Return the last event boundary at or before `offset`, which lies in [head, tail]. Reads one blob's ends."""
    found = read_extents(tx, stream_id, segment, offset, limit=1)
    if not found or found[0].end <= offset:
        return offset
    boundaries = ExtentBoundaries(tx, found[0])
    return boundaries.offset_after(boundaries.count_before(offset + 1) - 1)


def is_event_boundary(tx: Tx, stream_id: int, segment: SegmentId, offset: int) -> bool:
    """Return whether an event begins at `offset` or the segment ends there. Reads one extent's ends."""
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
    """Check the cut's offset in a segment; return the segment's state, or None if it has no row.

    Raises InvalidCut if the offset lies beyond the end or inside an event. An offset before the head is accepted: the
    events there are gone, so that it cannot be checked. One look-up, and one extent's ends.
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
    """Return the offset of the first event appended at or after `time_ms`, the tail if there is none.

    Append times never fall within a segment, so the event lies in the first extent that ends late enough.
    Cost: O(log bytes) look-ups in the index, and one extent, which is decoded.
    """
    state = segment_state(tx, stream_id, segment)
    return 0 if state is None else SegmentTimes(tx, stream_id, segment, state).offset_at(time_ms)


class SegmentTimes:
    """The offsets of a segment at several times: what one look-up found bounds the next ones.

    A search over times therefore costs little more than one look-up, and decodes few extents.

    by_extent: give the begin of the extent in which a time lies. No extent is decoded then.
    """

    def __init__(
        self, tx: Tx, stream_id: int, segment: SegmentId, state: SegmentState, *, by_extent: bool = False
    ) -> None:
        self._tx = tx
        self._stream_id = stream_id
        self._segment = segment
        self._head = state.head
        self.tail = state.tail
        self._by_extent = by_extent
        self._times: list[int] = []
        self._offsets = [state.head, state.tail]  # before the first of the times, at each of them, at the end
        self._blobs = BlobLoader(tx)
        self._decoded: tuple[int, array[int] | None, array[int]] | None = None

    def offset_at(self, time_ms: int) -> int:
        """Return the offset of the first event appended at or after `time_ms`, the tail if there is none."""
        index = bisect_left(self._times, time_ms)
        if index < len(self._times) and self._times[index] == time_ms:
            return self._offsets[index + 1]
        low, high = self._offsets[index], self._offsets[index + 1]
        if low == high:
            return low
        found = find_extent(self._tx, self._stream_id, self._segment, (low, high), "last_time", time_ms)
        offset = high if found is None else self._offset_in(found, time_ms)
        self._times.insert(index, time_ms)
        self._offsets.insert(index + 1, offset)
        return offset

    def _offset_in(self, extent: Extent, time_ms: int) -> int:
        if self._by_extent or extent.first_time >= time_ms:
            return max(extent.start, self._head)
        if self._decoded is None or self._decoded[0] != extent.start:
            columns, ends = self._blobs.columns(extent)
            times = None if columns.times is None else array("q", columns.times)
            self._decoded = (extent.start, times, ends)
        _, times, ends = self._decoded
        begun = bisect_right(ends, extent.place_offset)
        last = begun if times is None else bisect_left(times, time_ms, begun, begun + extent.count)
        if last == begun:
            return max(extent.start, self._head)
        return max(ends[last - 1] - extent.place_offset + extent.start, self._head)


class ExtentBoundaries:
    """The event boundaries of one extent; events are counted from its first."""

    def __init__(self, tx: Tx, extent: Extent) -> None:
        self._extent = extent
        self._ends = _ends(tx, extent)
        self._begun = bisect_right(self._ends, extent.place_offset)

    def count_before(self, offset: int) -> int:
        """Return how many events of the extent begin before `offset`."""
        if offset <= self._extent.start:
            return 0
        at = self._extent.place_offset + offset - self._extent.start
        # One event begins with the extent, and one more at each earlier end.
        return 1 + bisect_right(self._ends, at - 1) - self._begun

    def offset_after(self, count: int) -> int:
        """Return the offset after the first `count` events."""
        if count == 0:
            return self._extent.start
        return self._ends[self._begun + count - 1] - self._extent.place_offset + self._extent.start


def _ends(tx: Tx, extent: Extent) -> array[int]:
    """Return the event ends of the extent's columns, without loading the other columns of a blob."""
    row = tx.execute(
        "SELECT format, ends, chunk, CASE WHEN chunk IS NOT NULL THEN data END FROM blob WHERE id = ?",
        (extent.place,),
    ).fetchone()
    if row is not None and row[0] == FILE_BLOB_FORMAT:
        return load_file_blob_ends(tx, row[2], row[3])
    if row is None or row[0] not in (BLOB_FORMAT, STORAGE_BLOB_FORMAT):
        return BlobLoader(tx).columns(extent)[1]  # inline, or raises CorruptRecord
    ends = array("I")
    ends.frombytes(row[1])
    return ends
