"""Extents and blobs: the index rows of a segment, and the columns that they point to.

An extent is one row per segment and commit. It says which bytes and events of the segment lie where in which blob; a
small extent carries its columns in its own row ("inline"). Several extents may share a blob.
"""

from __future__ import annotations

import json
import struct
import zlib
from array import array
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Final

import attrs

from eventproc.base.bounded_cache import BoundedCache
from eventproc.store.database import SharedSlot, Tx
from eventproc.store.model.errors import CorruptRecord
from eventproc.store.model.ids import SegmentId, format_segment
from eventproc.store.model.limits import FRAME_BYTES
from eventproc.store.segments.columns import NO_TIME, Columns, Headers, decode_keys
from eventproc.store.segments.event import EventRun, is_removed
from eventproc.store.segments.event_storage import STORAGE_BLOB_FORMAT, STREAM_STORAGES
from eventproc.store.segments.file_blobs import FILE_BLOB_FORMAT, load_file_blob
from eventproc.store.segments.stored_columns import concatenate_columns

INLINE_BYTES_MAX: Final = 2048
"""Bytes of data up to which an extent carries its columns in its row. A page holds a few such rows. Beyond a quarter of
a page, SQLite moves them to overflow pages, which costs what an inline extent saves."""


BLOB_FORMAT: Final = 1
"""Format number of the columns in a blob."""


COMPACTED_BLOB_FORMAT: Final = 4
"""Format number of a blob with compressed columns, without the frames of removed events: docs/design/compaction.md."""


INLINE_HEAD: Final = struct.Struct("<7i")
"""Lengths of the seven columns of an inline extent, -1 for an absent one. The columns follow."""


INLINE_CHECKSUM: Final = struct.Struct("<I")
"""CRC-32 of everything behind it; the beginning of an inline extent."""


_FRAME_HEAD: Final = struct.Struct(">ii")


CHANGED: Final = "its content differs from what was written"
"""Reason of a checksum that does not fit: the disk, or another program, changed a page."""


EXTENTS_A_QUERY: Final = 256
"""Extents that one query fetches; a long run of small extents is read in steps of this size."""


JOIN_EXTENTS_MAX: Final = 256
"""Consecutive inline extents that are joined. With more, readers read more rows; with fewer, bytes are rewritten more
often."""


RUNS_COUNTED_MAX: Final = 100_000
"""Segments whose runs of inline extents a process counts, those that grew last; about 300 bytes each. Higher: more
memory for segments that were sealed or deleted; lower: small extents of more segments are never joined."""


@attrs.define
class Extent:
    """An index row: bytes [start, start + length) of a segment, and where their columns lie.

    Not changed once read; frozen, it would take three times as long to make, and a read makes many.

    place: id of the blob, None for an inline extent. place_offset: first byte of the extent in the blob's data.
    """

    start: int
    length: int
    first_number: int
    count: int
    first_time: int
    last_time: int
    place: int | None
    place_offset: int
    inline: bytes | None

    @property
    def end(self) -> int:
        """First offset after the extent."""
        return self.start + self.length


def read_extents(
    tx: Tx, stream_id: int, segment: SegmentId, offset: int, *, limit: int = EXTENTS_A_QUERY
) -> list[Extent]:
    """Return the extents of the segment from the one that holds `offset` on, in order, at most `limit`."""
    rows = tx.execute(
        """
        SELECT start, length, first_number, count, first_time, last_time, place, place_offset, inline FROM extent
        WHERE stream_id = ? AND segment = ? AND start >= coalesce(
            (SELECT max(start) FROM extent WHERE stream_id = ? AND segment = ? AND start <= ?), ?)
        ORDER BY start LIMIT ?
        """,
        (stream_id, segment, stream_id, segment, offset, offset, limit),
    )
    return [Extent(*row) for row in rows]


