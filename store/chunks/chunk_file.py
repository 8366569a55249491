"""The content of chunk files: events as Arrow columns, written from the columns of blobs and read by offset.

This module imports pyarrow and numpy, the extra `arrow`; no other module of the store may import it at load time.
A blob's columns become Arrow's without a loop per event, except headers. Format: docs/design/chunk-files.md.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from types import TracebackType
from typing import Final, TypeAlias

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eventproc.store.chunks.index import BATCH_BYTES, BATCH_EVENTS_MAX, ChunkFile
from eventproc.store.chunks.offload import ChunkBatch
from eventproc.store.file_store import CountedFile, FileStore
from eventproc.store.model.errors import CorruptRecord
from eventproc.store.model.limits import FRAME_BYTES
from eventproc.store.segments.columns import NO_TIME, Columns
from eventproc.store.segments.event import COMPACTED_HEADER, REMOVED
from eventproc.store.segments.file_blobs import NO_BUFFER, BufferRef, BufferRefs

Numbers: TypeAlias = np.ndarray[tuple[int], np.dtype[np.int64]]

STAMP: Final = pa.timestamp("ms", tz="UTC")

SCHEMA: Final = pa.schema(
    [
        pa.field("payload", pa.binary()),
        pa.field("key", pa.string()),
        pa.field("timestamp", STAMP),
        pa.field("event_time", STAMP),
        pa.field("headers", pa.map_(pa.string(), pa.string())),
    ]
)
"""Columns of every chunk file."""


@attrs.frozen
class ColumnSlice:
    """Events [first, last) of a blob's columns.

    count: number of events of the blob. at: the byte of the blob's data at which the first of these events begins.
    time: append time of all of them, if the blob has no times.
    """

    columns: Columns
    count: int
    first: int
    last: int
    at: int
    time: int


def to_arrow(events: ColumnSlice) -> pa.RecordBatch:
    """Return the events as Arrow columns. About 0.1 us each, 5 us with headers."""
    columns, count = events.columns, events.last - events.first
    own = slice(events.first, events.last)
    times = np.full(count, events.time, np.int64) if columns.times is None else _int64(columns.times)[own]
    return pa.RecordBatch.from_arrays(
        [
            _payloads(events),
            pa.nulls(count, pa.string()) if columns.keys is None else _keys(columns.keys, events),
            _stamps(times),
            pa.nulls(count, STAMP)
            if columns.event_times is None
            else _stamps(_int64(columns.event_times)[own]),
            _headers(columns.headers, events),
        ],
        schema=SCHEMA,
    )


def _payloads(events: ColumnSlice) -> pa.Array:
    """Return the payloads without frame heads: heads and payloads as alternating values, every second one taken."""
    ends = np.frombuffer(events.columns.ends, np.uint32)[events.first : events.last].astype(np.int32)
    count = len(ends)
    borders = np.empty(2 * count + 1, np.int32)
    borders[0] = events.at
    borders[2::2] = ends
    borders[1::2] = borders[:-1:2] + FRAME_BYTES
    buffers = [None, pa.py_buffer(borders), pa.py_buffer(events.columns.data)]
    alternating = pa.Array.from_buffers(pa.binary(), 2 * count, buffers)
    odd = pa.py_buffer(np.arange(1, 2 * count, 2, dtype=np.int32))
    return alternating.take(pa.Array.from_buffers(pa.int32(), count, [None, odd]))


def _keys(column: bytes, events: ColumnSlice) -> pa.Array:
    """Return the keys of a stored key column, which has the layout of `decode_keys`."""
    first, last = events.first, events.last
    ends = np.frombuffer(column, np.uint32, events.count, 1).astype(np.int32)
    begin = int(ends[first - 1]) if first else 0
    # From 0 on: the writer of files of pyarrow before 21 takes other texts if they begin elsewhere.
    offsets = np.zeros(last - first + 1, np.int32)
    offsets[1:] = ends[first:last] - begin
    present_at = 1 + 4 * events.count
    validity = None
    if column[0]:
        present = np.frombuffer(column, np.uint8, events.count, present_at)[first:last]
        validity = pa.py_buffer(np.packbits(present, bitorder="little"))
    text = pa.py_buffer(column).slice(present_at + (events.count if column[0] else 0) + begin)
    return pa.Array.from_buffers(pa.string(), last - first, [validity, pa.py_buffer(offsets), text])


def _stamps(times_ms: np.ndarray[tuple[int], np.dtype[np.int64]]) -> pa.Array:
    """Return times; NO_TIME is null.

    Made from buffers: `pa.array` imports pandas if that is installed, which takes a second.
    """
    given = times_ms != NO_TIME
    validity = None if given.all() else pa.py_buffer(np.packbits(given, bitorder="little"))
    values = pa.py_buffer(np.ascontiguousarray(times_ms))
    return pa.Array.from_buffers(pa.int64(), len(times_ms), [validity, values]).cast(STAMP)


def _headers(column: bytes | None, events: ColumnSlice) -> pa.Array:
    kind = SCHEMA.field("headers").type
    if column is None:
        return pa.nulls(events.last - events.first, kind)
    rows = json.loads(column)[events.first : events.last]
    return pa.array([None if row is None else list(row.items()) for row in rows], kind)


def _int64(column: bytes) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.frombuffer(column, np.int64)


class ChunkWriter:
    """Writes one chunk file. `finish` completes it, `abandon` discards it.

    count: events so far.
    batch_bytes, batch_events_max: size of a record batch.
    """

    def __init__(
        self,
        files: FileStore,
        path: str,
        schema: pa.Schema = SCHEMA,
        *,
        batch_bytes: int = BATCH_BYTES,
        batch_events_max: int = BATCH_EVENTS_MAX,
    ) -> None:
        self.path = path
        self.count = 0
        self._file = CountedFile(files.create(path))
        try:
            self._writer = pa.ipc.new_file(pa.PythonFile(self._file, mode="w"), schema)
        except BaseException:
            self._file.abandon()
            raise
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0
        self._batch_bytes = batch_bytes
        self._batch_events_max = batch_events_max

    @property
    def size_bytes(self) -> int:
        """Bytes so far."""
        return self._file.size_bytes

    @property
    def checksum(self) -> int:
        """CRC-32 of the bytes so far."""
        return self._file.checksum

    def add(self, events: ColumnSlice) -> None:
        """Append events. Raises OSError."""
        batch = to_arrow(events)
        self.count += batch.num_rows
        self._waiting.append(batch)
        self._waiting_bytes += batch.nbytes
        if self._waiting_bytes >= self._batch_bytes:
            self._write_waiting()

    def write_batch(self, batch: pa.RecordBatch) -> None:
        """Write one record batch as it is. Raises OSError."""
        self.count += batch.num_rows
        self._writer.write_batch(batch)

    def finish(self) -> None:
        """Write the remaining events, and give the file its name. Raises as `UnfinishedFile.finish`."""
        self._write_waiting()
        self._writer.close()
        self._file.finish()

    def abandon(self) -> None:
        """Discard the file."""
        self._file.abandon()

    def _write_waiting(self) -> None:
        if self._waiting:
            table = pa.Table.from_batches(self._waiting).combine_chunks()
            self._waiting, self._waiting_bytes = [], 0
            self._writer.write_table(table, max_chunksize=self._batch_events_max)


def find_buffers(batch: pa.RecordBatch, whole: pa.Buffer) -> BufferRefs:
    """Return where the buffers of a record batch lie in its file. whole: the mapped file that it was read from."""

    def ref(buffer: pa.Buffer | None) -> BufferRef:
        return (
            NO_BUFFER if buffer is None or not buffer.size else (buffer.address - whole.address, buffer.size)
        )

    found: dict[str, BufferRef] = {}
    for name, fields in _FIELDS.items():
        index = batch.schema.get_field_index(name)
        if index >= 0 and batch.column(index).null_count < batch.num_rows:
            buffers = batch.column(index).buffers()
            found |= {field: ref(buffer) for field, buffer in zip(fields, buffers, strict=True) if field}
    checksum = 0
    for field in attrs.fields(BufferRefs)[2:]:  # the order in which a reader adds them up
        position, length = found.get(field.name, NO_BUFFER)
        checksum = zlib.crc32(whole.slice(position, length), checksum)
    return BufferRefs(count=batch.num_rows, checksum=checksum, **found)


_FIELDS: Final = {
    "payload": ("", "payload_ends", "payloads"),
    "key": ("key_present", "key_ends", "keys"),
    "timestamp": ("", "times"),
    "event_time": ("event_time_present", "event_times"),
    "headers": (
        *("headers_present", "headers_ends", ""),
        *("", "name_ends", "names"),
        *("", "value_ends", "values"),
    ),
}
"""The fields of `BufferRefs` for the buffers of each column, in Arrow's order; "" for a bitmap that is never needed."""


