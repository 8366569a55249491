"""The durable queue of each supervisor, and the signal that tells workers and supervisors that something changed.

An equal notice that waits already is not added, so a thousand ends of tasks make one run. Source:
docs/design/ingestion.md.
"""

from __future__ import annotations

from typing import Final

import attrs

from eventproc.store.database import Tx
from eventproc.store.records import count_up
from eventproc.store.task_queue import INGEST_CHANNEL

RUN: Final = "run"
"""Kind of the notice that starts a run."""


@attrs.frozen
class StoredNotice:
    """A notice in the queue. id: grows in the order of posting. body: JSON, by kind."""

    id: int
    kind: str
    body: str


def announce(tx: Tx) -> None:
    """Wake supervisors and workers, in this process and in others, once the transaction is durable."""
    count_up(tx, INGEST_CHANNEL)
    tx.wake(INGEST_CHANNEL)


def post_notice(tx: Tx, supervisor: str, kind: str = RUN, body: str = "{}") -> None:
    """Put a notice into the queue of a supervisor, unless an equal one waits there."""
    tx.execute(
        "INSERT INTO supervisor_notice (supervisor, kind, body, created_ms) VALUES (?, ?, ?, ?)"
        " ON CONFLICT DO NOTHING",
        (supervisor, kind, body, tx.now_ms),
    )
    announce(tx)


def waiting_notices(tx: Tx, supervisor: str) -> list[StoredNotice]:
    """Return the notices of a supervisor, oldest first."""
    rows = tx.execute(
        "SELECT id, kind, body FROM supervisor_notice WHERE supervisor = ? ORDER BY id", (supervisor,)
    ).fetchall()
    return [StoredNotice(*row) for row in rows]


def remove_notice(tx: Tx, notice: StoredNotice) -> None:
    """Remove a notice that was handled."""
    tx.execute("DELETE FROM supervisor_notice WHERE id = ?", (notice.id,))
