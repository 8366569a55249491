"""Freeing what nobody can read any more, and joining runs of tiny extents.

Each function is one bounded step, a transaction of its own; a reaper that dies between two of them left
a state from which any other goes on, because what is left to do is written in the table `reap`. A blob
is freed in the transaction that proves that no extent, and nothing that is staged, refers to it.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile
from typing import Final

from eventproc.store.database import SharedSlot, Tx
from eventproc.store.model.ids import SegmentId
from eventproc.store.segments.append import INSERT_EXTENT, flush_appends, insert_blob
from eventproc.store.segments.holds import held_from, postpone_reaping
from eventproc.store.segments.read import Extent, concatenate_inline, read_extents, segment_state
from eventproc.store.segments.tiny import JOIN_EXTENTS_MAX

STEP_EXTENTS_MAX: Final = 256
"""Extents freed or joined in one step: a few milliseconds under the write lock."""

STEP_SEGMENTS_MAX: Final = 64
"""Segments looked at in one step: a truncation after many scales passes many, each with little in it."""

STEP_BLOBS_MAX: Final = 8
"""Blobs, of at most one group commit each, freed in one step; the freed pages are written to the WAL."""

JOIN_EXTENTS_MIN: Final = 32
"""Inline extents in a row that are worth joining: fewer save little and rewrite the same bytes often."""

VACUUM_PAGES: Final = 64
"""Free pages given back to the file system at the end of a step: each is a page to move, and one for the WAL."""

WRITER_MEMORY_MS: Final = 7 * 24 * 3600 * 1000
"""How long the last sequence of a silent writer is remembered. A retry that comes later is appended
again; longer keeps a row for every writer that ever was."""

WRITERS_A_STEP: Final = 1000
"""Writers looked at in one step of forgetting: about a millisecond under the write lock, each half minute."""


def free_step(tx: Tx, stream_id: int, *, deleted: bool) -> bool:
    """Free some bytes of the stream that nobody can read. Return whether none are left.

    What is held stays; when nothing else is left, the stream's turn comes again later.
    """
    tx.flush_pending()
    finished = _free_deleted(tx, stream_id) if deleted else _free_truncated(tx, stream_id)
    vacuum_step(tx)
    return finished


def vacuum_step(tx: Tx) -> bool:
    """Give some free pages back to the file system; return whether there are more. About 20 us a page."""
    free = int(tx.execute("PRAGMA freelist_count").fetchone()[0])
    for _ in range(min(free, VACUUM_PAGES)):
        # A page at a time: the driver steps a statement without columns once, whatever number it is given.
        tx.execute("PRAGMA incremental_vacuum(1)")
    return free > VACUUM_PAGES


def forget_writers(tx: Tx) -> None:
    """Drop the sequences of writers that have been silent for WRITER_MEMORY_MS, among the next few.

    Each call looks at WRITERS_A_STEP, going round: an index by time would cost every named append a b-tree.
    """
    turn = tx.shared[_WRITER_SWEEP_POSITION]
    rows = tx.execute(
        "SELECT stream_id, writer, at_ms FROM writer WHERE (stream_id, writer) > (?, ?)"
        " ORDER BY stream_id, writer LIMIT ?",
        (*turn.after, WRITERS_A_STEP),
    ).fetchall()
    silent_since = tx.now_ms - WRITER_MEMORY_MS
    tx.executemany(
        "DELETE FROM writer WHERE stream_id = ? AND writer = ?",
        [(stream_id, writer) for stream_id, writer, at_ms in rows if at_ms < silent_since],
    )
    last = rows[-1][:2] if len(rows) == WRITERS_A_STEP else _WriterTurn.FIRST
    tx.after(lambda: turn.go_on(last))


class _WriterTurn:
    """After which writer the next look at old ones begins; lost with the process, which then begins anew."""

    FIRST: Final = (-1, "")

    def __init__(self) -> None:
        self.after: tuple[int, str] = self.FIRST

    def go_on(self, after: tuple[int, str]) -> None:
        self.after = after


_WRITER_SWEEP_POSITION: Final = SharedSlot(_WriterTurn)


def join_step(tx: Tx, stream_id: int, segment: SegmentId, offset: int) -> int | None:
    """Join the run of inline extents at `offset` into one blob, if it is long enough.

    Returns the offset to look at next, or None when the rest of the segment is not worth it yet.
    Readers never notice: an offset finds its bytes wherever they lie.
    """
    flush_appends(tx, stream_id)
    found = read_extents(tx, stream_id, segment, offset, limit=STEP_EXTENTS_MAX)
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


def join_tail(tx: Tx, stream_id: int, segment: SegmentId) -> None:
    """Join the inline extents at the end of a segment when they are INLINE_EXTENT_COUNTER_MAX in a row.

    For callers that commit from a new process each time, where `InlineExtentCounter` never counts far enough. Reads one
    row per extent, up to the first that is not inline.
    """
    flush_appends(tx, stream_id)
    cursor = tx.execute(
        "SELECT start, place FROM extent WHERE stream_id = ? AND segment = ? ORDER BY start DESC LIMIT ?",
        (stream_id, segment, JOIN_EXTENTS_MAX),
    )
    run = [start for start, _ in takewhile(lambda row: row[1] is None, cursor)]
    cursor.close()
    if len(run) == JOIN_EXTENTS_MAX:
        join_step(tx, stream_id, segment, run[-1])


def _free_truncated(tx: Tx, stream_id: int) -> bool:
    held = held_from(tx, stream_id)
    segments = tx.execute(
        "SELECT segment, head, freed FROM segment INDEXED BY segment_to_free WHERE stream_id = ? AND freed < head"
        " ORDER BY segment LIMIT ?",
        (stream_id, STEP_SEGMENTS_MAX + len(held)),
    ).fetchall()
    places: set[int] = set()
    extents_left = STEP_EXTENTS_MAX
    waiting = bool(segments)
    for segment, head, freed in segments:
        bound = min(head, held.get(segment, head))
        if bound <= freed:
            continue
        waiting = False
        rows = tx.execute(
            "SELECT segment, start, place FROM extent WHERE stream_id = ? AND segment = ? AND start < ?"
            " AND start + length <= ? ORDER BY start LIMIT ?",
            (stream_id, segment, bound, bound, extents_left + 1),
        ).fetchall()
        if rows:
            _keep_tail(tx, stream_id, segment)
        count = _free_extents(tx, stream_id, rows[:extents_left], places)
        if count < len(rows):
            break
        extents_left -= count
        tx.execute(
            "UPDATE segment SET freed = ? WHERE stream_id = ? AND segment = ?", (bound, stream_id, segment)
        )
    free_unreferenced_blobs(tx, places)
    if waiting:
        postpone_reaping(tx, stream_id)
    return not segments


def _free_deleted(tx: Tx, stream_id: int) -> bool:
    rows = tx.execute(
        "SELECT segment, start, place FROM extent WHERE stream_id = ? LIMIT ?", (stream_id, STEP_EXTENTS_MAX)
    ).fetchall()
    if rows:
        places: set[int] = set()
        _free_extents(tx, stream_id, rows, places)
        free_unreferenced_blobs(tx, places)
        return False
    # Only of the system's own: a group of a user keeps its rows, as it says that its stream was deleted.
    tx.execute(
        r"DELETE FROM group_segment WHERE stream_id = ? AND group_name LIKE '\_%' ESCAPE '\'", (stream_id,)
    )
    tx.execute("DELETE FROM sink WHERE stream_id = ?", (stream_id,))
    writers = tx.execute(
        "DELETE FROM writer WHERE (stream_id, writer) IN"
        " (SELECT stream_id, writer FROM writer WHERE stream_id = ? LIMIT ?)",
        (stream_id, WRITERS_A_STEP),
    )
    return writers.rowcount < WRITERS_A_STEP


def _keep_tail(tx: Tx, stream_id: int, segment: SegmentId) -> None:
    """Write down where the segment ends, before its last extent may go."""
    state = segment_state(tx, stream_id, segment)
    assert state is not None, f"segment {segment} of stream {stream_id} is not there"
    tx.execute(
        """
        UPDATE segment SET base_offset = ?, base_number = ?, base_time = coalesce(
            (SELECT last_time FROM extent WHERE stream_id = ? AND segment = ? ORDER BY start DESC LIMIT 1), base_time)
        WHERE stream_id = ? AND segment = ?
        """,
        (state.tail, state.tail_number, stream_id, segment, stream_id, segment),
    )


def _free_extents(
    tx: Tx, stream_id: int, rows: Iterable[tuple[SegmentId, int, int | None]], places: set[int]
) -> int:
    """Delete extents (segment, start, place), as long as `places`, to which theirs are added, are few enough.

    Returns how many were deleted.
    """
    freed = 0
    for segment, start, place in rows:
        if place is not None and place not in places:
            if len(places) == STEP_BLOBS_MAX:
                break
            places.add(place)
        tx.execute(
            "DELETE FROM extent WHERE stream_id = ? AND segment = ? AND start = ?",
            (stream_id, segment, start),
        )
        freed += 1
    return freed


def free_unreferenced_blobs(tx: Tx, places: Iterable[int]) -> None:
    """Delete those blobs that nothing refers to any more: no extent, no staged row."""
    for place in places:
        tx.execute(
            "DELETE FROM blob WHERE id = ? AND NOT EXISTS (SELECT 1 FROM extent WHERE place = ?)"
            " AND NOT EXISTS (SELECT 1 FROM staged WHERE place = ?)",
            (place, place, place),
        )


def _replace_by_blob(tx: Tx, stream_id: int, segment: SegmentId, run: list[Extent]) -> None:
    columns, times = concatenate_inline(run)
    first, last = run[0], run[-1]
    tx.execute(
        "DELETE FROM extent WHERE stream_id = ? AND segment = ? AND start BETWEEN ? AND ?",
        (stream_id, segment, first.start, last.start),
    )
    where = (stream_id, segment, first.start, last.end - first.start, first.first_number, len(times))
    tx.execute(INSERT_EXTENT, (*where, times[0], times[-1], insert_blob(tx, stream_id, columns), 0, None))