def find_extent(
    tx: Tx, stream_id: int, segment: SegmentId, within: tuple[int, int], column: str, least: int
) -> Extent | None:
    """Return the first extent of a range of offsets whose `column` is at least `least`, None if there is none.

    within: the first offset and the one behind the last. It must be readable.
    column: an expression that grows from extent to extent. The index is by offset, so the extent is found by halving
    the bytes: about 40 look-ups, 0.2 ms, for the longest range, whatever the number of extents.
    """
    query = f"""
        SELECT start, start + length, {column} FROM extent
        WHERE stream_id = ? AND segment = ? AND start <= ? ORDER BY start DESC LIMIT 1
        """
    low, high = within
    while low < high:
        start, end, value = tx.execute(query, (stream_id, segment, (low + high) // 2)).fetchone()
        if value < least:
            low = end
        else:
            high = start
    return None if low >= within[1] else read_extents(tx, stream_id, segment, low, limit=1)[0]


INSERT_EXTENT: Final = """
    INSERT INTO extent (stream_id, segment, start, length, first_number, count, first_time, last_time,
                        place, place_offset, inline)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
"""Inserts a row of `extent`, in the order of its columns."""


class BlobLoader:
    """Loads the blobs of one transaction, each once. loaded_bytes: bytes of events loaded so far."""

    def __init__(self, tx: Tx) -> None:
        self._tx = tx
        self.loaded_bytes = 0
        self._loaded: dict[int, tuple[Columns, array[int]]] = {}
        self._headers: dict[int, list[Headers | None]] = {}

    def holds(self, extent: Extent) -> bool:
        """Whether the columns of the extent can be had without loading another blob."""
        return extent.place is None or extent.place in self._loaded

    def columns(self, extent: Extent) -> tuple[Columns, array[int]]:
        """Return the columns that hold the extent, and the ends of all their events."""
        if extent.place is None:
            assert extent.inline is not None, f"extent at {extent.start} has no place and no columns"
            columns = unpack_inline(extent.inline)
            return columns, ends_of(columns)
        if (found := self._loaded.get(extent.place)) is None:
            columns = self._load(extent.place)
            found = self._loaded[extent.place] = (columns, ends_of(columns))
            self.loaded_bytes += len(columns.data)
        return found

    def headers(self, extent: Extent, column: bytes) -> list[Headers | None]:
        """Return the decoded headers of all events beside the extent. A blob's are decoded once."""
        if extent.place is None:
            return _decode_headers(column)
        if (found := self._headers.get(extent.place)) is None:
            found = self._headers[extent.place] = _decode_headers(column)
        return found

    def _load(self, blob_id: int) -> Columns:
        return load_blob(self._tx, blob_id)


def load_blob(tx: Tx, blob_id: int) -> Columns:
    """Return the columns of a blob. Raises CorruptRecord if it is missing, was changed, or has an unknown format."""
    row = tx.execute(
        "SELECT format, stream_id, chunk, checksum, ends, keys, positions, times, event_times, headers, data"
        " FROM blob WHERE id = ?",
        (blob_id,),
    ).fetchone()
    if row is None:
        raise CorruptRecord(key=f"blob {blob_id}", reason="not found, but an extent refers to it")
    if row[0] == FILE_BLOB_FORMAT:
        return load_file_blob(tx, row[2], row[-1])
    columns = Columns(*row[4:])
    if row[0] == STORAGE_BLOB_FORMAT:
        columns = columns._replace(data=tx.shared[STREAM_STORAGES].read(row[1], row[-1]))
    elif row[0] not in (BLOB_FORMAT, COMPACTED_BLOB_FORMAT):
        raise CorruptRecord(key=f"blob {blob_id}", reason=f"unknown format {row[0]}")
    if _checksum(columns) != row[3]:
        raise CorruptRecord(key=f"blob {blob_id}", reason=CHANGED)
    return _expand(columns.data) if row[0] == COMPACTED_BLOB_FORMAT else columns


def pack_compacted(columns: Columns) -> bytes:
    """Return the value of a compacted blob, compressed. 10 ms per MiB, so call it outside of the write lock.

    columns: `data` has no frames of events with the header REMOVED, but `ends` counts them.
    """
    return zlib.compress(pack_inline(columns), 1)


def insert_compacted_blob(tx: Tx, stream_id: int, packed: bytes) -> int:
    """Store what `pack_compacted` returned as a blob of the stream, and return its id."""
    row = Columns(b"", None, None, None, None, None, packed)
    return _insert_blob_row(tx, stream_id, COMPACTED_BLOB_FORMAT, row, packed)


def _expand(packed: bytes) -> Columns:
    """Return the columns of a compacted blob, with empty frames of the stored lengths for removed events."""
    columns = unpack_inline(zlib.decompress(packed))
    if columns.headers is None:
        return columns
    parts: list[bytes] = []
    at = begin = 0
    for end, headers in zip(ends_of(columns), _decode_headers(columns.headers), strict=True):
        length = end - begin
        begin = end
        if is_removed(headers):
            parts.append(EMPTY_FRAMES[length])
        else:
            parts.append(columns.data[at : at + length])
            at += length
    return columns._replace(data=b"".join(parts))


class _EmptyFrames(dict[int, bytes]):
    """Frames of zeros by their length. Made once for each of the usual lengths."""

    def __missing__(self, length: int) -> bytes:
        frame = _FRAME_HEAD.pack(0, length - FRAME_BYTES) + bytes(length - FRAME_BYTES)
        if length <= EMPTY_FRAME_BYTES_MAX:
            self[length] = frame
        return frame


EMPTY_FRAME_BYTES_MAX: Final = 1024
"""Longest frame of zeros that is kept: half a MiB for all of them. Higher: more memory; lower: longer ones are made for
each removed event."""

EMPTY_FRAMES: Final = _EmptyFrames()


def _checksum(columns: Columns) -> int:
    """Return the CRC-32 of the columns; 0.25 ms per MiB. SQLite's pages have no checksums of their own."""
    checksum = 0
    for column in columns:
        if column is not None:
            checksum = zlib.crc32(column, checksum)
    return checksum


def insert_blob(tx: Tx, stream_id: int, columns: Columns) -> int:
    """Store the columns as a blob of the stream and return its id."""
    storages = tx.shared[STREAM_STORAGES]
    if storages.has(stream_id):
        position = storages.append(stream_id, columns.data)
        blob_id = _insert_blob_row(tx, stream_id, STORAGE_BLOB_FORMAT, columns, position)
        storages.note(tx, blob_id, stream_id, position)
        return blob_id
    return _insert_blob_row(tx, stream_id, BLOB_FORMAT, columns, columns.data)


def _insert_blob_row(tx: Tx, stream_id: int, form: int, columns: Columns, data: bytes) -> int:
    row = tx.execute(
        "INSERT INTO blob (stream_id, format, checksum, ends, keys, positions, times, event_times, headers, data)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING id",
        (stream_id, form, _checksum(columns), *columns[:-1], data),
    ).fetchone()
    return int(row[0])


def is_inline(tx: Tx, stream_id: int, size_bytes: int) -> bool:
    """Return whether events of so many bytes lie in their extents' rows: never those with a storage of their own."""
    return size_bytes <= INLINE_BYTES_MAX and not tx.shared[STREAM_STORAGES].has(stream_id)


def pack_inline(columns: Columns) -> bytes:
    """Return the value of an inline extent: a checksum, seven lengths (-1 for an absent column), then the columns."""
    head = INLINE_HEAD.pack(*[-1 if column is None else len(column) for column in columns])
    packed = b"".join([head, *filter(None, columns)])
    return INLINE_CHECKSUM.pack(zlib.crc32(packed)) + packed


def unpack_inline(packed: bytes) -> Columns:
    """Return the columns that `pack_inline` packed. Raises CorruptRecord if they were changed."""
    rest = packed[INLINE_CHECKSUM.size :]
    if (
        len(rest) < INLINE_HEAD.size
        or INLINE_CHECKSUM.pack(zlib.crc32(rest)) != packed[: INLINE_CHECKSUM.size]
    ):
        raise CorruptRecord(key="an extent with its events inline", reason=CHANGED)
    at = INLINE_HEAD.size
    values: list[bytes | None] = []
    for length in INLINE_HEAD.unpack_from(rest):
        if length < 0:
            values.append(None)
        else:
            values.append(rest[at : at + length])
            at += length
    if at != len(rest):
        raise CorruptRecord(key="an extent with its events inline", reason=CHANGED)
    return Columns._make(values)


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
        headers=None if columns.headers is None else blobs.headers(extent, columns.headers)[first:last],
        times=None if columns.times is None else _int64(columns.times, first, last).tolist(),
    )


def concatenate_inline(run: Sequence[Extent]) -> tuple[Columns, array[int]]:
    """Return the concatenated columns of inline extents, and the append time of each event."""
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
    """Return the offset in the columns' data at which each event ends."""
    ends = array("I")
    ends.frombytes(columns.ends)
    return ends


def _decode_headers(column: bytes) -> list[Headers | None]:
    decoded: list[Headers | None] = json.loads(column)
    return decoded


def _int64(column: bytes, first: int, last: int) -> array[int]:
    values = array("q")
    values.frombytes(column[8 * first : 8 * last])  # a blob of many segments has many more
    return values


def _event_times(column: bytes | None, first: int, last: int) -> list[int | None] | None:
    if column is None:
        return None
    return [None if time == NO_TIME else time for time in _int64(column, first, last)]


class InlineExtentCounter:
    """Counts the consecutive inline extents that this process appended to each segment, and reports long runs.

    It is a hint in memory. The runs of a process that died stay readable and are never joined: that is cheaper than
    checking every segment regularly. Processes that end after each commit call `join_tail` instead.
    """

    def __init__(self) -> None:
        self._runs = BoundedCache[tuple[int, SegmentId], tuple[int, int]](RUNS_COUNTED_MAX)
        """{segment: (first offset, count)}."""
        self._due: list[tuple[int, SegmentId, int, int]] = []
        self.on_due: Callable[[], None] = lambda: None

    def note(self, stream_id: int, segment: SegmentId, start: int) -> None:
        """Count an inline extent that became durable; call `on_due` when the run is long enough to be joined."""
        key = stream_id, segment
        first, count = self._runs.find(key) or (start, 0)
        if count + 1 < JOIN_EXTENTS_MAX:
            self._runs.keep(key, (first, count + 1))
        else:
            self._runs.forget(key)
            self._due.append((stream_id, segment, first, start))
            self.on_due()

    def take(self) -> list[tuple[int, SegmentId, int, int]]:
        """Return the runs to join that were not returned before: (stream id, segment, offsets of first and last)."""
        due, self._due = self._due, []
        return due


INLINE_EXTENT_COUNTER: Final = SharedSlot(InlineExtentCounter)
