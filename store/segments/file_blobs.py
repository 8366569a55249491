"""Blobs whose columns lie in a chunk file: located by the positions of Arrow's buffers, read without pyarrow.

A record batch of an uncompressed Arrow file is a few plain buffers. The writer of such a blob computes their positions
with pyarrow and stores them as `BufferRefs`; a reader needs nothing else. See docs/design/spark-sink.md.
"""

from __future__ import annotations

import os
import zlib
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count, pairwise
from operator import add
from pathlib import Path
from typing import Final, TypeVar

import attrs

from eventproc.store.database import Tx
from eventproc.store.model.errors import CorruptRecord
from eventproc.store.model.limits import FRAME_BYTES
from eventproc.store.segments.columns import Columns, EventBlock, Headers, join_blocks

V = TypeVar("V")

CHUNKS_FOLDER: Final = "chunks"
"""Folder of the chunk files within the directory. It may be a symbolic link to a folder that a cluster shares."""

GONE_SUFFIX: Final = ".gone"
"""Suffix of a chunk file that was put aside and will be unlinked."""

FILE_BLOB_FORMAT: Final = 2
"""Format number of a blob whose columns lie in a chunk file."""

BufferRef = tuple[int, int]
"""Where a buffer lies in its file: (position, length) in bytes. The length is 0 for an absent buffer."""

NO_BUFFER: Final[BufferRef] = (0, 0)


@attrs.frozen
class BufferRefs:
    """Where the Arrow buffers of `count` events lie in a file.

    checksum: CRC-32 of all of them, in the order of the fields.
    *_present: bitmaps, absent if every event has the value. *_ends: int32, count + 1 values from 0. Times: int64, ms.
    headers_*, name*, value*: a map column: the ends of each event's pairs, all names and all values with their ends.
    """

    count: int
    checksum: int
    payload_ends: BufferRef
    payloads: BufferRef
    key_present: BufferRef = NO_BUFFER
    key_ends: BufferRef = NO_BUFFER
    keys: BufferRef = NO_BUFFER
    times: BufferRef = NO_BUFFER
    event_time_present: BufferRef = NO_BUFFER
    event_times: BufferRef = NO_BUFFER
    headers_present: BufferRef = NO_BUFFER
    headers_ends: BufferRef = NO_BUFFER
    name_ends: BufferRef = NO_BUFFER
    names: BufferRef = NO_BUFFER
    value_ends: BufferRef = NO_BUFFER
    values: BufferRef = NO_BUFFER

    def pack(self) -> bytes:
        """Return the value that a blob's row stores."""
        numbers = (number for ref in self.buffers() for number in ref)
        return array("q", [self.count, self.checksum, *numbers]).tobytes()

    @classmethod
    def unpack(cls, packed: bytes) -> BufferRefs:
        """Return the references that `pack` packed."""
        count, checksum, *numbers = memoryview(packed).cast("q").tolist()
        return cls(count, checksum, *zip(numbers[::2], numbers[1::2], strict=True))

    def buffers(self) -> list[BufferRef]:
        """Return the positions of all buffers, in the order of the fields."""
        _count, _checksum, *refs = attrs.astuple(self, recurse=False)
        return refs


def chunks_folder(tx: Tx) -> Path:
    """Return the folder of the database's chunk files."""
    directory = tx.directory()
    assert directory is not None, "a database in memory has no files"
    return directory / CHUNKS_FOLDER


def load_file_blob(tx: Tx, chunk: int, packed: bytes) -> Columns:
    """Return the columns of a blob that lies in a chunk file. packed: its packed `BufferRefs`.

    It also finds a file that was put aside since the snapshot began. Raises CorruptRecord if the file is missing or
    damaged. Cost: opening a file, and about 0.5 us per event.
    """
    with _open_buffers(tx, chunk) as buffers:
        return buffers.columns(BufferRefs.unpack(packed))


def insert_file_blob(tx: Tx, stream_id: int, chunk: int, packed: bytes) -> int:
    """Insert a blob whose columns lie in a chunk file; return its id. packed: its packed `BufferRefs`."""
    row = tx.execute(
        "INSERT INTO blob (stream_id, format, chunk, ends, data) VALUES (?, ?, ?, ?, ?) RETURNING id",
        (stream_id, FILE_BLOB_FORMAT, chunk, b"", packed),
    ).fetchone()
    return int(row[0])


