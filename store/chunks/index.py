"""The index of chunk files: which runs of events lie in a file, and how files get and lose their rows.

Files are renamed into place, and put aside, in write transactions, whose lock keeps the two apart: see
docs/design/chunk-files.md. This module reads and writes no content of files.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import attrs

from eventproc.store.database import Tx
from eventproc.store.model.errors import CorruptRecord
from eventproc.store.model.ids import SegmentId, format_segment
from eventproc.store.segments.file_blobs import GONE_SUFFIX
from eventproc.store.segments.holds import HeldRange, held_ranges, is_directory_held

SINK_FOLDER: Final = "sink"
"""Folder, within the chunks folder, of the files that tasks of Spark's sink write. Their commit inserts their rows."""

PART_SUFFIX: Final = ".part"
"""Suffix of an unfinished file: it is being written, or its writer died."""

ARROW_SUFFIX: Final = ".arrow"

BATCH_EVENTS_MAX: Final = 32_768
"""Events in one record batch: Spark sends one batch at a time through its pipe and keeps it in memory."""

BATCH_BYTES: Final = 4 * 2**20
"""Bytes of events of a record batch, give or take one extent: small extents are combined."""

STEP_CHUNKS_MAX: Final = 256
"""Rows that one step of dropping reads: one or two milliseconds under the write lock."""


@attrs.frozen
class ChunkFile:
    """A chunk file: the `count` events in bytes [start, start + length) of a segment, from `first_number` on.

    path: relative to the chunks folder. bytes, checksum: size and CRC-32 of the file.
    """

    stream_id: int
    segment: SegmentId
    start: int
    length: int
    first_number: int
    count: int
    path: str
    bytes: int
    checksum: int

    @property
    def end(self) -> int:
        """First offset after the chunk file's events."""
        return self.start + self.length


@attrs.frozen
class LocatedRange:
    """A part [start, end) of a range, and where its events lie.

    chunk: the file that holds them, None if they lie in extents. lost: they were freed.
    """

    start: int
    end: int
    chunk: ChunkFile | None = None
    lost: bool = False


def chunk_path(stream_id: int, segment: SegmentId, start: int, end: int) -> str:
    """Return the path, relative to the chunks folder, of the file of [start, end)."""
    return f"{stream_id}/{format_segment(segment)}/{start}-{end}{ARROW_SUFFIX}"


_COLUMNS: Final = "stream_id, segment, start, length, first_number, count, path, bytes, checksum"


def locate_range(tx: Tx, stream_id: int, held: HeldRange) -> list[LocatedRange]:
    """Return where the events of a range lie, in order and without gaps. Two look-ups, and a row per chunk file."""
    chunks = _overlapping(tx, stream_id, held)
    row = tx.execute(
        "SELECT start FROM extent WHERE stream_id = ? AND segment = ? ORDER BY start LIMIT 1",
        (stream_id, held.segment),
    ).fetchone()
    # The reaper frees from the front, so that the remaining extents have no gap.
    extents_from = held.end if row is None else int(row[0])
    pieces: list[LocatedRange] = []
    at = held.start
    while at < held.end:
        chunk = next((each for each in chunks if each.start <= at < each.end), None)
        if chunk is not None:
            end = min(chunk.end, held.end)
            pieces.append(LocatedRange(at, end, chunk))
        else:
            end = min([held.end, *(each.start for each in chunks if each.start > at)])
            lost = at < extents_from
            end = min(end, extents_from) if lost else end
            pieces.append(LocatedRange(at, end, lost=lost))
        at = end
    return pieces


def _overlapping(tx: Tx, stream_id: int, held: HeldRange) -> list[ChunkFile]:
    rows = tx.execute(
        f"SELECT {_COLUMNS} FROM chunk WHERE stream_id = ? AND segment = ? AND start < ? AND start + length > ?"
        " ORDER BY start",
        (stream_id, held.segment, held.end, held.start),
    )
    return [ChunkFile(*row) for row in rows]


