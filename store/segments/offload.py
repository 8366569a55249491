"""Old events out of the database into chunk files: what to move next, and the moment in which it is moved.

Between the two the run is exported (`export`), under a hold. Why it is made so: docs/design/cold-tier.md.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from itertools import pairwise
from typing import Final

import attrs

from eventproc.store.database import Tx
from eventproc.store.model.ids import SegmentId
from eventproc.store.segments.append import INSERT_EXTENT
from eventproc.store.segments.holds import HeldRange
from eventproc.store.segments.outside import OUTSIDE_FORMAT
from eventproc.store.segments.reaper import VACUUM_PAGES, free_blobs

RUN_BYTES_MIN: Final = 256 * 2**10
"""Bytes of events for which a file pays: fewer stay in the database."""

RUN_BYTES_MAX: Final = 64 * 2**20
"""Bytes of events that are exported together, give or take one extent."""

RUN_EXTENTS_MAX: Final = 1000
"""Extents that are exported together: their rows go in one transaction if they are small, a few milliseconds."""

STEP_BYTES: Final = 8 * 2**20
"""Bytes of events moved in one transaction, give or take a record batch: their pages go to the free list under the
write lock."""


@attrs.frozen
class Moved:
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


def next_run(tx: Tx, stream_id: int, segment: SegmentId, offset: int, until_ms: int) -> HeldRange | None:
    """Return the next run of extents at or behind `offset`, appended by then, that is worth a file of its own.

    Walks index rows; a look-up for each that has a blob.
    """
    run: list[tuple[int, int]] = []
    for start, length, last_time, form in _rows(tx, stream_id, segment, offset):
        cold = last_time <= until_ms and form != OUTSIDE_FORMAT
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


def extent_ends(tx: Tx, stream_id: int, run: HeldRange) -> set[int]:
    """Return where the extents of a run end."""
    rows = tx.execute(
        "SELECT start + length FROM extent WHERE stream_id = ? AND segment = ? AND start >= ? AND start < ?",
        (stream_id, run.segment, run.start, run.end),
    )
    return {end for (end,) in rows}


def steps(moved: Sequence[Moved], ends: Container[int]) -> Iterator[list[Moved]]:
    """Yield the record batches of a file in groups, each to be moved in one transaction, which end where extents do."""
    step: list[Moved] = []
    for each in moved:
        step.append(each)
        if each.end - step[0].start >= STEP_BYTES and each.end in ends:
            yield step
            step = []
    if step:
        yield step


def move(tx: Tx, stream_id: int, segment: SegmentId, path: str, moved: Sequence[Moved]) -> bool:
    """Let these record batches of a chunk be where their events lie; return whether that could be done.

    It cannot if extents do not begin and end where they do, or the chunk has gone, or the stream.
    """
    start, end = moved[0].start, moved[-1].end
    chunk = tx.execute("SELECT id FROM chunk WHERE path = ?", (path,)).fetchone()
    rows = tx.execute(
        "SELECT start, start + length, place FROM extent"
        " WHERE stream_id = ? AND segment = ? AND start >= ? AND start < ? ORDER BY start",
        (stream_id, segment, start, end),
    ).fetchall()
    if chunk is None or not rows or (rows[0][0], rows[-1][1]) != (start, end):
        return False
    assert all(before[1] == after[0] for before, after in pairwise(rows)), "extents have no gaps"
    tx.execute(
        "DELETE FROM extent WHERE stream_id = ? AND segment = ? AND start >= ? AND start < ?",
        (stream_id, segment, start, end),
    )
    for each in moved:
        blob = tx.execute(
            "INSERT INTO blob (stream_id, format, chunk, ends, data) VALUES (?, ?, ?, x'', ?)",
            (stream_id, OUTSIDE_FORMAT, *chunk, each.places),
        ).lastrowid
        where = (stream_id, segment, each.start, each.end - each.start, each.first_number, each.count)
        tx.execute(INSERT_EXTENT, (*where, each.first_time, each.last_time, blob, 0, None))
    free_blobs(tx, {place for _, _, place in rows if place is not None})
    tx.execute(f"PRAGMA incremental_vacuum({VACUUM_PAGES})").fetchall()
    return True
