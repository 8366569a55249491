"""The host's sweeps: at once when somebody left work, and every half minute."""

from __future__ import annotations

import logging
from functools import partial
from typing import Final

import anyio

from eventproc.cluster.internal import INTERNAL
from eventproc.store.database import Database, Tx, Watch
from eventproc.store.model.errors import Retryable
from eventproc.store.ownership import Owner
from eventproc.workflows.sweep import forget, reap, truncate_internal

LOG = logging.getLogger("eventproc.host")

SWEEP_MS: Final = 30_000
"""Pause between two sweeps that nobody asked for. What they find waits no longer than this."""


async def sweep(db: Database, owner: Owner) -> None:
    """Sweep until cancelled. Raises OwnerFenced, DatabaseStopped."""
    with db.subscribe([Watch("reap", _waiting)]) as changes:
        while True:
            try:
                while await db.write(partial(reap, owner=owner)):
                    await anyio.lowlevel.checkpoint()
                while await db.write(partial(forget, owner=owner)):
                    await anyio.lowlevel.checkpoint()
                for each in INTERNAL:
                    await db.write(partial(truncate_internal, owner=owner, stream=each.stream))
            except Retryable as why:
                LOG.warning("a sweep will be tried again: %s", why)
            await changes.wait(SWEEP_MS)


def _waiting(tx: Tx) -> int:
    row = tx.execute("SELECT count(*) FROM reap").fetchone()
    return int(row[0])
