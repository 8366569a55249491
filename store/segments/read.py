"""Reading segments: several at once, in one transaction, each shared blob decoded once.

A reader names, for each of its segments, the offset it stands at; it gets runs of whole events from
there, and how far the segment goes: its head, its tail, whether it is sealed. Places are never
remembered between two reads: the reaper may move bytes, and the logical offset finds them again.
"""

from __future__ import annotations

import json
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Final

import attrs

from eventproc.store.database import Tx
from eventproc.store.model.cuts import StreamCut
from eventproc.store.model.errors import CorruptRecord, InvalidCut
from eventproc.store.model.ids import SegmentId, format_segment
from eventproc.store.model.limits import FRAME_BYTES
from eventproc.store.segments.append import BLOB_FORMAT, unpack_inline
from eventproc.store.segments.block import NO_TIME, Columns, decode_keys
from eventproc.store.segments.concatenate import concatenate_columns
from eventproc.store.segments.event import EventRun
from eventproc.store.segments.file_blobs import FILE_BLOB_FORMAT, load_file_blob

READ_BYTES_MAX: Final = 4 * 2**20
"""Bytes of events that one read transaction returns, give or take one extent. More makes a slow reader
pin the WAL for longer; less pays the thread crossing more often."""

LOADED_BYTES_MAX: Final = 4 * READ_BYTES_MAX
"""Bytes of blobs that one read transaction loads, and holds until its end, give or take one blob. A reader of
few segments of many loads more than it returns; more lets it return more at once."""

_EXTENTS_A_QUERY: Final = 256
"""Extents fetched by one query; a run of tiny ones is walked in steps of this."""


@attrs.frozen
class Extent:
    """An index row: [start, start + length) of a segment, and where its columns lie."""

    start: int
    length: int
    first_number: int
    count: int
    first_time: int
    place: int | None
    place_offset: int
    inline: bytes | None

    @property
    def end(self) -> int:
        """First offset after the extent."""
        return self.start + self.length


@attrs.frozen
class SegmentState:
    """How far a segment goes: readable is [head, tail); `sealed` means that the tail is its end."""

    head: int
    head_number: int
    tail: int
    tail_number: int
    sealed: bool


@attrs.frozen
class ReadResult:
    """What one read returned. A segment that is not in `states` does not exist (any more)."""

    runs: list[EventRun]
    states: dict[SegmentId, SegmentState]


class BlobLoader:
    """Blobs read in one transaction, each loaded and its ends parsed once. loaded_bytes: of their events."""

    def __init__(self, tx: Tx) -> None:
        self._tx = tx
        self.loaded_bytes = 0
        self._loaded: dict[int, tuple[Columns, array[int]]] = {}

    def columns(self, extent: Extent) -> tuple[Columns, array[int]]:
        """Return the columns that hold the extent, and the ends of all their events."""
        if extent.place is None:
            assert extent.inline is not None, f"extent at {extent.start} has no place and no columns"
            columns = unpack_inline(extent.inline)
            return columns, ends_of(columns)
        if (found := self._loaded.get(extent.place)) is None:
            columns = load_blob(self._tx, extent.place)
            found = self._loaded[extent.place] = (columns, ends_of(columns))
            self.loaded_bytes += len(columns.data)
        return found


def load_blob(tx: Tx, blob_id: int) -> Columns:
    """Return the columns of a blob. Raises CorruptRecord when it is missing or of an unknown format."""
    row = tx.execute(
        "SELECT format, chunk, ends, keys, positions, times, event_times, headers, data FROM blob WHERE id = ?",
        (blob_id,),
    ).fetchone()
    if row is None:
        raise CorruptRecord(key=f"blob {blob_id}", reason="an extent refers to it and it is not there")
    if row[0] == FILE_BLOB_FORMAT:
        return load_file_blob(tx, row[1], row[-1])
    if row[0] != BLOB_FORMAT:
        raise CorruptRecord(key=f"blob {blob_id}", reason=f"format {row[0]} is not known here")
    return Columns(*row[2:])


