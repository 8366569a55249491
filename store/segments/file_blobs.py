"""Blobs whose columns lie in a chunk file: located by the positions of Arrow's buffers, read without pyarrow.

A record batch of an uncompressed Arrow file is a few plain buffers. The writer of such a blob computes their positions
with pyarrow and stores them as `BufferRefs`; a reader needs nothing else. See docs/design/spark-sink.md.
"""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Sequence
from functools import partial
from itertools import count, pairwise
from operator import add
from pathlib import Path
from typing import Final, TypeAlias, TypeVar
from weakref import WeakValueDictionary

import attrs

from eventproc.base.bounded_cache import BoundedCache
from eventproc.store.database import DataNeeded, SharedSlot, Tx
from eventproc.store.file_store import FileStore, open_file_store
from eventproc.store.model.errors import CorruptRecord, NotSupported
from eventproc.store.model.limits import FRAME_BYTES
from eventproc.store.segments.columns import Columns, EventBlock, Headers, join_blocks

V = TypeVar("V")

CHUNKS_FOLDER: Final = "chunks"
"""Folder of the chunk files within the directory. It may be a symbolic link to a folder that a cluster shares."""

PLACE: Final = "chunks"
"""Key of the row of `meta` with the URL of the chunk files. Without it they lie in CHUNKS_FOLDER."""

FETCHED_BYTES_MAX: Final = 32 * 2**20
"""Bytes of remote files that are kept in memory: eight blobs of the usual largest size. Higher: more memory; lower:
readers that take a blob in several parts fetch it again."""

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
        """Return the references that `pack` packed. Raises CorruptRecord for what it cannot have packed."""
        if len(packed) != _PACKED_BYTES:
            reason = f"the places of its columns have {len(packed)} bytes, not {_PACKED_BYTES}"
            raise CorruptRecord(key="a blob in a chunk file", reason=reason)
        count, checksum, *numbers = memoryview(packed).cast("q").tolist()
        return cls(count, checksum, *zip(numbers[::2], numbers[1::2], strict=True))

    def buffers(self) -> list[BufferRef]:
        """Return the positions of all buffers, in the order of the fields."""
        _count, _checksum, *refs = attrs.astuple(self, recurse=False)
        return refs


_PACKED_BYTES: Final = len(BufferRefs(0, 0, NO_BUFFER, NO_BUFFER).pack())
"""Bytes of packed references."""


def find_chunk_files(tx: Tx) -> FileStore | None:
    """Return the chunk files of the database; None in memory, and on a server without a place. One look-up."""
    row = tx.execute("SELECT value FROM meta WHERE key = ?", (PLACE,)).fetchone()
    if row is not None:
        return open_file_store(str(row[0]))
    directory = tx.directory()
    return None if directory is None else local_chunk_files(directory)


def chunk_files(tx: Tx) -> FileStore:
    """Return the chunk files of the database. Raises NotSupported if it can have none. One look-up."""
    if (files := find_chunk_files(tx)) is None:
        remedy = "open a directory, or a store on a server once with chunks='s3://BUCKET/PREFIX'"
        raise NotSupported(what="events in files without a place for them", remedy=remedy)
    return files


def local_chunk_files(directory: Path) -> FileStore:
    """Return the chunk files within a directory. A link is resolved, so that other machines find the same folder."""
    return open_file_store(str((directory / CHUNKS_FOLDER).resolve()))


def load_file_blob(tx: Tx, chunk: int, packed: bytes) -> Columns:
    """Return the columns of a blob that lies in a chunk file. packed: its packed `BufferRefs`.

    Raises CorruptRecord if the file is missing or damaged, DataNeeded if it is remote and not fetched yet.
    Cost: one read of the blob's part of the file, and about 0.5 us per event.
    """
    refs = BufferRefs.unpack(packed)
    used = [(position, position + length) for position, length in refs.buffers() if length]
    begin, end = min(each for each, _ in used), max(each for _, each in used)
    return _read_buffers(tx, chunk, (begin, end - begin)).columns(refs)


