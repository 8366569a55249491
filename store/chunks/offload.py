"""Offloading: moves old events out of the database into chunk files.

`next_cold_run` chooses what to move, `export` writes it to files under a hold, and `move_step` replaces the extents.
`cold_tail` tells a policy whether that is worth it.
Reasons: docs/design/cold-tier.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Final

import attrs

from eventproc.store.chunks.index import BATCH_BYTES, BATCH_EVENTS_MAX
from eventproc.store.database import Tx
from eventproc.store.model.ids import SegmentId
from eventproc.store.segments.extents import INSERT_EXTENT
from eventproc.store.segments.file_blobs import FILE_BLOB_FORMAT, insert_file_blob
from eventproc.store.segments.holds import HeldRange
from eventproc.store.segments.reaper import free_unreferenced_blobs


@attrs.frozen
class OffloadLimits:
    """How much is moved at a time.

    run_bytes_min: bytes of events that are worth a file; shorter runs stay in the database.
    run_bytes_max: bytes of events that are exported together, give or take one extent.
    run_extents_max: extents that are exported together. The rows of small ones are deleted in one transaction of a few
    milliseconds.
    step_bytes: bytes of events that one transaction moves, give or take one extent.
    step_blobs_max: blobs that one transaction may free. One of 1 MiB takes a few milliseconds under the write lock.
    batch_bytes, batch_events_max: size of a record batch.
    """

    run_bytes_min: int = 256 * 2**10
    run_bytes_max: int = 64 * 2**20
    run_extents_max: int = 1000
    step_bytes: int = 4 * 2**20
    step_blobs_max: int = 2
    batch_bytes: int = BATCH_BYTES
    batch_events_max: int = BATCH_EVENTS_MAX


DEFAULT_LIMITS: Final = OffloadLimits()


@attrs.frozen
class ChunkBatch:
    """A record batch of a chunk file: bytes [start, end) of a segment, from event `first_number` on.

    first_time, last_time: append times of the first and the last event. buffers: its packed `BufferRefs`.
    """

    start: int
    end: int
    first_number: int
    count: int
    first_time: int
    last_time: int
    buffers: bytes


def next_cold_run(
    tx: Tx,
    stream_id: int,
    segment: SegmentId,
    offset: int,
    until_ms: int,
    *,
    limits: OffloadLimits = DEFAULT_LIMITS,
) -> HeldRange | None:
    """Return the next run of extents at or after `offset` that is old enough and worth a file, None if there is none.

    until_ms: latest append time of events to move. Reads index rows, with a look-up for each that has a blob.
    """
    run: list[tuple[int, int]] = []
    for start, length, last_time, form in _rows(tx, stream_id, segment, offset):
        cold = last_time <= until_ms and form != FILE_BLOB_FORMAT
        full = len(run) == limits.run_extents_max or (run and run[-1][1] - run[0][0] >= limits.run_bytes_max)
        if run and (not cold or full):
            if run[-1][1] - run[0][0] >= limits.run_bytes_min:
                break
            run = []
        if last_time > until_ms:
            break
        if cold:
            run.append((start, start + length))
    if not run or run[-1][1] - run[0][0] < limits.run_bytes_min:
        return None
    return HeldRange(segment, run[0][0], run[-1][1])


@attrs.frozen
class ColdTail:
    """What an offload can move next: a run of extents in the database that are worth a file.

    bytes: of its events. first_time: when the first one was appended. is_full: whether there may be more before it.
    """

    bytes: int
    first_time: int
    is_full: bool


def cold_tail(
    tx: Tx, stream_id: int, segment: SegmentId, end: int, *, limits: OffloadLimits = DEFAULT_LIMITS
) -> ColdTail | None:
    """Return the run of extents in the database before offset `end`, None if it is not worth a file.

    Cost: goes backwards over at most `limits.run_extents_max` rows, up to the first one whose events lie in a file.
    """
    rows = tx.execute(
        "SELECT start, first_time, (SELECT format FROM blob WHERE id = place) FROM extent"
        " WHERE stream_id = ? AND segment = ? AND start < ? ORDER BY start DESC LIMIT ?",
        (stream_id, segment, end, limits.run_extents_max),
    ).fetchall()
    run = list(takewhile(lambda row: row[2] != FILE_BLOB_FORMAT, rows))
    size_bytes = end - run[-1][0] if run else 0
    if size_bytes < limits.run_bytes_min:
        return None
    is_full = len(run) == limits.run_extents_max or size_bytes >= limits.run_bytes_max
    return ColdTail(size_bytes, run[-1][1], is_full)


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
    tx: Tx,
    stream_id: int,
    segment: SegmentId,
    path: str,
    moved: Sequence[ChunkBatch],
    start: int,
    *,
    limits: OffloadLimits = DEFAULT_LIMITS,
) -> int | None:
    """Point the next extents, from `start` on, to the record batches of a chunk file; return where they end.

    path: of the chunk file. moved: its record batches.
    Returns None if no extent begins at `start` any more, or if the chunk file or the stream is gone.
    Cost: the rows of some extents, and freeing `limits.step_blobs_max` blobs.
    """
    chunk = tx.execute("SELECT id FROM chunk WHERE path = ?", (path,)).fetchone()
    run = _next_extents(tx, stream_id, segment, start, moved[-1].end, limits)
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
    return end


@attrs.frozen
class _MovedExtent:
    """An extent that is moved to a file."""

    start: int
    end: int
    first_number: int
    count: int
    first_time: int
    last_time: int
    place: int | None


def _next_extents(
    tx: Tx, stream_id: int, segment: SegmentId, start: int, end: int, limits: OffloadLimits
) -> list[_MovedExtent]:
    """Return the extents of one step: from the one that begins at `start`, none beyond `end`."""
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
            full = len(places) > limits.step_blobs_max or (run and run[-1].end - start >= limits.step_bytes)
            if full or each.start != (run[-1].end if run else start):
                break
            run.append(each)
    finally:
        cursor.close()
    return run


def _overlap(batch: ChunkBatch, run: Sequence[_MovedExtent]) -> tuple[int, int, int, int, int, int]:
    """Return the part of a record batch that the extents cover: start, length, first number, count, times."""
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
    """Return the id of the record batch's blob; create it unless an earlier step did."""
    row = tx.execute("SELECT id FROM blob WHERE chunk = ? AND data = ?", (chunk, batch.buffers)).fetchone()
    if row is not None:
        return int(row[0])
    return insert_file_blob(tx, stream_id, chunk, batch.buffers)
