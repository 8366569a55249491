"""The index of chunk files: which runs of events lie in a file, and how files get and lose their rows.

A file is complete before it gets a row, and loses its row before it is deleted: docs/design/files-and-objects.md. No
transaction touches a file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Final

import attrs

from eventproc.base.clock import id_ms
from eventproc.store.database import Tx
from eventproc.store.file_store import FileStore
from eventproc.store.model.errors import CorruptRecord
from eventproc.store.model.ids import SegmentId, format_segment
from eventproc.store.segments.holds import HeldRange, held_ranges, is_directory_held

SINK_FOLDER: Final = "sink"
"""Folder, within the chunks folder, of the files that tasks of Spark's sink write. Their commit inserts their rows."""

ARROW_SUFFIX: Final = ".arrow"

BATCH_EVENTS_MAX: Final = 32_768
"""Events in one record batch: Spark sends one batch at a time through its pipe and keeps it in memory."""

BATCH_BYTES: Final = 4 * 2**20
"""Bytes of events of a record batch, give or take one extent: small extents are combined."""

UNUSED_MS: Final = 60_000
"""How long an unused file stays for readers with an older snapshot. A snapshot lasts for milliseconds, or for as long
as its process is suspended. A higher value keeps unused bytes for longer."""

ABANDONED_MS: Final = 24 * 3_600_000
"""Age at which a file of a sink without a row counts as abandoned. A Spark job may take this long to write files."""

SINK_COMMIT_MS: Final = ABANDONED_MS - 3_600_000
"""Age of its files up to which a sink may commit them. The hour is for a clock that is set back."""

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


def chunk_path(stream_id: int, segment: SegmentId, start: int, instance: str, number: int) -> str:
    """Return the path, relative to the chunks folder, of a new file of the events from `start` on.

    number: of the file within this instance. Together they make the name unique.
    """
    return f"{stream_id}/{format_segment(segment)}/{start}-{instance}-{number}{ARROW_SUFFIX}"


_COLUMNS: Final = "stream_id, segment, start, length, first_number, count, path, bytes, checksum"

_USES: Final = """
    SELECT id, stream_id, segment, start, length, path, EXISTS (SELECT 1 FROM blob WHERE blob.chunk = chunk.id)
    FROM chunk
"""


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


def register_chunks(tx: Tx, written: Iterable[ChunkFile]) -> None:
    """Insert the rows of complete files. If a range has a row already, its file stays and the new one is unused.

    A file that will be deleted gets no row: on a server this opening was taken for dead since it wrote the file.
    """
    for chunk in written:
        if is_marked_unused(tx, chunk.path):
            continue
        known = find_chunk(tx, chunk)
        if known is None:
            tx.execute(
                f"INSERT INTO chunk ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", attrs.astuple(chunk)
            )
        elif known.path != chunk.path:
            mark_unused(tx, [chunk.path])


def find_chunk(tx: Tx, like: ChunkFile) -> ChunkFile | None:
    """Return the row of the file with the same events of the same segment, None if there is none. One look-up."""
    row = tx.execute(
        f"SELECT {_COLUMNS} FROM chunk WHERE stream_id = ? AND segment = ? AND start = ? AND length = ?"
        " ORDER BY id LIMIT 1",
        (like.stream_id, like.segment, like.start, like.length),
    ).fetchone()
    return None if row is None else ChunkFile(*row)


def count_chunks(tx: Tx) -> tuple[int, int]:
    """Return the number of files, and their bytes. Reads a row for each."""
    count, size_bytes = tx.execute("SELECT count(*), coalesce(sum(bytes), 0) FROM chunk").fetchone()
    return int(count), int(size_bytes)


def find_missing(files: FileStore, chunks: Iterable[ChunkFile]) -> list[ChunkFile]:
    """Return the chunk files that do not exist, or have another size than written. One look at each."""
    return [each for each in chunks if files.size(each.path) != each.bytes]


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


def drop_unused(tx: Tx, after: int) -> int | None:
    """Drop the rows of unused chunk files among the next STEP_CHUNKS_MAX ids above `after`.

    A file is used if a blob lies in it or if it overlaps a held range. While a backup holds the directory, all are.
    Marks the files as unused. Returns the id to go on after, None at the end.
    """
    if is_directory_held(tx):
        return None
    rows = tx.execute(f"{_USES} WHERE id > ? ORDER BY id LIMIT ?", (after, STEP_CHUNKS_MAX)).fetchall()
    mark_unused(tx, _drop_rows(tx, rows))
    return rows[-1][0] if len(rows) == STEP_CHUNKS_MAX else None


