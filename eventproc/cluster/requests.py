"""The internal request processor: serialized per stream over concurrent, on the keyed core."""

from __future__ import annotations

import contextlib
import logging
from functools import partial
from typing import Final

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_random_exponential

from eventproc.processors import KeyedWorkers
from eventproc.store.catalog import REQUEST_STREAM, get_stream
from eventproc.store.database import Database, Tx
from eventproc.store.model.errors import DatabaseStopped, Fenced, Retryable
from eventproc.store.model.frontier import Frontier
from eventproc.store.ownership import Owner
from eventproc.store.progress import EventRef, get_progress
from eventproc.store.segments import FRAME_BYTES, Event
from eventproc.streams.reader import StreamReader
from eventproc.workflows.run import give_up, step
from eventproc.workflows.sweep import REQUEST_GROUP, system_segments

LOG = logging.getLogger("eventproc.host")

WORKERS: Final = 100
"""Requests in flight, of as many streams. They share commits, so that more raises throughput until one
commit holds all that wait; each costs a task."""

RETRY_S_MAX: Final = 5.0
"""Longest pause before a step is tried again while the disk is full or a lock is held."""


async def serve_requests(db: Database, owner: Owner) -> None:
    """Handle requests from where the group stands, until cancelled. Raises OwnerFenced, DatabaseStopped."""
    reader: StreamReader[bytes] = StreamReader(
        db, REQUEST_STREAM.name, REQUEST_STREAM.stream_id, _start, chosen=False
    )
    workers = KeyedWorkers(partial(_handle, db, owner), workers=WORKERS)
    # Closed by hand: trio warns of a generator that is left to the collector.
    async with reader, workers, contextlib.aclosing(reader.batches()) as batches:
        async for batch in batches:
            await workers.put((event.key, event) for event in batch)


def _start(tx: Tx) -> Frontier:
    stream = get_stream(tx, REQUEST_STREAM.name).value
    return Frontier(
        {
            segment: get_progress(tx, REQUEST_GROUP, REQUEST_STREAM.stream_id, segment).offset
            for segment in system_segments(stream)
        },
        {},
    )


async def _handle(db: Database, owner: Owner, event: Event) -> None:
    """Run the request that the event names, step by step, to its outcome."""
    request_id = event.payload.decode()
    end_offset = event.offset + FRAME_BYTES + len(event.payload)
    ref = EventRef(REQUEST_GROUP, REQUEST_STREAM.stream_id, event.segment, event.number, end_offset)
    try:
        while not await _retried(db, partial(step, request_id=request_id, event=ref, owner=owner)):
            pass
    except (Fenced, DatabaseStopped):
        raise
    except Exception as error:
        # A request that cannot be run must not stop those behind it, nor vanish: it gets its outcome.
        LOG.exception("request %s failed", request_id)
        await _retried(
            db, partial(give_up, request_id=request_id, event=ref, owner=owner, reason=repr(error))
        )


async def _retried(db: Database, fn: partial[bool]) -> bool:
    """Run a step, again while the reason it could not run may pass: the host never gives a request back."""
    with contextlib.suppress(Retryable):  # setting up the retries costs as much as the step itself
        return await db.write(fn)
    request_id = fn.keywords["request_id"]

    def tell(state: RetryCallState) -> None:
        why = None if state.outcome is None else state.outcome.exception()
        LOG.warning(
            "request %s cannot go on, and is tried again in %.1f s: %s", request_id, state.upcoming_sleep, why
        )

    async for attempt in AsyncRetrying(
        retry=retry_if_exception_type(Retryable),
        wait=wait_random_exponential(max=RETRY_S_MAX),
        before_sleep=tell,
        reraise=True,
    ):
        with attempt:
            return await db.write(fn)
    raise AssertionError("tenacity either returns or raises")
