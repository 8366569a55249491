"""The internal processors: what the host runs, each an event processor like those of users.

Two things set them apart. Their segments are the host's (`HostedMember`). And their handlers publish by themselves:
the progress of an event moves in the transaction that publishes what became of it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import anyio
import attrs

from eventproc.cluster.commits import ABORTS_AT_ONCE, run_abort, run_commit
from eventproc.cluster.hosted import HostedMember
from eventproc.cluster.requests import REQUESTS_AT_ONCE, run_request
from eventproc.processors.engine import Engine
from eventproc.processors.handler import make_handler
from eventproc.processors.options import Options, Order
from eventproc.store.catalog import ABORT_STREAM, COMMIT_STREAM, REQUEST_STREAM, SystemStream
from eventproc.store.database import Database
from eventproc.store.ownership import Owner
from eventproc.store.segments import Event


@attrs.frozen
class Internal:
    """An internal processor: its stream, its order, how many calls it has in flight, and its handler.

    The handler finishes the event in the transaction that publishes its result, after it compared the owner.
    """

    stream: SystemStream
    order: Order
    concurrency: int
    handler: Callable[[Database, Owner, Event], Awaitable[None]]


INTERNAL: Final = (
    Internal(REQUEST_STREAM, Order.KEY, REQUESTS_AT_ONCE, run_request),
    Internal(COMMIT_STREAM, Order.SEGMENT, 1, run_commit),
    Internal(ABORT_STREAM, Order.NONE, ABORTS_AT_ONCE, run_abort),
)
"""Every internal processor."""


async def serve_internal(db: Database, owner: Owner) -> None:
    """Process the internal streams from where their groups stand, until cancelled.

    Raises, in groups, OwnerFenced, DatabaseStopped, and what else the handlers let out.
    """
    async with anyio.create_task_group() as tasks:
        for each in INTERNAL:
            tasks.start_soon(engine_of(db, owner, each).run)


def engine_of(db: Database, owner: Owner, internal: Internal) -> Engine:
    """Return what runs the processor, once, for as long as `owner` is the host."""
    options = Options(
        name=internal.stream.name,
        streams=(internal.stream.name,),
        group=internal.stream.name,
        order=internal.order,
        concurrency=internal.concurrency,
        on_truncated="error",
        publishes=True,
    )
    make = partial(make_handler, partial(internal.handler, db, owner), bytes)
    return Engine(db, options, make, HostedMember(db, internal.stream, owner))
