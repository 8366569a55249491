"""What the tests of several instances share: a host of a test's choice, shares of buckets, users of groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from eventproc.cluster.buckets import bucket_owners
from eventproc.cluster.host import TIMINGS, HostTimings, RunProcessors, run_host
from eventproc.cluster.internal_processors import run_internal_processors
from eventproc.store.database import Database
from eventproc.testing import SimulatedInstance, SimulatedWorld


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


async def shares(world: SimulatedWorld) -> dict[str, int]:
    """Return the number of buckets of each live instance, by name, those without one left out."""
    names = {each.ep.db.instance_id: each.name for each in world.instances if each.alive}
    found = Counter(await world.ep.db.read(bucket_owners))
    return {names.get(owner or "", "dead"): count for owner, count in sorted(found.items(), key=str)}


async def read_for_ever(instance: SimulatedInstance, name: str) -> None:
    """Read as a member of a group."""
    group = await instance.ep.group(name)
    async with group.reader("r") as reader:
        async for _ in reader:
            pass


async def hold_for_ever(instance: SimulatedInstance, name: str) -> None:
    """Lock an event of a share group."""
    group = await instance.ep.share_group(name)
    async with group.consumer("c") as consumer:
        await consumer.poll(1, timeout_ms=1_000)
        await anyio.sleep_forever()
