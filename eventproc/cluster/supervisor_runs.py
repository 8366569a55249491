"""Runs, on the host, every ingestion supervisor that has something to do.

What a supervisor does then is imported with the first one, because a directory without supervisors must not pay for it.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Final

import anyio

from eventproc.store.database import Database, Tx
from eventproc.store.ingestion import has_notices, watch_ingestion
from eventproc.store.ingestion.supervisors import due_supervisors, next_due_ms, running_workers
from eventproc.store.model.errors import Retryable
from eventproc.store.ownership import Owner

LOG = logging.getLogger("eventproc.ingestion")

LIVENESS_MS: Final = 500
"""Pause between two looks at the workers of running tasks: how long a death goes unnoticed. A look costs some 10 us for
each worker."""

RETRY_PAUSE_MS: Final = 1_000
"""Pause after a transaction that may be repeated, so that a lasting failure does not keep a processor busy."""


async def run_supervisors(db: Database, owner: Owner) -> None:
    """Run all supervisors until cancelled. Raises OwnerFenced, DatabaseStopped."""
    with db.subscribe([watch_ingestion()]) as changes:
        while True:
            try:
                for supervisor in await db.read(partial(_due, db=db)):
                    await _run(db, owner, supervisor)
                pause_ms = await db.read(_pause_ms)
            except Retryable as why:
                LOG.warning("the supervisors run again later: %s", why)
                pause_ms = RETRY_PAUSE_MS
            if pause_ms == 0:
                await anyio.lowlevel.checkpoint()
            else:
                await changes.wait(pause_ms)


async def _run(db: Database, owner: Owner, supervisor: str) -> None:
    from eventproc.ingestion.loop import handle_next

    await handle_next(db, owner, supervisor, db.peers.is_alive)


def _due(tx: Tx, db: Database) -> list[str]:
    """Return the supervisors with something to do: a notice, a time that has come, a worker that died."""
    dead = {supervisor for supervisor, worker in running_workers(tx) if not db.peers.is_alive(worker)}
    return sorted({*due_supervisors(tx), *dead})


def _pause_ms(tx: Tx) -> int | None:
    """Return when to look again: now if a notice waits, because a look handles one notice of each supervisor."""
    if has_notices(tx):
        return 0
    due_ms = next_due_ms(tx)
    if due_ms is None:
        return None
    pause_ms = max(due_ms - tx.now_ms, 0)
    return min(pause_ms, LIVENESS_MS) if running_workers(tx) else pause_ms