def read(
    tx: Tx,
    stream_id: int,
    wanted: Mapping[SegmentId, tuple[int, int | None]],
    *,
    bytes_max: int = READ_BYTES_MAX,
) -> ReadResult:
    """Read from each wanted segment at its offset, up to its limit (an event border; None: its tail).

    wanted: {segment: (offset, limit)}. Returns `bytes_max` bytes, give or take one extent, shared between the
    segments; the last ones get nothing when the extents of the first are large, so a caller puts first next
    time what got nothing (`Frontier.advance` does). Something is returned whenever there is something. Runs
    come in no order between segments. An offset before the head reads nothing: compare it with the state.
    One look-up a segment, one query per 256 extents.
    """
    states = {segment: state for segment in wanted if (state := segment_state(tx, stream_id, segment))}
    blobs = BlobLoader(tx)
    runs: list[EventRun] = []
    share = max(bytes_max // max(len(states), 1), 1)
    bytes_left = bytes_max
    for segment, state in states.items():
        offset, limit = wanted[segment]
        end = state.tail if limit is None else min(limit, state.tail)
        if state.head <= offset < end and bytes_left > 0:
            found = _read_segment(tx, blobs, stream_id, segment, offset, end, min(share, bytes_left))
            bytes_left -= sum(run.end - run.start for run in found)
            runs.extend(found)
    return ReadResult(runs, states)


def segment_state(tx: Tx, stream_id: int, segment: SegmentId) -> SegmentState | None:
    """Return how far the segment goes, or None when there is no such segment. One look-up."""
    row = tx.execute(
        """
        SELECT s.head, s.head_number, coalesce(e.start + e.length, s.base_offset),
               coalesce(e.first_number + e.count, s.base_number), s.sealed_length IS NOT NULL
        FROM segment s LEFT JOIN extent e ON e.stream_id = s.stream_id AND e.segment = s.segment
            AND e.start = (SELECT max(start) FROM extent WHERE stream_id = s.stream_id AND segment = s.segment)
        WHERE s.stream_id = ? AND s.segment = ?
        """,
        (stream_id, segment),
    ).fetchone()
    if row is None:
        return None
    head, head_number, tail, tail_number, sealed = row
    return SegmentState(head, head_number, tail, tail_number, bool(sealed))


def readable_size(tx: Tx, stream_id: int) -> tuple[int, int]:
    """Return how many events, and how many bytes, of the stream can be read. One look-up a segment."""
    segments = tx.execute("SELECT segment FROM segment WHERE stream_id = ?", (stream_id,)).fetchall()
    states = [state for (segment,) in segments if (state := segment_state(tx, stream_id, segment))]
    events = sum(state.tail_number - state.head_number for state in states)
    return events, sum(state.tail - state.head for state in states)


def read_extents(
    tx: Tx, stream_id: int, segment: SegmentId, offset: int, *, limit: int = _EXTENTS_A_QUERY
) -> list[Extent]:
    """Return the extents of the segment from the one that holds `offset` on, in order, at most `limit`."""
    rows = tx.execute(
        """
        SELECT start, length, first_number, count, first_time, place, place_offset, inline FROM extent
        WHERE stream_id = ? AND segment = ? AND start >= coalesce(
            (SELECT max(start) FROM extent WHERE stream_id = ? AND segment = ? AND start <= ?), ?)
        ORDER BY start LIMIT ?
        """,
        (stream_id, segment, stream_id, segment, offset, offset, limit),
    )
    return [Extent(*row) for row in rows]


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


def _read_segment(
    tx: Tx, blobs: BlobLoader, stream_id: int, segment: SegmentId, offset: int, end: int, bytes_max: int
) -> list[EventRun]:
    runs: list[EventRun] = []
    size_bytes = 0
    while offset < end and size_bytes < bytes_max and blobs.loaded_bytes < LOADED_BYTES_MAX:
        before = offset
        for extent in read_extents(tx, stream_id, segment, offset):
            if offset >= end or size_bytes >= bytes_max or blobs.loaded_bytes >= LOADED_BYTES_MAX:
                break
            if not extent.start <= offset < extent.end:
                break
            run = decode_extent(blobs, segment, extent)
            if extent.start < offset:
                _, run = run.split(offset)
            if extent.end > end:
                run, _ = run.split(end)
            runs.append(run)
            size_bytes += run.end - run.start
            offset = run.end
        if offset == before:
            key = f"stream {stream_id} segment {format_segment(segment)}"
            raise CorruptRecord(
                key=key, reason=f"no extent holds offset {offset}, which lies before its tail"
            )
    return runs


def decode_extent(blobs: BlobLoader, segment: SegmentId, extent: Extent) -> EventRun:
    """Return the events of one extent; about 0.15 us each, 0.25 with keys."""
    columns, ends = blobs.columns(extent)
    first = _index(ends, extent.place_offset)
    last = first + extent.count
    own = ends[first:last]
    data = columns.data
    payloads = [
        data[start + FRAME_BYTES : end]
        for start, end in zip(chain((extent.place_offset,), own), own, strict=False)
    ]
    if len(own) != extent.count or own[-1] != extent.place_offset + extent.length:
        key = f"extent {format_segment(segment)} at {extent.start}"
        raise CorruptRecord(key=key, reason="its events do not end where the extent does")
    return EventRun(
        segment=segment,
        start=extent.start,
        end=extent.end,
        first_number=extent.first_number,
        time=extent.first_time,
        payloads=payloads,
        keys=None if columns.keys is None else decode_keys(columns.keys, len(ends), first, last),
        event_times=_event_times(columns.event_times, first, last),
        headers=None if columns.headers is None else json.loads(columns.headers)[first:last],
        times=None if columns.times is None else _int64(columns.times)[first:last].tolist(),
    )


def concatenate_inline(run: Sequence[Extent]) -> tuple[Columns, array[int]]:
    """Return the columns of extents that have theirs in their rows, one after the other, and when each event came."""
    parts: list[tuple[Columns, int]] = []
    times = array("q")
    for extent in run:
        assert extent.inline is not None, f"the extent at {extent.start} is not inline"
        columns = unpack_inline(extent.inline)
        parts.append((columns, extent.count))
        if columns.times is None:
            times.extend([extent.first_time] * extent.count)
        else:
            times.frombytes(columns.times)
    return concatenate_columns(parts, times=times.tobytes()), times


def _index(ends: array[int], place_offset: int) -> int:
    """Return the index of the event that begins at byte `place_offset` of the blob."""
    return bisect_right(ends, place_offset)


def ends_of(columns: Columns) -> array[int]:
    """Return where the events end in the columns' data."""
    ends = array("I")
    ends.frombytes(columns.ends)
    return ends


def _int64(column: bytes) -> array[int]:
    values = array("q")
    values.frombytes(column)
    return values


def _event_times(column: bytes | None, first: int, last: int) -> list[int | None] | None:
    if column is None:
        return None
    return [None if time == NO_TIME else time for time in _int64(column)[first:last]]
