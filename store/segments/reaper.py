"""Freeing what nobody can read any more, and joining runs of tiny extents.

Each function is one bounded step, a transaction of its own; a reaper that dies between two of them left
a state from which any other goes on, because what is left to do is written in the table `reap`. A blob
is freed in the transaction that proves that no extent refers to it.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Final

from eventproc.store.database import Tx
from eventproc.store.model.ids import SegmentId
from eventproc.store.segments.append import WriterSequence, insert_blob, remember, settle
from eventproc.store.segments.block import EventBlock, join
from eventproc.store.segments.read import Blobs, Extent, decode, extents, segment_state

STEP_EXTENTS_MAX: Final = 256
"""Extents freed or joined in one step: a few milliseconds under the write lock."""

STEP_BLOBS_MAX: Final = 8
"""Blobs, of at most one group commit each, freed in one step; the freed pages are written to the WAL."""

JOIN_EXTENTS_MIN: Final = 32
"""Inline extents in a row that are worth joining: fewer save little and rewrite the same bytes often."""

VACUUM_PAGES: Final = 256
"""Free pages given back to the file system at the end of a step."""

WRITER_MEMORY_MS: Final = 7 * 24 * 3600 * 1000
"""How long the last sequence of a silent writer is remembered. A retry that comes later is appended
again; longer keeps a row for every writer that ever was."""


def free_step(tx: Tx, stream_id: int, *, deleted: bool) -> bool:
    """Free some bytes of the stream that nobody can read. Return whether none are left."""
    tx.flush_deferred()
    finished = _free_deleted(tx, stream_id) if deleted else _free_truncated(tx, stream_id)
    tx.execute(f"PRAGMA incremental_vacuum({VACUUM_PAGES})").fetchall()
    return finished


def forget_writers(tx: Tx) -> None:
    """Drop the sequences of writers that have been silent for WRITER_MEMORY_MS."""
    tx.execute("DELETE FROM writer WHERE at_ms < ?", (tx.now_ms - WRITER_MEMORY_MS,))


def join_step(tx: Tx, stream_id: int, segment: SegmentId, offset: int) -> int | None:
    """Join the run of inline extents at `offset` into one blob, if it is long enough.

    Returns the offset to look at next, or None when the rest of the segment is not worth it yet.
    Readers never notice: an offset finds its bytes wherever they lie.
    """
    settle(tx, stream_id)
    found = extents(tx, stream_id, segment, offset, limit=STEP_EXTENTS_MAX)
    if not found:
        return None
    run: list[Extent] = []
    for extent in found:
        if extent.place is not None:
            break
        run.append(extent)
    if len(run) < JOIN_EXTENTS_MIN:
        passed = found[: len(run) + 1]
        # At the tail, what is found is the last extent, which ends where we are: nothing is left to look at.
        return passed[-1].end if len(passed) > len(run) and passed[-1].end > offset else None
    _replace_by_blob(tx, stream_id, segment, run)
    return run[-1].end


def _free_truncated(tx: Tx, stream_id: int) -> bool:
    segments = tx.execute("SELECT segment, head FROM segment WHERE stream_id = ?", (stream_id,)).fetchall()
    for segment, head in segments:
        rows = tx.execute(
            "SELECT start, place FROM extent WHERE stream_id = ? AND segment = ? AND start + length <= ?"
            " ORDER BY start LIMIT ?",
            (stream_id, segment, head, STEP_EXTENTS_MAX),
        ).fetchall()
        if rows:
            _keep_tail(tx, stream_id, segment)
            _free(tx, stream_id, [(segment, start, place) for start, place in rows])
            return False
    return True


def _free_deleted(tx: Tx, stream_id: int) -> bool:
    rows = tx.execute(
        "SELECT segment, start, place FROM extent WHERE stream_id = ? LIMIT ?", (stream_id, STEP_EXTENTS_MAX)
    ).fetchall()
    if rows:
        _free(tx, stream_id, rows)
        return False
    for table in ("writer", "group_segment"):
        tx.execute(f"DELETE FROM {table} WHERE stream_id = ?", (stream_id,))
    return True


def _keep_tail(tx: Tx, stream_id: int, segment: SegmentId) -> None:
    """Write down where the segment ends, before its last extent may go."""
    state = segment_state(tx, stream_id, segment)
    assert state is not None, f"segment {segment} of stream {stream_id} is not there"
    tx.execute(
        """
        UPDATE segment SET base_offset = ?3, base_number = ?4, base_time = coalesce(
            (SELECT last_time FROM extent WHERE stream_id = ?1 AND segment = ?2 ORDER BY start DESC LIMIT 1), base_time)
        WHERE stream_id = ?1 AND segment = ?2
        """,
        (stream_id, segment, state.tail, state.tail_number),
    )


def _free(tx: Tx, stream_id: int, rows: Iterable[tuple[SegmentId, int, int | None]]) -> None:
    """Delete extents (segment, start, place), and each blob that nothing refers to any more."""
    places: set[int] = set()
    for segment, start, place in rows:
        if place is not None and place not in places:
            if len(places) == STEP_BLOBS_MAX:
                break
            places.add(place)
        tx.execute(
            "DELETE FROM extent WHERE stream_id = ? AND segment = ? AND start = ?",
            (stream_id, segment, start),
        )
    for place in places:
        tx.execute(
            "DELETE FROM blob WHERE id = ?1 AND NOT EXISTS (SELECT 1 FROM extent WHERE place = ?1)", (place,)
        )


def _replace_by_blob(tx: Tx, stream_id: int, segment: SegmentId, run: list[Extent]) -> None:
    blobs = Blobs(tx)
    parts, times = [], array("q")
    for extent in run:
        events = decode(blobs, segment, extent)
        columns, _ = blobs.columns(extent)
        parts.append(
            EventBlock(
                events.payloads,
                events.keys,
                _positions(columns.positions),
                events.event_times,
                events.headers,
            ).encode()
        )
        times.extend(events.times or [events.time] * len(events))
    for writer, sequence in _inline_writers(tx, stream_id, segment, run):
        remember(tx, stream_id, WriterSequence(writer, sequence))
    first, last = run[0], run[-1]
    tx.execute(
        "DELETE FROM extent WHERE stream_id = ? AND segment = ? AND start BETWEEN ? AND ?",
        (stream_id, segment, first.start, last.start),
    )
    tx.execute(
        "INSERT INTO extent (stream_id, segment, start, length, first_number, count, first_time, last_time, place)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            stream_id,
            segment,
            first.start,
            last.end - first.start,
            first.first_number,
            len(times),
            times[0],
            times[-1],
            insert_blob(tx, stream_id, join(parts, times=times.tobytes())),
        ),
    )


def _inline_writers(tx: Tx, stream_id: int, segment: SegmentId, run: list[Extent]) -> list[tuple[str, int]]:
    return tx.execute(
        "SELECT writer, max(sequence) FROM extent WHERE stream_id = ? AND segment = ? AND start BETWEEN ? AND ?"
        " AND writer IS NOT NULL GROUP BY writer",
        (stream_id, segment, run[0].start, run[-1].start),
    ).fetchall()


def _positions(column: bytes | None) -> list[float] | None:
    if column is None:
        return None
    positions = array("d")
    positions.frombytes(column)
    return positions.tolist()
