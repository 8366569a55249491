"""Buckets: how long the periodic work of an instance that ended waits for another one."""

from __future__ import annotations

from time import perf_counter

import eventproc
from benchmarks.samples import Sample, Stopwatch, Task
from eventproc.cluster import buckets
from eventproc.store.model.buckets import BUCKET_COUNT


async def longest_takeover(task: Task) -> Sample:
    """Let `count` instances join and end, one after the other; the longest time until another owns all buckets, ms."""
    buckets.JOIN_MS = 0  # type: ignore[misc]  # final for everyone else
    longest_s, watch = 0.0, Stopwatch()
    async with eventproc.open(task.directory, durability=task.durability) as ep:
        owned = ep.db.shared[buckets.OWNED_BUCKETS]
        with ep.db.subscribe([]) as changes, owned.notifying(changes):
            for _ in range(task.count):
                async with eventproc.open(task.directory):
                    while len(owned.owned) != BUCKET_COUNT // 2:
                        await changes.wait()
                began = perf_counter()
                while len(owned.owned) != BUCKET_COUNT:
                    await changes.wait()
                longest_s = max(longest_s, perf_counter() - began)
        sample = watch.rate(task.count)
    return Sample(value=longest_s * 1000, cpu_us=sample.cpu_us, rss_mb=sample.rss_mb)
