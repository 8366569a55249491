"""Policies: what keeping those of a thousand streams costs, and how long a run of retention takes for one stream."""

from __future__ import annotations

import time
from typing import Final

import anyio

import eventproc
from benchmarks.samples import Sample, Stopwatch, Task, payloads, peak_rss_mb
from eventproc import RetentionPolicy, ScalingPolicy
from eventproc.store.catalog import get_stream
from eventproc.store.database import Tx
from eventproc.workflows.policies.retention import retained_head

STREAMS_COUNT: Final = 1_000
"""Streams with policies, each with events in every window."""

SETTLE_S: Final = 35
"""Time until every stream was looked at once: the first walk is not part of the cost."""

EVENTS_COUNT: Final = 100_000
"""Events of the stream whose retention is measured: batches of ten, so about 10,000 extents."""


async def keep_policies(task: Task) -> Sample:
    """Keep the policies of many streams that were just written, and do nothing else."""
    scaling = ScalingPolicy.by_event_rate(100, segments_max=4)
    retention = RetentionPolicy(size_bytes=1_000_000_000, consumed=True)
    payload = payloads()[0]
    async with eventproc.open(task.directory, durability=task.durability) as ep:
        await ep.create_scope("benchmark")

        async def make(numbers: range) -> None:
            for number in numbers:
                stream = await ep.create_stream(
                    f"benchmark/stream-{number}", scaling=scaling, retention=retention
                )
                async with stream.writer() as writer:
                    for _ in range(3):
                        await writer.write(payload)

        async with anyio.create_task_group() as tasks:
            for first in range(20):
                tasks.start_soon(make, range(first, STREAMS_COUNT, 20))
        await anyio.sleep(SETTLE_S)
        watch = Stopwatch()
        await anyio.sleep(task.count / 1000)
        return watch.load()


async def retention_run(task: Task) -> Sample:
    """Decide on the retention of one stream by age, by size and by consumption; the mean CPU time in ms."""
    payload = payloads()[0]
    retention = RetentionPolicy(
        age_ms=86_400_000, size_bytes=5_000_000, consumed=True, size_bytes_min=1_000_000
    )
    async with eventproc.open(task.directory, durability=task.durability) as ep:
        await ep.create_scope("benchmark")
        stream = await ep.create_stream("benchmark/stream", scaling=ScalingPolicy.fixed(4))
        async with stream.writer() as writer:
            for number in range(EVENTS_COUNT // 10):
                await writer.write_many([(payload, str(number * 10 + each)) for each in range(10)])
        for number in range(4):
            await ep.create_group(f"benchmark/group-{number}", ["benchmark/stream"], start="tail")
        await stream.update(retention=retention)

        def decide(tx: Tx) -> object:
            return retained_head(tx, get_stream(tx, "benchmark/stream").value)

        cpu = time.process_time()
        for _ in range(task.count):
            await ep.db.read(decide)
        cpu_ms = (time.process_time() - cpu) * 1000 / task.count
        return Sample(value=cpu_ms, cpu_us=cpu_ms * 1000, rss_mb=peak_rss_mb())
