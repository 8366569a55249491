"""Blobs whose columns lie in a chunk file: located by the positions of Arrow's buffers, read without pyarrow.

A record batch of an uncompressed Arrow file is a few plain buffers. The writer of such a blob computes their positions
with pyarrow and stores them as `BufferRefs`; a reader needs nothing else. See docs/design/spark-sink.md.
"""

from __future__ import annotations

import os
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
"""Format number of a blob whose columns lie in a file."""

BufferRef = tuple[int, int]
"""Where a buffer lies in its file: (position, length), in bytes; a length of 0 for one that is not there."""

NO_BUFFER: Final[BufferRef] = (0, 0)


@attrs.frozen
class BufferRefs:
    """Where the buffers of `count` events lie, as Arrow lays them out.

    *_present: bitmaps, absent where every event has the value. *_ends: int32, count + 1 of them, from 0. Times are
    int64, in ms. headers_*: a map; the ends of all its names, and of all its values.
    """

    count: int
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
        """Return this as a blob's row has it."""
        count, *places = attrs.astuple(self, recurse=False)
        return array("q", [count, *(number for place in places for number in place)]).tobytes()

    @classmethod
    def unpack(cls, packed: bytes) -> BufferRefs:
        """Return what `pack` packed."""
        count, *numbers = memoryview(packed).cast("q").tolist()
        return cls(count, *zip(numbers[::2], numbers[1::2], strict=True))


def chunks_folder(tx: Tx) -> Path:
    """Return where the chunk files of the database lie."""
    row = tx.execute("SELECT file FROM pragma_database_list WHERE name = 'main'").fetchone()
    return Path(row[0]).parent / CHUNKS_FOLDER


def load_file_blob(tx: Tx, chunk: int, packed: bytes) -> Columns:
    """Return the columns of a blob that lies in a file. Raises CorruptRecord when they are not there.

    Cost: opening a file, and about 0.5 us an event. A file that was put aside since the snapshot began is still found.
    """
    with _open_buffers(tx, chunk) as buffers:
        return buffers.columns(BufferRefs.unpack(packed))


def insert_file_blob(tx: Tx, stream_id: int, chunk: int, places: bytes) -> int:
    """Write a blob whose columns lie in a file, at `BufferRefs`, packed; return its id."""
    blob = tx.execute(
        "INSERT INTO blob (stream_id, format, chunk, ends, data) VALUES (?, ?, ?, x'', ?)",
        (stream_id, FILE_BLOB_FORMAT, chunk, places),
    ).lastrowid
    assert blob is not None, "an insert has a row id"
    return blob


def load_file_blob_ends(tx: Tx, chunk: int, packed: bytes) -> array[int]:
    """Return where the events of a blob that lies in a file end in its columns, and read nothing else of it.

    Raises CorruptRecord. About 0.1 us an event.
    """
    with _open_buffers(tx, chunk) as buffers:
        ends = buffers.ints(BufferRefs.unpack(packed).payload_ends)
    return array("I", map(add, ends[1:], count(FRAME_BYTES, FRAME_BYTES)))


@contextmanager
def _open_buffers(tx: Tx, chunk: int) -> Iterator[_BufferReader]:
    row = tx.execute("SELECT path FROM chunk WHERE id = ?", (chunk,)).fetchone()
    if row is None:
        raise CorruptRecord(key=f"chunk {chunk}", reason="a blob refers to it and it is not there")
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
    raise CorruptRecord(key=f"chunk file {path}", reason="events lie in it and it is not there")


@attrs.frozen
class _BufferReader:
    """Reads buffers of one open file."""

    path: Path
    descriptor: int

    def columns(self, places: BufferRefs) -> Columns:
        """Return everything."""
        block = EventBlock(
            payloads=_cut(self.ints(places.payload_ends), self._read(places.payloads)),
            keys=self._keys(places),
            event_times=self._event_times(places),
            headers=self._headers(places),
        )
        if len(block) != places.count:
            raise CorruptRecord(key=f"chunk file {self.path}", reason="it has other events than its blob")
        return join_blocks([block.encode()], times=self._read(places.times) or None)

    def _read(self, place: BufferRef) -> bytes:
        position, length = place
        found = os.pread(self.descriptor, length, position) if length else b""
        if len(found) != length:
            raise CorruptRecord(key=f"chunk file {self.path}", reason="it is shorter than it was")
        return found

    def ints(self, place: BufferRef) -> array[int]:
        """Return a buffer of int32."""
        values = array("i")
        values.frombytes(self._read(place))
        return values

    def _texts(self, ends: BufferRef, text: BufferRef) -> list[str]:
        found = self._read(text)
        borders = self.ints(ends)
        if found.isascii():
            whole = found.decode("ascii")
            return [whole[begin:end] for begin, end in pairwise(borders)]
        return [each.decode() for each in _cut(borders, found)]

    def _keys(self, places: BufferRefs) -> list[str | None] | None:
        if not places.key_ends[1]:
            return None
        return self._present(places.key_present, self._texts(places.key_ends, places.keys))

    def _event_times(self, places: BufferRefs) -> list[int | None] | None:
        if not places.event_times[1]:
            return None
        values = array("q")
        values.frombytes(self._read(places.event_times))
        return self._present(places.event_time_present, values)

    def _headers(self, places: BufferRefs) -> list[Headers | None] | None:
        if not places.headers_ends[1]:
            return None
        names = self._texts(places.name_ends, places.names)
        values = self._texts(places.value_ends, places.values)
        pairs = list(zip(names, values, strict=True))
        ends = self.ints(places.headers_ends)
        headers: list[Headers] = [dict(pairs[begin:end]) for begin, end in pairwise(ends)]
        return self._present(places.headers_present, headers)

    def _present(self, bitmap: BufferRef, values: Sequence[V]) -> list[V | None]:
        if not bitmap[1]:
            return list(values)
        bits = self._read(bitmap)
        return [value if bits[index >> 3] >> (index & 7) & 1 else None for index, value in enumerate(values)]


def _cut(ends: Sequence[int], data: bytes) -> list[bytes]:
    return [data[begin:end] for begin, end in pairwise(ends)]
