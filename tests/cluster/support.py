"""What tests of background work share: a host of a test's choice, shares of buckets, users of groups, ends of tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import anyio

from eventproc.cluster.buckets import bucket_owners
from eventproc.cluster.host import TIMINGS, HostTimings, RunProcessors, run_host
from eventproc.cluster.internal_processors import run_internal_processors
from eventproc.cluster.sweeper import sweep_chunks, walk_chunks
from eventproc.describe import TaskInfo
from eventproc.runtime import Eventproc
from eventproc.store.chunks.index import next_unused
from eventproc.store.database import Database, Tx
from eventproc.store.ownership import claim
from eventproc.store.task_queue import WATCH_TASKS
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


async def ended_task(ep: Eventproc, resource: str, *, after: TaskInfo | None = None) -> TaskInfo:
    """Return the only task of a resource when it has ended.

    after: wait for the one that is submitted after this one.
    """
    with anyio.fail_after(60), ep.db.subscribe([WATCH_TASKS]) as changes:
        while True:
            found = [each for each in await ep.tasks.list() if each.resource == resource]
            found = [each for each in found if after is None or each.id > after.id]
            assert len(found) <= 1, found
            if found and found[0].status.has_ended:
                return found[0]
            await changes.wait()


async def sweep_a_day_later(db: Database) -> set[str]:
    """Sweep the files of events as if nobody had used them for a day; return those that rows name."""
    owner = await db.write(partial(claim, name="controller", instance=db.instance_id))
    await walk_chunks(db, owner)
    while await db.write(_age_files):
        await sweep_chunks(db, owner)
    paths = await db.read(lambda tx: tx.execute("SELECT path FROM chunk").fetchall())
    return {str(path) for (path,) in paths}


def _age_files(tx: Tx) -> bool:
    """Let holds end, and be a day old what is unused; return whether something is left to sweep."""
    tx.execute("UPDATE hold SET until_ms = 0")
    tx.execute("UPDATE unused_file SET since_ms = 0")
    return next_unused(tx, 0) is not None or tx.execute("SELECT 1 FROM unused_file").fetchone() is not None
