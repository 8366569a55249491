"""The reaper: freeing bytes that can no longer be read.

Each function is one bounded step in a transaction of its own. What is left to do is written in the table `reap`, so
that any other reaper can go on after one died between two steps. A blob is freed in the transaction that proves that no
extent and no staged row refers to it.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final, Generic, TypeVar

import attrs

from eventproc.store.database import SharedSlot, Tx, find_number
from eventproc.store.model.ids import SegmentId
from eventproc.store.segments.event_storage import STORAGE_BLOB_FORMAT, STREAM_STORAGES
from eventproc.store.segments.holds import held_from, postpone_reaping
from eventproc.store.segments.state import known_state

STEP_EXTENTS_MAX: Final = 256
"""Extents that one step frees or joins: a few milliseconds under the write lock."""

STEP_SEGMENTS_MAX: Final = 64
"""Segments of one step: a truncation after many scales passes many small segments."""

STEP_BLOBS_MAX: Final = 8
"""Blobs that one step frees; a blob has at most one group commit. The freed pages are written to the WAL."""

WRITER_MEMORY_MS: Final = 7 * 24 * 3600 * 1000
"""How long the last sequence of a silent writer is kept. A retry that comes later is appended again. Longer keeps more
rows of writers that no longer exist."""

WRITERS_A_STEP: Final = 1000
"""Writers that one step of forgetting reads: about a millisecond under the write lock, every 30 s."""

IDS_A_STEP: Final = 1_000
"""Ids that one step of the sweep forgets: some milliseconds under the write lock."""


def free_step(tx: Tx, stream_id: int, *, deleted: bool) -> bool:
    """Free some unreadable bytes of the stream; return whether none are left.

    Held bytes stay. If all that is left is held, the stream is looked at again after some time.
    """
    tx.flush_pending()
    return _free_deleted(tx, stream_id) if deleted else _free_truncated(tx, stream_id)


@attrs.frozen
class Reaping:
    """A stream with bytes that can be freed. deleted: whether the stream is deleted, or truncated only."""

    stream_id: int
    deleted: bool
    name: str


def find_due_reaping(tx: Tx) -> Reaping | None:
    """Return the first stream whose bytes may be freed now, None if there is none."""
    row = tx.execute(
        "SELECT stream_id, deleted, name FROM reap WHERE not_before_ms <= ? ORDER BY stream_id LIMIT 1",
        (tx.now_ms,),
    ).fetchone()
    return None if row is None else Reaping(row[0], bool(row[1]), row[2])


def count_reapings(tx: Tx) -> int:
    """Return how many streams have bytes to be freed, also those that are not due yet."""
    return find_number(tx, "SELECT count(*) FROM reap") or 0


def finish_reaping(tx: Tx, reaping: Reaping) -> None:
    """Forget a stream whose bytes are freed. If it was deleted meanwhile, it stays listed."""
    tx.execute(
        "DELETE FROM reap WHERE stream_id = ? AND deleted = ?", (reaping.stream_id, int(reaping.deleted))
    )


K = TypeVar("K")


class ScanCursor(Generic[K]):
    """The key after which the next step of a bounded, repeating scan goes on.

    It is in memory: another process starts from the first key again.
    """

    def __init__(self, first: K) -> None:
        self._first = first
        self.after = first

    def advance(self, after: K) -> None:
        """Let the next step begin after this key."""
        self.after = after

    def restart(self) -> None:
        """Let the next step begin with the first key."""
        self.after = self._first


_WRITER_SCAN: Final = SharedSlot(lambda: ScanCursor((-1, "")))
"""The last (stream id, writer) that `forget_writers` looked at."""


def forget_writers(tx: Tx, *, writers_max: int = WRITERS_A_STEP) -> None:
    """Drop the sequences of writers that have been silent for WRITER_MEMORY_MS, among the next `writers_max`.

    Calls go round-robin over all writers. An index by time would cost every append of a named writer a b-tree.
    """
    scan = tx.shared[_WRITER_SCAN]
    rows = tx.execute(
        "SELECT stream_id, writer, at_ms FROM writer WHERE (stream_id, writer) > (?, ?)"
        " ORDER BY stream_id, writer LIMIT ?",
        (*scan.after, writers_max),
    ).fetchall()
    silent_since = tx.now_ms - WRITER_MEMORY_MS
    tx.executemany(
        "DELETE FROM writer WHERE stream_id = ? AND writer = ?",
        [(stream_id, writer) for stream_id, writer, at_ms in rows if at_ms < silent_since],
    )
    if len(rows) == writers_max:
        stream_id, writer, _ = rows[-1]
        tx.after(partial(scan.advance, (stream_id, writer)))
    else:
        tx.after(scan.restart)


def forget_ids(tx: Tx, *, limit: int = IDS_A_STEP) -> bool:
    """Forget ids whose time is over, at most `limit`. Return whether there may be more."""
    deleted = tx.execute(
        "DELETE FROM event_id WHERE (stream_id, id) IN"
        " (SELECT stream_id, id FROM event_id WHERE until_ms <= ? ORDER BY until_ms LIMIT ?)",
        (tx.now_ms, limit),
    )
    return deleted.rowcount == limit


def _free_truncated(tx: Tx, stream_id: int) -> bool:
    held = held_from(tx, stream_id)
    segments = tx.execute(
        "SELECT segment, head, freed FROM segment WHERE stream_id BETWEEN ? AND ? AND freed < head"
        " ORDER BY stream_id, segment LIMIT ?",
        (stream_id, stream_id, STEP_SEGMENTS_MAX + len(held)),
    ).fetchall()  # a range, because SQLite would search one id by the primary key, and read all its segments
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
        "SELECT segment, start, place FROM extent WHERE stream_id = ? ORDER BY segment, start LIMIT ?",
        (stream_id, STEP_EXTENTS_MAX),
    ).fetchall()
    if rows:
        places: set[int] = set()
        _free_extents(tx, stream_id, rows, places)
        free_unreferenced_blobs(tx, places)
        return False
    # Only those of the system's groups. A user's group keeps its rows, because it reports the deleted stream.
    tx.execute(
        r"DELETE FROM group_segment WHERE stream_id = ? AND group_name LIKE '\_%' ESCAPE '\'", (stream_id,)
    )
    for table in ("sink", "prioritized_stream"):
        tx.execute(f"DELETE FROM {table} WHERE stream_id = ?", (stream_id,))
    deleted = [
        tx.execute(
            f"DELETE FROM {table} WHERE ({key}) IN (SELECT {key} FROM {table} WHERE stream_id = ? LIMIT ?)",
            (stream_id, WRITERS_A_STEP),
        ).rowcount
        for table, key in _ROWS_OF_STREAM.items()
    ]
    return max(deleted) < WRITERS_A_STEP


_ROWS_OF_STREAM: Final = {"delayed_event": "id", "writer": "stream_id, writer", "event_id": "stream_id, id"}
"""{table with any number of rows of a stream that was deleted: its key}"""


def _keep_tail(tx: Tx, stream_id: int, segment: SegmentId) -> None:
    """Store where the segment ends, before its last extent may be deleted."""
    state = known_state(tx, stream_id, segment)
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
    """Delete the first of these extents (segment, start, blob id); return how many were deleted.

    places: the blobs of this step, to which those of the deleted extents are added. It stops at STEP_BLOBS_MAX blobs.
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
    """Delete those of the blobs that no extent and no staged row refers to."""
    for place in places:
        deleted = tx.execute(
            "DELETE FROM blob WHERE id = ? AND NOT EXISTS (SELECT 1 FROM extent WHERE place = ?)"
            " AND NOT EXISTS (SELECT 1 FROM staged WHERE place = ?)"
            " RETURNING stream_id, CASE WHEN format = ? THEN data END",
            (place, place, place, STORAGE_BLOB_FORMAT),
        ).fetchone()
        if deleted is not None and deleted[1] is not None:
            tx.shared[STREAM_STORAGES].free_after(tx, *deleted)