def read_chunk_batches(files: FileStore, chunk: ChunkFile) -> list[ChunkBatch]:
    """Return the record batches of a chunk file, after comparing its complete content with the checksum.

    Raises CorruptRecord if the content differs, FileNotFoundError, OSError, Unreachable.
    """
    found: list[ChunkBatch] = []
    start, first_number = chunk.start, chunk.first_number
    with files.open_arrow(chunk.path) as opened:
        whole = opened.read_buffer()
        if (whole.size, zlib.crc32(whole)) != (chunk.bytes, chunk.checksum):
            raise CorruptRecord(
                key=f"chunk file {files.show(chunk.path)}",
                reason="its content differs from what was written; delete the file, and it is exported again",
            )
        file = pa.ipc.open_file(whole)
        for index in range(file.num_record_batches):
            batch = file.get_batch(index)
            times = batch.column("timestamp").cast(pa.int64())
            found.append(
                ChunkBatch(
                    start=start,
                    end=start + _length(batch),
                    first_number=first_number,
                    count=batch.num_rows,
                    first_time=times[0].as_py(),
                    last_time=times[-1].as_py(),
                    buffers=find_buffers(batch, whole).pack(),
                )
            )
            start, first_number = found[-1].end, first_number + batch.num_rows
    return found


@attrs.frozen
class ChunkRows:
    """Consecutive events of a chunk file: mapped columns as of SCHEMA, and offset and number of the first event.

    places: the offsets and numbers of the events if a compaction has removed some between them, None otherwise.
    """

    batch: pa.RecordBatch
    offset: int
    number: int
    places: tuple[Numbers, Numbers] | None = None

    def offsets(self) -> Numbers:
        """Return the offset of each event."""
        return self.offset + _relative(self.batch)[:-1] if self.places is None else self.places[0]

    def numbers(self) -> Numbers:
        """Return the number of each event."""
        if self.places is not None:
            return self.places[1]
        return np.arange(self.number, self.number + self.batch.num_rows, dtype=np.int64)

    def without_removed(self) -> ChunkRows:
        """Return the events that no compaction has removed."""
        headers = self.batch.column("headers")
        if headers.null_count == len(headers):
            return self
        first, last = headers.offsets[0].as_py(), headers.offsets[-1].as_py()
        names, values = (each.slice(first, last - first) for each in (headers.keys, headers.items))
        marks = [
            pc.call_function("equal", [each, pa.scalar(text)])
            for each, text in ((names, COMPACTED_HEADER), (values, REMOVED))
        ]
        found = pc.call_function("and", marks).to_numpy(zero_copy_only=False)
        if not found.any():
            return self
        borders = headers.offsets.to_numpy() - first
        removed = np.searchsorted(borders, np.flatnonzero(found), side="right") - 1
        kept = np.delete(np.arange(self.batch.num_rows), removed)
        places = self.offsets()[kept], self.numbers()[kept]
        return ChunkRows(self.batch.take(pa.array(kept)), self.offset, self.number, places)


