"""The host writes marks of time that are due, where no further note of a writer does."""

from __future__ import annotations

import logging
from functools import partial
from typing import Final

import anyio

from eventproc.store.database import Database, Tx
from eventproc.store.faults import Step
from eventproc.store.marks import DUE_MARKS, first_mark_due_ms, pause_ms, write_due_marks
from eventproc.store.model.errors import Retryable
from eventproc.store.ownership import Owner

LOG = logging.getLogger("eventproc.host")

FAILED_MS: Final = 1_000
"""Pause after a failure that ends by itself, in ms, such as a full disk."""


async def write_marks(db: Database, owner: Owner) -> None:
    """Write the marks that are due until cancelled. Raises OwnerFenced, DatabaseStopped."""
    with db.subscribe([DUE_MARKS]) as changes:
        while True:
            due_ms, now_ms = await db.read(lambda tx: (first_mark_due_ms(tx), tx.now_ms))
            if due_ms is None:
                await changes.wait()
            elif left_ms := pause_ms(due_ms, now_ms):
                await changes.wait(left_ms)
            else:
                try:
                    await db.write(partial(_write, owner=owner), step=Step.HOST_SWEEP)
                except Retryable as why:
                    LOG.warning("marks of time will be written later: %s", why)
                    await anyio.sleep(FAILED_MS / 1000)


def _write(tx: Tx, owner: Owner) -> None:
    owner.check(tx)
    write_due_marks(tx)