def load_file_blob_ends(tx: Tx, chunk: int, packed: bytes) -> array[int]:
    """Return the event ends of a blob that lies in a chunk file, without reading its other columns.

    Raises CorruptRecord. About 0.1 us per event.
    """
    with _open_buffers(tx, chunk) as buffers:
        ends = buffers.ints(BufferRefs.unpack(packed).payload_ends)
    return array("I", map(add, ends[1:], count(FRAME_BYTES, FRAME_BYTES)))


@contextmanager
def _open_buffers(tx: Tx, chunk: int) -> Iterator[_BufferReader]:
    row = tx.execute("SELECT path FROM chunk WHERE id = ?", (chunk,)).fetchone()
    if row is None:
        raise CorruptRecord(key=f"chunk {chunk}", reason="not found, but a blob refers to it")
    path = chunks_folder(tx) / row[0]
    for name in (path, path.with_name(path.name + GONE_SUFFIX)):
        try:
            descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        try:
            yield _BufferReader(path, descriptor)
            return
        finally:
            os.close(descriptor)
    raise CorruptRecord(
        key=f"chunk file {path}", reason="file not found, but events lie in it; restore it from a backup"
    )


@attrs.frozen
class _BufferReader:
    """Reads the buffers of one open chunk file."""

    path: Path
    descriptor: int

    def columns(self, refs: BufferRefs) -> Columns:
        """Return all columns, after comparing their bytes with the checksum."""
        checksum = 0
        for ref in refs.buffers():
            checksum = zlib.crc32(self._read(ref), checksum)
        if checksum != refs.checksum:
            raise CorruptRecord(
                key=f"chunk file {self.path}", reason="its content differs from what was written"
            )
        block = EventBlock(
            payloads=_cut(self.ints(refs.payload_ends), self._read(refs.payloads)),
            keys=self._keys(refs),
            event_times=self._event_times(refs),
            headers=self._headers(refs),
        )
        if len(block) != refs.count:
            raise CorruptRecord(
                key=f"chunk file {self.path}", reason="its number of events differs from that of its blob"
            )
        return join_blocks([block.encode()], times=self._read(refs.times) or None)

    def _read(self, ref: BufferRef) -> bytes:
        position, length = ref
        found = os.pread(self.descriptor, length, position) if length else b""
        if len(found) != length:
            raise CorruptRecord(
                key=f"chunk file {self.path}", reason="the file is shorter than when it was written"
            )
        return found

    def ints(self, ref: BufferRef) -> array[int]:
        """Return the values of an int32 buffer."""
        values = array("i")
        values.frombytes(self._read(ref))
        return values

    def _texts(self, ends: BufferRef, text: BufferRef) -> list[str]:
        found = self._read(text)
        borders = self.ints(ends)
        if found.isascii():
            whole = found.decode("ascii")
            return [whole[begin:end] for begin, end in pairwise(borders)]
        return [each.decode() for each in _cut(borders, found)]

    def _keys(self, refs: BufferRefs) -> list[str | None] | None:
        if not refs.key_ends[1]:
            return None
        return self._present(refs.key_present, self._texts(refs.key_ends, refs.keys))

    def _event_times(self, refs: BufferRefs) -> list[int | None] | None:
        if not refs.event_times[1]:
            return None
        values = array("q")
        values.frombytes(self._read(refs.event_times))
        return self._present(refs.event_time_present, values)

    def _headers(self, refs: BufferRefs) -> list[Headers | None] | None:
        if not refs.headers_ends[1]:
            return None
        names = self._texts(refs.name_ends, refs.names)
        values = self._texts(refs.value_ends, refs.values)
        pairs = list(zip(names, values, strict=True))
        ends = self.ints(refs.headers_ends)
        headers: list[Headers] = [dict(pairs[begin:end]) for begin, end in pairwise(ends)]
        return self._present(refs.headers_present, headers)

    def _present(self, bitmap: BufferRef, values: Sequence[V]) -> list[V | None]:
        if not bitmap[1]:
            return list(values)
        bits = self._read(bitmap)
        return [value if bits[index >> 3] >> (index & 7) & 1 else None for index, value in enumerate(values)]


def _cut(ends: Sequence[int], data: bytes) -> list[bytes]:
    return [data[begin:end] for begin, end in pairwise(ends)]
