"""Old events out of the database into chunk files: what to move next, and the moment in which it is moved.

Between the two the run is exported (`export`), under a hold. Why it is made so: docs/design/cold-tier.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import attrs

from eventproc.store.database import Tx
from eventproc.store.model.ids import SegmentId
from eventproc.store.segments.extents import INSERT_EXTENT
from eventproc.store.segments.file_blobs import FILE_BLOB_FORMAT, insert_file_blob
from eventproc.store.segments.holds import HeldRange
from eventproc.store.segments.reaper import free_unreferenced_blobs, vacuum_step

RUN_BYTES_MIN: Final = 256 * 2**10
"""Bytes of events for which a file pays: fewer stay in the database."""

RUN_BYTES_MAX: Final = 64 * 2**20
"""Bytes of events that are exported together, give or take one extent."""

RUN_EXTENTS_MAX: Final = 1000
"""Extents that are exported together: if they are small, their rows go in one transaction, a few milliseconds."""

STEP_BYTES: Final = 4 * 2**20
"""Bytes of events moved in one transaction, give or take an extent."""

STEP_BLOBS_MAX: Final = 2
"""Blobs that may become free in one transaction: a MiB each takes a few milliseconds, under the write lock."""


@attrs.frozen
class ChunkBatch:
    """A record batch of a chunk file: events [start, end) of a segment, from event `first_number` on.

    places: where its buffers lie, packed. first_time, last_time: when they were appended.
    """

    start: int
    end: int
    first_number: int
    count: int
    first_time: int
    last_time: int
    places: bytes


def next_cold_run(tx: Tx, stream_id: int, segment: SegmentId, offset: int, until_ms: int) -> HeldRange | None:
    """Return the next run of extents at or behind `offset`, appended by then, that is worth a file of its own.

    Walks index rows; a look-up for each that has a blob.
    """
    run: list[tuple[int, int]] = []
    for start, length, last_time, form in _rows(tx, stream_id, segment, offset):
        cold = last_time <= until_ms and form != FILE_BLOB_FORMAT
        full = len(run) == RUN_EXTENTS_MAX or (run and run[-1][1] - run[0][0] >= RUN_BYTES_MAX)
        if run and (not cold or full):
            if run[-1][1] - run[0][0] >= RUN_BYTES_MIN:
                break
            run = []
        if last_time > until_ms:
            break
        if cold:
            run.append((start, start + length))
    if not run or run[-1][1] - run[0][0] < RUN_BYTES_MIN:
        return None
    return HeldRange(segment, run[0][0], run[-1][1])


def _rows(
    tx: Tx, stream_id: int, segment: SegmentId, offset: int
) -> Iterator[tuple[int, int, int, int | None]]:
    cursor = tx.execute(
        "SELECT start, length, last_time, (SELECT format FROM blob WHERE id = place) FROM extent"
        " WHERE stream_id = ? AND segment = ? AND start >= ? ORDER BY start",
        (stream_id, segment, offset),
    )
    try:
        yield from cursor
    finally:
        cursor.close()


def move_step(
    tx: Tx, stream_id: int, segment: SegmentId, path: str, moved: Sequence[ChunkBatch], start: int
) -> int | None:
    """Let the next events of a chunk, from `start` on, be where its record batches are; return where they end.

    None when that cannot be: no extent begins there any more, or the chunk has gone, or the stream. Cost: some extents'
    rows, and freeing STEP_BLOBS_MAX blobs.
    """
    chunk = tx.execute("SELECT id FROM chunk WHERE path = ?", (path,)).fetchone()
    run = _next_extents(tx, stream_id, segment, start, moved[-1].end)
    if chunk is None or not run:
        return None
    end = run[-1].end
    tx.execute(
        "DELETE FROM extent WHERE stream_id = ? AND segment = ? AND start >= ? AND start < ?",
        (stream_id, segment, start, end),
    )
    for each in moved:
        if each.start < end and each.end > start:
            blob, at = _blob(tx, stream_id, int(chunk[0]), each), max(start - each.start, 0)
            tx.execute(INSERT_EXTENT, (stream_id, segment, *_overlap(each, run), blob, at, None))
    free_unreferenced_blobs(tx, {each.place for each in run if each.place is not None})
    vacuum_step(tx)
    return end


@attrs.frozen
class _MovedExtent:
    """An extent that is moved."""

    start: int
    end: int
    first_number: int
    count: int
    first_time: int
    last_time: int
    place: int | None


def _next_extents(tx: Tx, stream_id: int, segment: SegmentId, start: int, end: int) -> list[_MovedExtent]:
    """Return the extents to move in one step: from the one that begins at `start` on, none beyond `end`."""
    cursor = tx.execute(
        "SELECT start, start + length, first_number, count, first_time, last_time, place FROM extent"
        " WHERE stream_id = ? AND segment = ? AND start >= ? AND start + length <= ? ORDER BY start",
        (stream_id, segment, start, end),
    )
    run: list[_MovedExtent] = []
    places: set[int | None] = set()
    try:
        for row in cursor:
            each = _MovedExtent(*row)
            places.add(each.place)
            full = len(places) > STEP_BLOBS_MAX or (run and run[-1].end - start >= STEP_BYTES)
            if full or each.start != (run[-1].end if run else start):
                break
            run.append(each)
    finally:
        cursor.close()
    return run


def _overlap(batch: ChunkBatch, run: Sequence[_MovedExtent]) -> tuple[int, int, int, int, int, int]:
    """Return what of a record batch the extents cover: start, length, first number, count, first and last time."""
    first, last = run[0], run[-1]
    start, number, first_time = max(
        (batch.start, batch.first_number, batch.first_time),
        (first.start, first.first_number, first.first_time),
    )
    end, following, last_time = min(
        (batch.end, batch.first_number + batch.count, batch.last_time),
        (last.end, last.first_number + last.count, last.last_time),
    )
    return start, end - start, number, following - number, first_time, last_time


def _blob(tx: Tx, stream_id: int, chunk: int, batch: ChunkBatch) -> int:
    """Return the blob of a record batch, made when an earlier step did not."""
    row = tx.execute("SELECT id FROM blob WHERE chunk = ? AND data = ?", (chunk, batch.places)).fetchone()
    if row is not None:
        return int(row[0])
    return insert_file_blob(tx, stream_id, chunk, batch.places)
