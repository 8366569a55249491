"""Supervisors: what a run over a thousand partitions costs, in 100 task groups of two replicas each."""

from __future__ import annotations

import time
from functools import partial
from typing import Final

import anyio

import eventproc
from benchmarks.samples import Sample, Task, peak_rss_mb
from eventproc import ScalingPolicy
from eventproc.ingestion import DataSchema, IoConfig, SupervisorSpec
from eventproc.ingestion.loop import handle_next
from eventproc.store.ingestion import add_spec, claim_tasks, register_worker
from eventproc.store.ownership import claim

PARTITIONS_COUNT: Final = 1_000
GROUPS_COUNT: Final = 100
WORKER: Final = "benchmark"

SETTLE_S: Final = 5
"""Time until the background has looked at the new stream: that is not part of a run."""


async def run_notices(task: Task) -> Sample:
    """Handle run notices of a supervisor whose tasks read; the mean CPU time in ms."""
    io = IoConfig(
        streams=("benchmark/stream",), task_count=GROUPS_COUNT, replicas=2, use_earliest_offset=True
    )
    spec = SupervisorSpec(io=io, schema=DataSchema(datasource="clicks")).validate()
    async with eventproc.open(task.directory, durability=task.durability) as ep:
        await ep.create_scope("benchmark")
        stream = await ep.create_stream("benchmark/stream", scaling=ScalingPolicy.fixed(PARTITIONS_COUNT))
        async with stream.writer() as writer:
            await writer.write_many([(b"x" * 100, str(number)) for number in range(10 * PARTITIONS_COUNT)])
        # The host runs supervisors too: this one is another owner, and its supervisor is not due for the host.
        owner = await ep.db.write(partial(claim, name=WORKER, instance=WORKER))
        await ep.db.write(lambda tx: add_spec(tx, spec.id, spec.text(), start_delay_ms=10**9))
        await ep.db.write(lambda tx: register_worker(tx, WORKER, 2 * GROUPS_COUNT))
        run = partial(handle_next, ep.db, owner, spec.id, lambda _: True)
        await run()
        await ep.db.write(
            partial(claim_tasks, worker=WORKER, slots_free=2 * GROUPS_COUNT, is_alive=lambda _: True)
        )
        await anyio.sleep(SETTLE_S)
        cpu = time.process_time()
        for _ in range(task.count):
            await run()
        cpu_ms = (time.process_time() - cpu) * 1000 / task.count
        return Sample(value=cpu_ms, cpu_us=cpu_ms * 1000, rss_mb=peak_rss_mb())
