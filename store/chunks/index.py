"""The index of chunk files: which runs of events lie in a file, how files get and lose their place in it.

A file is renamed into place, and put aside, within write transactions, whose lock keeps the two apart: see
docs/design/chunk-files.md. Nothing here reads or writes what is in a file.
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
from eventproc.store.segments.holds import HeldRange, held_ranges

SINK_FOLDER: Final = "sink"
"""Folder, in that one, of the files that tasks of Spark's sink write: they have no row before their commit."""

PART_SUFFIX: Final = ".part"
"""Suffix of a file that is being written, or was when its writer died."""

ARROW_SUFFIX: Final = ".arrow"

STEP_CHUNKS_MAX: Final = 256
"""Rows looked at in one step of dropping: a millisecond or two under the write lock."""


@attrs.frozen
class ChunkFile:
    """A chunk: events [start, start + length) of a segment, `count` of them from `first_number` on.

    path: relative to the folder. bytes, checksum: size and CRC-32 of the file.
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
        """First offset after the chunk."""
        return self.start + self.length


@attrs.frozen
class LocatedRange:
    """Part of a range: [start, end) lies in `chunk`, or in extents (None); or is gone (`lost`)."""

    start: int
    end: int
    chunk: ChunkFile | None = None
    lost: bool = False


def chunk_path(stream_id: int, segment: SegmentId, start: int, end: int) -> str:
    """Return the path, relative to the folder, of the file that holds [start, end)."""
    return f"{stream_id}/{format_segment(segment)}/{start}-{end}{ARROW_SUFFIX}"


_COLUMNS: Final = "stream_id, segment, start, length, first_number, count, path, bytes, checksum"


def locate_range(tx: Tx, stream_id: int, held: HeldRange) -> list[LocatedRange]:
    """Return where the events of a range lie, in order, without a gap. Two look-ups, and a row for each chunk."""
    chunks = _overlapping(tx, stream_id, held)
    row = tx.execute(
        "SELECT start FROM extent WHERE stream_id = ? AND segment = ? ORDER BY start LIMIT 1",
        (stream_id, held.segment),
    ).fetchone()
    # The reaper frees from the front, so that what is left of the extents has no gap.
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
    """Give written files, (file, chunk), their names and their rows; one whose range has a row stays as it is.

    Unless its file was lost, as a loss of power may do: then the new one takes its place. A rename is done again
    without harm, and until the commit nobody knows of the file. Raises OSError; CorruptRecord when events lay in what
    was lost.
    """
    for part, chunk in written:
        row = tx.execute("SELECT bytes FROM chunk WHERE path = ?", (chunk.path,)).fetchone()
        if row is not None and file_size(folder / chunk.path) == row[0]:
            continue
        drop_missing(tx, [chunk])
        if part.exists():  # else an earlier run of this function renamed it
            part.replace(folder / chunk.path)
        tx.execute(f"INSERT INTO chunk ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", attrs.astuple(chunk))


def find_chunk(tx: Tx, path: str) -> ChunkFile | None:
    """Return the chunk of that file, relative to the folder. One look-up."""
    row = tx.execute(f"SELECT {_COLUMNS} FROM chunk WHERE path = ?", (path,)).fetchone()
    return None if row is None else ChunkFile(*row)


def file_size(path: Path) -> int | None:
    """Return the size of a file, bytes; None when it is not there, or cannot be looked at."""
    try:
        return path.stat().st_size
    except OSError:
        return None


def drop_missing(tx: Tx, chunks: Iterable[ChunkFile]) -> None:
    """Forget chunks whose files turned out to be missing or damaged; what they held is exported again.

    Raises CorruptRecord for one that events lie in: they are in no other place.
    """
    for chunk in chunks:
        row = tx.execute("SELECT id FROM chunk WHERE path = ?", (chunk.path,)).fetchone()
        if row is None:
            continue
        if tx.execute("SELECT 1 FROM blob WHERE chunk = ?", row).fetchone() is not None:
            raise CorruptRecord(key=f"chunk file {chunk.path}", reason="events lie in it, and it is missing")
        tx.execute("DELETE FROM chunk WHERE id = ?", row)


def next_unused(tx: Tx, after: int) -> int | None:
    """Return the id of the next chunk above `after` in which no blob lies, whether or not it is held.

    Walks rows, 0.5 us each: in a read, where that disturbs nobody.
    """
    row = tx.execute(
        "SELECT id FROM chunk WHERE id > ? AND NOT EXISTS (SELECT 1 FROM blob WHERE blob.chunk = chunk.id)"
        " ORDER BY id LIMIT 1",
        (after,),
    ).fetchone()
    return None if row is None else int(row[0])


def drop_unused(tx: Tx, after: int) -> tuple[int | None, list[str]]:
    """Drop the rows of chunks that nothing needs, among the next STEP_CHUNKS_MAX with ids above `after`.

    Needed is a chunk in which a blob lies, or that overlaps what is held.
    Returns the id to go on after, None at the end, and the paths of their files, to be put aside once this is durable.
    """
    rows = tx.execute(
        "SELECT id, stream_id, segment, start, length, path,"
        " EXISTS (SELECT 1 FROM blob WHERE blob.chunk = chunk.id) FROM chunk WHERE id > ? ORDER BY id LIMIT ?",
        (after, STEP_CHUNKS_MAX),
    ).fetchall()
    held: dict[int, list[HeldRange]] = {}
    paths: list[str] = []
    for number, stream_id, segment, start, length, path, lived_in in rows:
        if stream_id not in held:
            held[stream_id] = held_ranges(tx, stream_id)
        if not lived_in and not any(
            each.segment == segment and each.start < start + length and start < each.end
            for each in held[stream_id]
        ):
            tx.execute("DELETE FROM chunk WHERE id = ?", (number,))
            paths.append(path)
    return rows[-1][0] if len(rows) == STEP_CHUNKS_MAX else None, paths


def put_aside(tx: Tx, folder: Path, paths: Iterable[str]) -> list[Path]:
    """Take the names of files that no row names, so that they can be unlinked; return the files' new ones.

    In a write transaction: no file can be given a row meanwhile. A file that is not there is fine.
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