def insert_file_blob(tx: Tx, stream_id: int, chunk: int, packed: bytes) -> int:
    """Insert a blob whose columns lie in a chunk file; return its id. packed: its packed `BufferRefs`."""
    row = tx.execute(
        "INSERT INTO blob (stream_id, format, chunk, ends, data) VALUES (?, ?, ?, ?, ?) RETURNING id",
        (stream_id, FILE_BLOB_FORMAT, chunk, b"", packed),
    ).fetchone()
    return int(row[0])


def load_file_blob_ends(tx: Tx, chunk: int, packed: bytes) -> array[int]:
    """Return the event ends of a blob that lies in a chunk file, without reading its other columns.

    Raises as `load_file_blob`. About 0.1 us per event.
    """
    ref = BufferRefs.unpack(packed).payload_ends
    ends = _read_buffers(tx, chunk, ref).ints(ref)
    return array("I", map(add, ends[1:], count(FRAME_BYTES, FRAME_BYTES)))


def _read_buffers(tx: Tx, chunk: int, part: BufferRef) -> _BufferReader:
    """Return the buffers in a part of a chunk file. Raises as `load_file_blob`."""
    row = tx.execute("SELECT path FROM chunk WHERE id = ?", (chunk,)).fetchone()
    if row is None:
        raise CorruptRecord(key=f"chunk {chunk}", reason="not found, but a blob refers to it")
    files, path = chunk_files(tx), str(row[0])
    if files.is_local:
        return _BufferReader(files.show(path), part[0], _read_part(files, path, part))
    ranges = tx.shared[FETCHED_RANGES]
    if (found := ranges.find((files.place, path, *part))) is None:
        raise DataNeeded(partial(ranges.fetch, files, path, part))
    return _BufferReader(files.show(path), part[0], found.data)


def _read_part(files: FileStore, path: str, part: BufferRef) -> bytes:
    position, length = part
    try:
        found = files.read(path, position, length)
    except FileNotFoundError:
        reason = "file not found, but events lie in it; restore it from a backup"
        raise CorruptRecord(key=f"chunk file {files.show(path)}", reason=reason) from None
    if len(found) != length:
        reason = "the file is shorter than when it was written"
        raise CorruptRecord(key=f"chunk file {files.show(path)}", reason=reason)
    return found


_RangeKey: TypeAlias = tuple[str, str, int, int]
"""Place, path, position and length."""


@attrs.frozen(eq=False)
class FetchedRange:
    """A part of a remote file."""

    data: bytes


class FetchedRanges:
    """Parts of remote files: the latest ones, and all that somebody still uses. Safe for threads."""

    def __init__(self) -> None:
        self._recent = BoundedCache[_RangeKey, FetchedRange](FETCHED_BYTES_MAX, lambda each: len(each.data))
        self._used: WeakValueDictionary[_RangeKey, FetchedRange] = WeakValueDictionary()

    def find(self, key: _RangeKey) -> FetchedRange | None:
        """Return a part that was fetched before, None if it is not in memory."""
        return self._recent.use(key) or self._used.get(key)

    def fetch(self, files: FileStore, path: str, part: BufferRef) -> FetchedRange:
        """Fetch a part, and return it; it stays at least as long as the caller keeps it. Blocks.

        Raises CorruptRecord, Unreachable.
        """
        key, found = (files.place, path, *part), FetchedRange(_read_part(files, path, part))
        self._used[key] = found
        self._recent.keep(key, found)
        return found


FETCHED_RANGES: Final = SharedSlot(FetchedRanges, in_reads=True)


@attrs.frozen
class _BufferReader:
    """Reads the buffers in a part of a chunk file. position: of the part, in the file."""

    path: str
    position: int
    part: bytes

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
        begin = position - self.position
        return self.part[begin : begin + length] if length else b""

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
