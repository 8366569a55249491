"""Joins the runs of tiny extents that appends of this process leave behind."""

from __future__ import annotations

import logging
from functools import partial

import anyio

from eventproc.cluster.background_steps import STOPPED
from eventproc.store.database import Database
from eventproc.store.faults import Step
from eventproc.store.model.errors import Retryable
from eventproc.store.segments import INLINE_EXTENT_COUNTER, join_step

LOG = logging.getLogger("eventproc.join")


async def join_tiny_extents(db: Database) -> None:
    """Join the runs that `InlineExtentCounter` reports as due, until cancelled or until the database is closed.

    It never ends the user's program: a run that cannot be joined stays as it is.
    """
    tiny = db.shared[INLINE_EXTENT_COUNTER]
    due = anyio.Event()
    tiny.on_due = lambda: due.set()
    while True:
        await due.wait()
        due = anyio.Event()
        for stream_id, segment, first, last in tiny.take():
            offset: int | None = first
            try:
                while offset is not None and offset <= last:  # one step, unless other processes write, too
                    offset = await db.write(
                        partial(join_step, stream_id=stream_id, segment=segment, offset=offset),
                        step=Step.EXTENT_JOIN,
                    )
            except STOPPED:
                return  # the next call on this handle raises the same error to its user
            except Retryable as why:
                LOG.warning("tiny extents are not joined: %s", why)
            except Exception:
                LOG.exception("tiny extents of segment %s of stream %s are not joined", segment, stream_id)
