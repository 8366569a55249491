"""The handler of the request stream: runs the request that each event names, one per target at a time."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from eventproc.processors.retry import retry_transient
from eventproc.store.catalog import REQUEST_STREAM
from eventproc.store.database import Database, Tx
from eventproc.store.faults import Step
from eventproc.store.model.errors import CommitsPending, DatabaseStopped, Fenced
from eventproc.store.ownership import Owner
from eventproc.store.progress import EventRef
from eventproc.store.segments import Event
from eventproc.store.transactions import has_decided, watch_commits
from eventproc.workflows.request_runner import give_up, step

LOG = logging.getLogger("eventproc.host")

REQUESTS_IN_FLIGHT_MAX: Final = 100
"""Requests in flight, each of another target. They share commits, so a higher value raises throughput until one
commit holds all waiting requests. Each costs a task."""

COMMITS_LOOK_MS: Final = 1_000
"""Pause between two looks of a request that waits for commits: a safety net in case the wake-up is missed."""


async def run_request(db: Database, owner: Owner, event: Event) -> None:
    """Run the request that the event names, step by step, to its outcome.

    The host never gives a request back: a step that cannot run now is retried. Raises OwnerFenced, DatabaseStopped.
    """
    request_id = event.payload.decode()
    ref = EventRef.of(event, group=REQUEST_STREAM.name, stream_id=REQUEST_STREAM.stream_id)
    what = f"request {request_id}"
    run = partial(_step, db, partial(step, request_id=request_id, event=ref, owner=owner))
    try:
        while not await retry_transient(run, what, db.clock, LOG):
            LOG.debug("%s: one step is done", what)
        LOG.debug("%s has its outcome", what)
    except (Fenced, DatabaseStopped):
        raise
    except Exception as error:
        # A failing request must neither block the requests behind it nor vanish: the failure becomes its outcome.
        LOG.exception("%s failed", what)
        end = partial(give_up, request_id=request_id, event=ref, owner=owner, reason=repr(error))
        await retry_transient(partial(db.write, end, step=Step.REQUEST_RUN), what, db.clock, LOG)


async def _step(db: Database, run: Callable[[Tx], bool]) -> bool:
    """Run one step and return whether it was the last. A step that has to wait for commits is not an error."""
    try:
        return await db.write(run, step=Step.REQUEST_RUN)
    except CommitsPending as why:
        with db.subscribe([watch_commits(why.stream_id)]) as changes:
            if await db.read(partial(has_decided, stream_id=why.stream_id)):
                await changes.wait(COMMITS_LOOK_MS)
        return False
