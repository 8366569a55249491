"""What tasks have logged: lines that outlive the worker, and that every machine can read.

A line is written in the transaction that does what it says, or in the next one of the task. So a task makes no
transaction to log, and its log cannot say what did not happen. It is bounded: the newest lines of a task are kept, for
as long as the task is listed, and at most a week.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import attrs

from eventproc.store.database import Tx
from eventproc.store.model.argument_checks import storable
from eventproc.store.model.list_pages import NO_LIMIT
from eventproc.store.model.short_repr import short_repr_of_fields

LINES_KEPT: Final = 500
"""Lines of a task that are kept, the newest. Higher: a longer look back, about 100 bytes each."""

LINE_CHARS_MAX: Final = 2_000
"""Characters of a line that are kept. Higher: more of a long error."""

LOG_KEPT_MS: Final = 7 * 24 * 3_600_000
"""How long a line is kept, in ms. Higher: more of what tasks of terminated supervisors have logged."""


@attrs.frozen(kw_only=True)
class IngestLogLine:
    """A line of a task's log. id: grows within a task. at_ms: when it was logged, wall time."""

    __repr__ = short_repr_of_fields

    id: int
    at_ms: int
    message: str


def log_now(tx: Tx, task: str, message: str) -> None:
    """Add a line to the log of a task. Two statements."""
    append_log(tx, task, [(tx.now_ms, message)])


def append_log(tx: Tx, task: str, lines: Iterable[tuple[int, str]]) -> None:
    """Add lines, (wall ms, message), to the log of a task, and drop its oldest ones beyond LINES_KEPT."""
    for at_ms, message in lines:
        tx.execute(
            "INSERT INTO ingest_log (task, at_ms, message) VALUES (?, ?, ?)",
            (task, at_ms, storable(message, LINE_CHARS_MAX)),
        )
    tx.execute(
        "DELETE FROM ingest_log WHERE task = ? AND id <="
        f" (SELECT id FROM ingest_log WHERE task = ? ORDER BY id DESC LIMIT 1 OFFSET {LINES_KEPT})",
        (task, task),
    )


def read_log(tx: Tx, task: str, *, after: int = 0, limit: int | None = None) -> list[IngestLogLine]:
    """Return the lines of a task behind the line `after`, the oldest first, at most `limit` of them. One query."""
    rows = tx.execute(
        "SELECT id, at_ms, message FROM ingest_log WHERE task = ? AND id > ? ORDER BY id LIMIT ?",
        (task, after, NO_LIMIT if limit is None else limit),
    )
    return [IngestLogLine(id=id, at_ms=at_ms, message=message) for id, at_ms, message in rows.fetchall()]


def forget_old_logs(tx: Tx) -> None:
    """Delete the lines that are older than LOG_KEPT_MS. Cost: one statement, over those."""
    tx.execute("DELETE FROM ingest_log WHERE at_ms < ?", (tx.now_ms - LOG_KEPT_MS,))
