"""Numbers that only grow, each in a row of its own: ids that are never reused, and versions of what others watch."""

from __future__ import annotations

from eventproc.store.database import Tx, find_number


def count_up(tx: Tx, name: str) -> int:
    """Add 1 to the counter, which begins at 0, and return it. One row."""
    row = tx.execute(
        "INSERT INTO counter (name, value) VALUES (?, 1)"
        " ON CONFLICT (name) DO UPDATE SET value = counter.value + 1 RETURNING value",
        (name,),
    ).fetchone()
    return int(row[0])


def raise_counter(tx: Tx, name: str, value: int) -> None:
    """Let the counter be at least `value`. One row."""
    tx.execute(
        "INSERT INTO counter (name, value) VALUES (?, ?)"
        " ON CONFLICT (name) DO UPDATE SET value = excluded.value WHERE counter.value < excluded.value",
        (name, value),
    )


def counted(tx: Tx, name: str) -> int:
    """Return the counter; 0 before it was first raised. One look-up."""
    return find_number(tx, "SELECT value FROM counter WHERE name = ?", name) or 0
