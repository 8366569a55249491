"""Offloading: moves old events out of the database into chunk files.

`next_cold_run` chooses what to move, `export` writes it to files under a hold, and `move_step` replaces the extents.
`cold_events` tells a policy whether that is worth it.
Reasons: docs/design/cold-tier.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import attrs

from eventproc.store.chunks.index import BATCH_BYTES, BATCH_EVENTS_MAX
from eventproc.store.database import Tx
from eventproc.store.model.ids import SegmentId
from eventproc.store.segments.extents import EXTENTS_A_QUERY, INSERT_EXTENT
from eventproc.store.segments.file_blobs import FILE_BLOB_FORMAT, insert_file_blob
from eventproc.store.segments.holds import HeldRange
from eventproc.store.segments.reaper import free_unreferenced_blobs


@attrs.frozen
class OffloadLimits:
    """How much is moved at a time.

    run_bytes_min: bytes of events that are worth a file; shorter runs stay in the database.
    run_bytes_max: bytes of events that are exported together, give or take one extent.
    extents_max: extents that are exported together, unless they are not worth a file yet, and that one transaction
    moves. The rows of 1,000 small ones are deleted in a few milliseconds.
    step_bytes: bytes of events that one transaction moves, give or take one extent.
    step_blobs_max: blobs that one transaction may free. One of 1 MiB takes a few milliseconds under the write lock.
    batch_bytes, batch_events_max: size of a record batch.
    """

    run_bytes_min: int = 256 * 2**10
    run_bytes_max: int = 64 * 2**20
    extents_max: int = 1000
    step_bytes: int = 4 * 2**20
    step_blobs_max: int = 2
    batch_bytes: int = BATCH_BYTES
    batch_events_max: int = BATCH_EVENTS_MAX


DEFAULT_LIMITS: Final = OffloadLimits()

LOOK_EXTENTS: Final = 10_000
"""Extents of a segment that one look of a policy passes, give or take a run. Higher: longer reads, 4 ms for each 1,000
in files; lower: a new owner takes more looks to pass what was moved before."""


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
    for run in _cold_runs(tx, stream_id, segment, offset, until_ms, limits):
        if run.bytes >= limits.run_bytes_min:
            return HeldRange(segment, run.start, run.end)
    return None


@attrs.frozen
class ColdEvents:
    """What an offload can move out of a segment, as far as a look went.

    bytes: of the runs that are worth a file. first_time: when the first event of them was appended.
    is_full: whether they fill a file, or there may be more of them where the look ended.
    passed: offset before which nothing will be worth a file.
    """

    bytes: int
    first_time: int
    is_full: bool
    passed: int


def cold_events(tx: Tx, stream_id: int, segment: SegmentId, offset: int, until_ms: int) -> ColdEvents:
    """Return what `next_cold_run` finds at or after `offset`, up to enough for a file.

    Cost: reads `LOOK_EXTENTS` index rows at most, give or take a run. Go on at `passed` in the next look.
    """
    limits = DEFAULT_LIMITS
    size_bytes, first_time, passed, extents = 0, 0, offset, 0
    for run in _cold_runs(tx, stream_id, segment, offset, until_ms, limits):
        if not size_bytes:
            first_time, passed = run.first_time, run.start
        if size_bytes >= limits.run_bytes_max or extents >= LOOK_EXTENTS:
            break
        extents += max(run.extents, 1)
        if run.bytes >= limits.run_bytes_min:
            size_bytes += run.bytes
    is_full = size_bytes >= limits.run_bytes_max or (size_bytes > 0 and extents >= LOOK_EXTENTS)
    return ColdEvents(size_bytes, first_time, is_full, passed)


@attrs.frozen
class _ColdRun:
    """Consecutive old extents in the database: bytes [start, end) of a segment. There may be none of them.

    first_time: when the first event was appended.
    """

    start: int
    end: int
    extents: int
    first_time: int

    @property
    def bytes(self) -> int:
        return self.end - self.start


def _cold_runs(
    tx: Tx, stream_id: int, segment: SegmentId, offset: int, until_ms: int, limits: OffloadLimits
) -> Iterator[_ColdRun]:
    """Yield the runs of old extents at or after `offset`, with those that are not worth a file.

    Every extent in a file ends a run, also one without extents.
    """
    start = end = offset
    extents = run_time = 0
    for at, length, first_time, last_time, form in _rows(tx, stream_id, segment, offset):
        if last_time > until_ms:
            break
        in_file = form == FILE_BLOB_FORMAT
        is_long = extents >= limits.extents_max and end - start >= limits.run_bytes_min
        if in_file or is_long or end - start >= limits.run_bytes_max:
            yield _ColdRun(start, end, extents, run_time)
            extents = 0
        end = at + length
        if in_file:
            start = end
        elif extents:
            extents += 1
        else:
            start, extents, run_time = at, 1, first_time
    yield _ColdRun(start, end, extents, run_time)


def _rows(
    tx: Tx, stream_id: int, segment: SegmentId, offset: int
) -> Iterator[tuple[int, int, int, int, int | None]]:
    """Yield the extents from `offset` on, some at a time: a server sends all rows that a statement finds."""
    while rows := tx.execute(
        "SELECT start, length, first_time, last_time, (SELECT format FROM blob WHERE id = place) FROM extent"
        " WHERE stream_id = ? AND segment = ? AND start >= ? ORDER BY start LIMIT ?",
        (stream_id, segment, offset, EXTENTS_A_QUERY),
    ).fetchall():
        yield from rows
        offset = rows[-1][0] + 1


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
    Cost: the rows of `limits.extents_max` extents at most, and freeing `limits.step_blobs_max` blobs.
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
        " WHERE stream_id = ? AND segment = ? AND start >= ? AND start + length <= ? ORDER BY start LIMIT ?",
        (stream_id, segment, start, end, limits.extents_max),  # a server sends all that a statement finds
    )
    run: list[_MovedExtent] = []
    places: set[int | None] = set()
    try:
        for row in cursor:
            each = _MovedExtent(*row)
            places.add(each.place)
            full = len(places) > limits.step_blobs_max or (
                bool(run) and run[-1].end - start >= limits.step_bytes
            )
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
