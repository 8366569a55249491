"""Blobs whose columns lie in a chunk file: found by the positions of their buffers, read without pyarrow.

A record batch of an Arrow file that is not compressed is a few plain buffers. Whoever makes such a blob writes down
where they are (`Places`, computed with pyarrow); whoever reads it needs nothing else. See docs/design/spark-sink.md.
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
from eventproc.store.segments.block import Columns, EventBlock, Headers, join

V = TypeVar("V")

CHUNKS_FOLDER: Final = "chunks"
"""Folder of the chunk files within the directory. It may be a symbolic link to a folder that a cluster shares."""

GONE_SUFFIX: Final = ".gone"
"""Suffix of a chunk file that was put aside and will be unlinked."""

OUTSIDE_FORMAT: Final = 2
"""Format number of a blob whose columns lie in a file."""

Place = tuple[int, int]
"""Where a buffer lies in its file: (position, length), in bytes; a length of 0 for one that is not there."""

ABSENT: Final[Place] = (0, 0)


@attrs.frozen
class Places:
    """Where the buffers of `count` events lie, as Arrow lays them out.

    *_present: bitmaps, absent where every event has the value. *_ends: int32, count + 1 of them, from 0. Times are
    int64, in ms. headers_*: a map; the ends of all its names, and of all its values.
    """

    count: int
    payload_ends: Place
    payloads: Place
    key_present: Place = ABSENT
    key_ends: Place = ABSENT
    keys: Place = ABSENT
    times: Place = ABSENT
    event_time_present: Place = ABSENT
    event_times: Place = ABSENT
    headers_present: Place = ABSENT
    headers_ends: Place = ABSENT
    name_ends: Place = ABSENT
    names: Place = ABSENT
    value_ends: Place = ABSENT
    values: Place = ABSENT

    def pack(self) -> bytes:
        """Return this as a blob's row has it."""
        count, *places = attrs.astuple(self, recurse=False)
        return array("q", [count, *(number for place in places for number in place)]).tobytes()

    @classmethod
    def unpack(cls, packed: bytes) -> Places:
        """Return what `pack` packed."""
        count, *numbers = memoryview(packed).cast("q").tolist()
        return cls(count, *zip(numbers[::2], numbers[1::2], strict=True))


def folder_of(tx: Tx) -> Path:
    """Return where the chunk files of the database lie."""
    row = tx.execute("SELECT file FROM pragma_database_list WHERE name = 'main'").fetchone()
    return Path(row[0]).parent / CHUNKS_FOLDER


def load_outside(tx: Tx, chunk: int, packed: bytes) -> Columns:
    """Return the columns of a blob that lies in a file. Raises CorruptRecord when they are not there.

    Cost: opening a file, and about 0.5 us an event. A file that was put aside since the snapshot began is still found.
    """
    with _opened(tx, chunk) as buffers:
        return buffers.columns(Places.unpack(packed))


def insert_outside(tx: Tx, stream_id: int, chunk: int, places: bytes) -> int:
    """Write a blob whose columns lie in a file, at `Places`, packed; return its id."""
    blob = tx.execute(
        "INSERT INTO blob (stream_id, format, chunk, ends, data) VALUES (?, ?, ?, x'', ?)",
        (stream_id, OUTSIDE_FORMAT, chunk, places),
    ).lastrowid
    assert blob is not None, "an insert has a row id"
    return blob


def load_ends(tx: Tx, chunk: int, packed: bytes) -> array[int]:
    """Return where the events of a blob that lies in a file end in its columns, and read nothing else of it.

    Raises CorruptRecord. About 0.1 us an event.
    """
    with _opened(tx, chunk) as buffers:
        ends = buffers.ints(Places.unpack(packed).payload_ends)
    return array("I", map(add, ends[1:], count(FRAME_BYTES, FRAME_BYTES)))


@contextmanager
def _opened(tx: Tx, chunk: int) -> Iterator[_Buffers]:
    row = tx.execute("SELECT path FROM chunk WHERE id = ?", (chunk,)).fetchone()
    if row is None:
        raise CorruptRecord(key=f"chunk {chunk}", reason="a blob refers to it and it is not there")
    path = folder_of(tx) / row[0]
    for name in (path, path.with_name(path.name + GONE_SUFFIX)):
        try:
            descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        try:
            yield _Buffers(path, descriptor)
            return
        finally:
            os.close(descriptor)
    raise CorruptRecord(key=f"chunk file {path}", reason="events lie in it and it is not there")


@attrs.frozen
class _Buffers:
    """Reads buffers of one open file."""

    path: Path
    descriptor: int

    def columns(self, places: Places) -> Columns:
        """Return everything."""
        block = EventBlock(
            payloads=_cut(self.ints(places.payload_ends), self._read(places.payloads)),
            keys=self._keys(places),
            event_times=self._event_times(places),
            headers=self._headers(places),
        )
        if len(block) != places.count:
            raise CorruptRecord(key=f"chunk file {self.path}", reason="it has other events than its blob")
        return join([block.encode()], times=self._read(places.times) or None)

    def _read(self, place: Place) -> bytes:
        position, length = place
        found = os.pread(self.descriptor, length, position) if length else b""
        if len(found) != length:
            raise CorruptRecord(key=f"chunk file {self.path}", reason="it is shorter than it was")
        return found

    def ints(self, place: Place) -> array[int]:
        """Return a buffer of int32."""
        values = array("i")
        values.frombytes(self._read(place))
        return values

    def _texts(self, ends: Place, text: Place) -> list[str]:
        found = self._read(text)
        borders = self.ints(ends)
        if found.isascii():
            whole = found.decode("ascii")
            return [whole[begin:end] for begin, end in pairwise(borders)]
        return [each.decode() for each in _cut(borders, found)]

    def _keys(self, places: Places) -> list[str | None] | None:
        if not places.key_ends[1]:
            return None
        return self._present(places.key_present, self._texts(places.key_ends, places.keys))

    def _event_times(self, places: Places) -> list[int | None] | None:
        if not places.event_times[1]:
            return None
        values = array("q")
        values.frombytes(self._read(places.event_times))
        return self._present(places.event_time_present, values)

    def _headers(self, places: Places) -> list[Headers | None] | None:
        if not places.headers_ends[1]:
            return None
        names = self._texts(places.name_ends, places.names)
        values = self._texts(places.value_ends, places.values)
        pairs = list(zip(names, values, strict=True))
        ends = self.ints(places.headers_ends)
        headers: list[Headers] = [dict(pairs[begin:end]) for begin, end in pairwise(ends)]
        return self._present(places.headers_present, headers)

    def _present(self, bitmap: Place, values: Sequence[V]) -> list[V | None]:
        if not bitmap[1]:
            return list(values)
        bits = self._read(bitmap)
        return [value if bits[index >> 3] >> (index & 7) & 1 else None for index, value in enumerate(values)]


def _cut(ends: Sequence[int], data: bytes) -> list[bytes]:
    return [data[begin:end] for begin, end in pairwise(ends)]