def drop_exports(tx: Tx, stream_id: int, segment: SegmentId, start: int, end: int) -> None:
    """Drop the rows of exported files with events of [start, end), which they have as they were before a compaction.

    Those that overlap a held range stay. While a backup holds the directory, the files stay until their instance ends.
    """
    overlaps = "stream_id = ? AND segment = ? AND start < ? AND start + length > ?"
    rows = tx.execute(f"{_USES} WHERE {overlaps} ORDER BY id", (stream_id, segment, end, start)).fetchall()
    paths = _drop_rows(tx, rows)
    if not is_directory_held(tx):
        mark_unused(tx, paths)


def _drop_rows(tx: Tx, rows: Iterable[tuple[Any, ...]]) -> list[str]:
    """Drop those of these rows whose files are unused; return their paths."""
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
    return paths


def mark_unused(tx: Tx, paths: Iterable[str]) -> list[str]:
    """Mark files for deletion unless a row names them; return those that were marked. No row may name them again."""
    marked = [
        each for each in paths if not tx.execute("SELECT 1 FROM chunk WHERE path = ?", (each,)).fetchone()
    ]
    tx.executemany(
        "INSERT INTO unused_file (path, since_ms) VALUES (?, ?) ON CONFLICT (path) DO NOTHING",
        [(each, tx.now_ms) for each in marked],
    )
    return marked


def is_marked_unused(tx: Tx, path: str) -> bool:
    """Return whether a file will be deleted."""
    return tx.execute("SELECT 1 FROM unused_file WHERE path = ?", (path,)).fetchone() is not None


def due_files(tx: Tx, unused_ms: int = UNUSED_MS, limit: int = STEP_CHUNKS_MAX) -> list[str]:
    """Return up to `limit` files that were marked at least `unused_ms` ago, to be deleted outside of any tx."""
    rows = tx.execute(
        "SELECT path FROM unused_file WHERE since_ms <= ? ORDER BY path LIMIT ?",
        (tx.now_ms - unused_ms, limit),
    )
    return [str(path) for (path,) in rows.fetchall()]


def delete_files(files: FileStore, paths: Iterable[str]) -> tuple[list[str], OSError | None]:
    """Delete files; return those that were deleted, and the last failure. One failure does not keep the others.

    Raises Unreachable immediately: the next file would wait as long again.
    """
    deleted: list[str] = []
    failure: OSError | None = None
    for path in paths:
        try:
            files.delete(path)
            deleted.append(path)
        except OSError as why:
            failure = why
    return deleted, failure


def forget_deleted(tx: Tx, paths: Iterable[str]) -> None:
    """Forget files that were deleted. A crash before it costs a second deletion, which does nothing."""
    tx.executemany("DELETE FROM unused_file WHERE path = ?", [(each,) for each in paths])


_EXPORTED: Final = re.compile(r"[0-9]+/[^/]+/[0-9]+-([0-9a-f-]{36})-[0-9]+(?:\.arrow|\.part|\.arrow\.part)")
"""Path of an exported file, with the instance that wrote it."""

_EXPORTED_BEFORE: Final = re.compile(r"[0-9]+/[^/]+/[0-9]+-[0-9]+\.arrow(?:\.gone)?")
"""Path of a file that an earlier version exported. Such a version cannot have the directory open any more."""

_SINK: Final = re.compile(
    SINK_FOLDER + r"/.*/([0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f-]{21})\.arrow(?:\.part|\.gone)?"
)
"""Path of a file of the sink. Its id begins with the time, in ms, of the machine that wrote it."""


def is_orphan(path: str, now_ms: int, is_alive: Callable[[str], bool]) -> bool:
    """Return whether a file that no row names was left behind: nobody will name it any more.

    An instance names what it exported, so its death is the proof. The commit of a sink refuses files older than
    SINK_COMMIT_MS. Other files, which eventproc does not write, are no orphans.
    """
    if exported := _EXPORTED.fullmatch(path):
        return not is_alive(exported[1])
    if _EXPORTED_BEFORE.fullmatch(path):
        return True
    return (written_ms := sink_file_ms(path)) is not None and now_ms - written_ms > ABANDONED_MS


def sink_file_ms(path: str) -> int | None:
    """Return when a file of the sink was begun, by its name; None for another file."""
    found = _SINK.fullmatch(path)
    return None if found is None else id_ms(found[1])
