"""Joining the runs of tiny extents that this process leaves behind."""

from __future__ import annotations

import logging
from functools import partial

import anyio

from eventproc.store.database import Database
from eventproc.store.model.errors import Closed, DatabaseStopped, ForkedError, Retryable
from eventproc.store.segments import TinyExtents, join_step

LOG = logging.getLogger("eventproc.join")


async def join_tiny_extents(db: Database) -> None:
    """Join what `TinyExtents` calls due, until cancelled or the database is gone.

    It runs in the background of somebody's program and never ends it: a run that cannot be joined stays as it is.
    """
    tiny = db.shared.get(TinyExtents)
    due = anyio.Event()
    tiny.on_due = lambda: due.set()
    while True:
        await due.wait()
        due = anyio.Event()
        for stream_id, segment, first in tiny.take():
            offset: int | None = first
            try:
                while offset is not None:
                    offset = await db.write(
                        partial(join_step, stream_id=stream_id, segment=segment, offset=offset)
                    )
            except (DatabaseStopped, Closed, ForkedError):
                return  # whoever uses this handle is told so by its next call
            except Retryable as why:
                LOG.warning("tiny extents stay as they are: %s", why)
            except Exception:
                LOG.exception("tiny extents stay as they are: segment %s of stream %s", segment, stream_id)