def register_chunks(tx: Tx, folder: Path, written: Sequence[tuple[Path, ChunkFile]]) -> None:
    """Rename written files, (file, chunk), into place, and insert their rows.

    If a range has a row already, its file is kept, unless that file was lost, for instance by a loss of power. The
    function may run twice: a rename can be repeated, and no reader knows the file before the commit.
    Raises OSError, CorruptRecord if events lay in a lost file.
    """
    for part, chunk in written:
        row = tx.execute("SELECT bytes FROM chunk WHERE path = ?", (chunk.path,)).fetchone()
        if row is not None and file_size(folder / chunk.path) == row[0]:
            continue
        drop_missing(tx, [chunk])
        if part.exists():  # otherwise an earlier run of this function renamed it
            part.replace(folder / chunk.path)
        tx.execute(f"INSERT INTO chunk ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", attrs.astuple(chunk))


def find_chunk(tx: Tx, path: str) -> ChunkFile | None:
    """Return the row of a chunk file, None if there is none. path: relative to the chunks folder. One look-up."""
    row = tx.execute(f"SELECT {_COLUMNS} FROM chunk WHERE path = ?", (path,)).fetchone()
    return None if row is None else ChunkFile(*row)


def file_size(path: Path) -> int | None:
    """Return the size of a file in bytes, None if it is missing or cannot be accessed."""
    try:
        return path.stat().st_size
    except OSError:
        return None


def drop_missing(tx: Tx, chunks: Iterable[ChunkFile]) -> None:
    """Drop the rows of chunk files that are missing or damaged, so that their events are exported again.

    Raises CorruptRecord for a file that blobs lie in, because its events are stored nowhere else.
    """
    for chunk in chunks:
        row = tx.execute("SELECT id FROM chunk WHERE path = ?", (chunk.path,)).fetchone()
        if row is None:
            continue
        if tx.execute("SELECT 1 FROM blob WHERE chunk = ?", row).fetchone() is not None:
            raise CorruptRecord(
                key=f"chunk file {chunk.path}",
                reason="file not found, but events lie in it; restore it from a backup",
            )
        tx.execute("DELETE FROM chunk WHERE id = ?", row)


def next_unused(tx: Tx, after: int) -> int | None:
    """Return the id of the next chunk file above `after` in which no blob lies; it may be held.

    Scans rows at 0.5 us each: call it in a read, outside of the write lock.
    """
    row = tx.execute(
        "SELECT id FROM chunk WHERE id > ? AND NOT EXISTS (SELECT 1 FROM blob WHERE blob.chunk = chunk.id)"
        " ORDER BY id LIMIT 1",
        (after,),
    ).fetchone()
    return None if row is None else int(row[0])


def drop_unused(tx: Tx, after: int) -> tuple[int | None, list[str]]:
    """Drop the rows of unused chunk files among the next STEP_CHUNKS_MAX ids above `after`.

    A file is used if a blob lies in it or if it overlaps a held range. While a backup holds the directory, all are.
    Returns the id to go on after (None at the end), and the paths of the dropped files, to be put aside after the
    commit.
    """
    if is_directory_held(tx):
        return None, []
    rows = tx.execute(
        "SELECT id, stream_id, segment, start, length, path,"
        " EXISTS (SELECT 1 FROM blob WHERE blob.chunk = chunk.id) FROM chunk WHERE id > ? ORDER BY id LIMIT ?",
        (after, STEP_CHUNKS_MAX),
    ).fetchall()
    held: dict[int, list[HeldRange]] = {}
    paths: list[str] = []
    for chunk_id, stream_id, segment, start, length, path, has_blobs in rows:
        if stream_id not in held:
            held[stream_id] = held_ranges(tx, stream_id)
        if not has_blobs and not any(
            each.segment == segment and each.start < start + length and start < each.end
            for each in held[stream_id]
        ):
            tx.execute("DELETE FROM chunk WHERE id = ?", (chunk_id,))
            paths.append(path)
    return rows[-1][0] if len(rows) == STEP_CHUNKS_MAX else None, paths


def put_aside(tx: Tx, folder: Path, paths: Iterable[str]) -> list[Path]:
    """Rename files without a row, so that they can be unlinked; return their new paths.

    Call it in a write transaction, so that no file gets a row meanwhile. Missing files are ignored.
    """
    aside: list[Path] = []
    for path in paths:
        if tx.execute("SELECT 1 FROM chunk WHERE path = ?", (path,)).fetchone() is None:
            file = folder / path
            gone = file.with_name(file.name + GONE_SUFFIX)
            if file.exists():
                file.replace(gone)
            aside.append(gone)
    return aside
