"""Holds: ranges of a stream that are read outside the database, kept readable until a deadline.

A truncation moves the head past a held range as usual. The reaper frees nothing at or behind the first held byte of a
segment, and the sweep keeps the chunk files that overlap a held range. Reasons: docs/design/chunk-files.md.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Final

import attrs

from eventproc.store.database import Tx, upsert
from eventproc.store.model.ids import SegmentId

HOLD_MS: Final = 3_600_000
"""How long a hold lasts unless renewed, in wall ms. Longer keeps bytes for queries that died. Shorter gives a driver
less time to come back, and a job that cannot renew less time to finish."""

RENEW_MS: Final = HOLD_MS // 3
"""Pause between two renewals, so that two may fail."""

NO_STREAM: Final = -1
"""Instead of a stream's id: the hold keeps the chunk files of all streams."""

LOOK_AGAIN_MS: Final = 30_000
"""Pause before the reaper looks again at a stream whose unreadable bytes are all held. Deadlines may move both ways."""


@attrs.frozen
class HeldRange:
    """Events in bytes [start, end) of a segment, both event boundaries."""

    segment: SegmentId
    start: int
    end: int


HeldRanges = Sequence[Sequence[HeldRange]]
"""Ranges that are held together, in lists; the ranges of one list are read in order."""


def place_hold(tx: Tx, stream_id: int, name: str, *, plan: str, ranges: HeldRanges, until_ms: int) -> None:
    """Hold the ranges under `name` until `until_ms`; they replace the ranges that the name held before. One row."""
    rows = [[[each.segment, each.start, each.end] for each in group] for group in ranges]
    tx.execute(
        upsert("hold", "stream_id, name", "plan, ranges, until_ms"),
        (stream_id, name, plan, json.dumps(rows), until_ms),
    )


def find_held_plan(tx: Tx, stream_id: int, plan: str) -> list[list[HeldRange]] | None:
    """Return the ranges that any hold has for `plan`, None if there is no such hold any more."""
    row = tx.execute(
        "SELECT ranges FROM hold WHERE stream_id = ? AND plan = ? LIMIT 1", (stream_id, plan)
    ).fetchone()
    return None if row is None else _ranges(row[0])


def renew_holds(tx: Tx, holds: Iterable[tuple[int, str]], *, until_ms: int) -> None:
    """Move the deadlines of those of the holds, (stream id, name), that still exist."""
    tx.executemany(
        "UPDATE hold SET until_ms = ? WHERE stream_id = ? AND name = ?",
        [(until_ms, stream_id, name) for stream_id, name in holds],
    )


def end_holds(tx: Tx, holds: Iterable[tuple[int, str]]) -> None:
    """End holds, (stream id, name), and let the reaper look at their streams. Missing holds are ignored."""
    for stream_id, name in holds:
        done = tx.execute("DELETE FROM hold WHERE stream_id = ? AND name = ?", (stream_id, name))
        if done.rowcount:
            tx.execute("UPDATE reap SET not_before_ms = 0 WHERE stream_id = ?", (stream_id,))
            tx.wake("reap")


def hold_directory(tx: Tx, name: str, *, until_ms: int) -> None:
    """Keep every chunk file that has a row until `until_ms`, under `name`. One row."""
    place_hold(tx, NO_STREAM, name, plan=name, ranges=[], until_ms=until_ms)


def renew_directory(tx: Tx, name: str, *, until_ms: int) -> None:
    """Move the deadline of `hold_directory`, if the hold still exists."""
    renew_holds(tx, [(NO_STREAM, name)], until_ms=until_ms)


def end_directory_hold(tx: Tx, name: str) -> None:
    """End the hold of `hold_directory`. A missing one is ignored."""
    end_holds(tx, [(NO_STREAM, name)])


def is_directory_held(tx: Tx) -> bool:
    """Return whether a backup needs the chunk files. One look-up."""
    row = tx.execute(
        "SELECT EXISTS (SELECT 1 FROM hold WHERE stream_id = ? AND until_ms > ?)", (NO_STREAM, tx.now_ms)
    ).fetchone()
    return bool(row[0])


def held_ranges(tx: Tx, stream_id: int) -> list[HeldRange]:
    """Return the ranges of the stream's live holds. One query, one row per hold."""
    rows = tx.execute(
        "SELECT ranges FROM hold WHERE stream_id = ? AND until_ms > ?", (stream_id, tx.now_ms)
    ).fetchall()
    return [each for (text,) in rows for group in _ranges(text) for each in group]


def held_from(tx: Tx, stream_id: int) -> dict[SegmentId, int]:
    """Return the first held byte of each segment that a live hold of the stream covers."""
    first: dict[SegmentId, int] = {}
    for each in held_ranges(tx, stream_id):
        first[each.segment] = min(each.start, first.get(each.segment, each.start))
    return first


def held_by_name(tx: Tx, name: str) -> dict[tuple[int, SegmentId], int]:
    """Return the first byte of each segment, (stream id, segment), that the live holds of that name cover.

    Scans the table, as `forget_expired_holds` does.
    """
    rows = tx.execute(
        "SELECT stream_id, ranges FROM hold WHERE name = ? AND until_ms > ?", (name, tx.now_ms)
    ).fetchall()
    return {
        (stream_id, each.segment): each.start
        for stream_id, text in rows
        for group in _ranges(text)
        for each in group
    }


def postpone_reaping(tx: Tx, stream_id: int) -> None:
    """Keep the reaper from the stream for LOOK_AGAIN_MS, because all its unreadable bytes are held."""
    tx.execute(
        "UPDATE reap SET not_before_ms = ? WHERE stream_id = ?", (tx.now_ms + LOOK_AGAIN_MS, stream_id)
    )


def has_expired_holds(tx: Tx) -> bool:
    """Return whether there are holds past their deadline. Scans the table, as `forget_expired_holds` does."""
    row = tx.execute("SELECT EXISTS (SELECT 1 FROM hold WHERE until_ms <= ?)", (tx.now_ms,)).fetchone()
    return bool(row[0])


def forget_expired_holds(tx: Tx) -> None:
    """Drop the holds past their deadline. Scans the table, which has about two holds per running query."""
    tx.execute("DELETE FROM hold WHERE until_ms <= ?", (tx.now_ms,))


def _ranges(text: str) -> list[list[HeldRange]]:
    return [
        [HeldRange(SegmentId(segment), start, end) for segment, start, end in group]
        for group in json.loads(text)
    ]
