"""A host with timings and processors of a test's choice, beside an opening that does not host."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from eventproc.cluster.host import TIMINGS, HostTimings, RunProcessors, run_host
from eventproc.cluster.internal_processors import run_internal_processors
from eventproc.store.database import Database


@asynccontextmanager
async def running_host(
    db: Database,
    *,
    timings: HostTimings = TIMINGS,
    run_processors: RunProcessors = run_internal_processors,
) -> AsyncIterator[None]:
    """Run a host of `db` while the block runs."""

    async def run() -> None:
        await run_host(db, timings=timings, run_processors=run_processors)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        yield
        tasks.cancel_scope.cancel()
