"""The host appends delayed events to their streams when they are due.

It sleeps until the next one is due, or until a commit stores one that is due earlier.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Final

import anyio

from eventproc.store.database import Database
from eventproc.store.delayed_events import WATCH, first_due_ms
from eventproc.store.faults import Step
from eventproc.store.model.errors import Retryable
from eventproc.store.ownership import Owner
from eventproc.streams.delayed_events import DUE_BYTES_A_STEP, append_due

LOG = logging.getLogger("eventproc.host")

LOOK_MS: Final = 10_000
"""Longest sleep while an event waits, in ms: wall clocks may jump. Higher: after a jump, events are later."""

FAILED_MS: Final = 1_000
"""Pause after a failure that ends by itself, in ms, such as a full disk."""


async def deliver_delayed(db: Database, owner: Owner) -> None:
    """Append what is due until cancelled. Raises OwnerFenced, DatabaseStopped."""
    with db.subscribe([WATCH]) as changes:
        while True:
            due_ms, now_ms = await db.read(lambda tx: (first_due_ms(tx), tx.now_ms))
            if due_ms is None:
                await changes.wait()
            elif due_ms > now_ms:
                await changes.wait(min(due_ms - now_ms, LOOK_MS))
            else:
                try:
                    step = partial(append_due, owner=owner)
                    await db.write(step, size_bytes=DUE_BYTES_A_STEP, step=Step.DELAYED_DELIVERY)
                except Retryable as why:
                    LOG.warning("delayed events will be appended later: %s", why)
                    await anyio.sleep(FAILED_MS / 1000)
