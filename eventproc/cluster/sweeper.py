"""The host's sweeps: immediately when there are bytes to free, and every 30 s."""

from __future__ import annotations

import logging
from functools import partial
from typing import Final

import anyio

from eventproc.cluster.chunk_sweep import sweep_chunks, walk_chunks
from eventproc.cluster.internal_processors import INTERNAL_PROCESSORS
from eventproc.store.database import Database, Watch
from eventproc.store.faults import Step
from eventproc.store.model.errors import Retryable
from eventproc.store.ownership import Owner
from eventproc.store.segments.reaper import count_reapings
from eventproc.workflows.commit_transactions import retry_failed
from eventproc.workflows.sweeps import forget, reap, shrink, truncate_internal

LOG = logging.getLogger("eventproc.host")

SWEEP_MS: Final = 30_000
"""Pause between two sweeps without a trigger: the longest time that sweepable state stays behind."""

WALK_MS: Final = 3_600_000
"""Pause between two walks through the chunk folder, which find files that a crash left without a row."""


async def sweep(db: Database, owner: Owner) -> None:
    """Sweep until cancelled. Raises OwnerFenced, DatabaseStopped."""
    tidy_at_ms, walk_at_ms = 0, 0
    with db.subscribe([Watch("reap", count_reapings)]) as changes:
        while True:
            try:
                while await db.write(partial(reap, owner=owner), step=Step.HOST_SWEEP):
                    await anyio.lowlevel.checkpoint()
                if db.clock.monotonic_ms() >= tidy_at_ms:
                    await _tidy(db, owner)
                    tidy_at_ms = db.clock.monotonic_ms() + SWEEP_MS
                while await db.write(partial(shrink, owner=owner), step=Step.HOST_SWEEP):
                    await anyio.lowlevel.checkpoint()
                await sweep_chunks(db, owner)
                if db.clock.monotonic_ms() >= walk_at_ms:
                    await walk_chunks(db, owner)
                    walk_at_ms = db.clock.monotonic_ms() + WALK_MS
                pause_ms = max(tidy_at_ms - db.clock.monotonic_ms(), 0)
            except (Retryable, OSError) as why:
                LOG.warning("a sweep failed and will be retried: %s", why)
                pause_ms = SWEEP_MS
            await changes.wait(pause_ms)


async def _tidy(db: Database, owner: Owner) -> None:
    """Forget old rows, truncate the internal streams, and post failed commits again."""
    while await db.write(partial(forget, owner=owner), step=Step.HOST_SWEEP):
        await anyio.lowlevel.checkpoint()
    for each in INTERNAL_PROCESSORS:
        await db.write(partial(truncate_internal, owner=owner, stream=each.stream), step=Step.HOST_SWEEP)
    await db.write(partial(retry_failed, owner=owner), step=Step.HOST_SWEEP)