class ChunkReader:
    """Reads one chunk file: a local one is mapped into memory, of a remote one the wanted record batches are read.

    A context manager. Raises OSError, Unreachable, pa.ArrowInvalid if the file is damaged.
    """

    def __init__(self, files: FileStore, path: str) -> None:
        self._opened = files.open_arrow(path)
        self._file = pa.ipc.open_file(self._opened)

    def __enter__(self) -> ChunkReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, why: BaseException | None, trace: TracebackType | None
    ) -> None:
        # The batches that were yielded keep the mapping alive, not this object.
        self._opened.close()

    def rows(self, *, offset: int, number: int, start: int, end: int) -> Iterator[ChunkRows]:
        """Yield the events in [start, end), both event boundaries, in order.

        offset, number: of the file's first event. Record batches outside of the range are not read.
        """
        for index in range(self._file.num_record_batches):
            if offset >= end:
                return
            batch = self._file.get_batch(index)
            following = offset + _length(batch)
            if following > start:
                first, last = 0, batch.num_rows
                if offset < start or following > end:
                    borders = offset + _relative(batch)
                    first = int(np.searchsorted(borders, max(start, offset)))
                    last = int(np.searchsorted(borders, min(end, following)))
                    begin = int(borders[first])
                else:
                    begin = offset
                yield ChunkRows(batch.slice(first, last - first), begin, number + first)
            offset, number = following, number + batch.num_rows

    def boundary_after(self, *, offset: int, target: int) -> int:
        """Return the first event boundary at or after `target`. offset: of the file's first event."""
        for index in range(self._file.num_record_batches):
            batch = self._file.get_batch(index)
            following = offset + _length(batch)
            if following >= target:
                borders = offset + _relative(batch)
                return int(borders[int(np.searchsorted(borders, target))])
            offset = following
        return offset


def _relative(batch: pa.RecordBatch) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the event boundaries, relative to the first."""
    ends = _payload_ends(batch).astype(np.int64)
    ends -= ends[0]
    ends += np.arange(0, FRAME_BYTES * len(ends), FRAME_BYTES, dtype=np.int64)
    return ends


def _length(batch: pa.RecordBatch) -> int:
    ends = _payload_ends(batch)
    frames = FRAME_BYTES * (len(ends) - 1)
    return int(ends[-1]) - int(ends[0]) + frames


def _payload_ends(batch: pa.RecordBatch) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    payloads = batch.column(0)
    _, ends, _ = payloads.buffers()
    return np.frombuffer(ends, np.int32, batch.num_rows + 1, 4 * payloads.offset)
