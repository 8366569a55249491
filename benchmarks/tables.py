"""Publishing to a table: how long a publication takes after many others, beside after a few."""

from __future__ import annotations

import time
from functools import partial
from statistics import median
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

import eventproc
from benchmarks.samples import Sample, Task, peak_rss_mb
from eventproc.store.ingestion.iceberg import StoreTables
from eventproc.store.ingestion.table_access import on_tables
from eventproc.store.ingestion.table_paths import new_table_path
from eventproc.store.model.ingestion import TIME, TablePartitioning

FEW: Final = 10
"""Publications before those that are timed on the other side."""

TIMED: Final = 20
"""Publications whose median counts."""

COLUMNS: Final = pa.schema({TIME: pa.timestamp("us", tz="UTC"), "clicks": pa.int64()})
HOURS: Final = 500
"""Partitions of the table."""


async def after_many(task: Task) -> Sample:
    """Publish a file after `count` others; the median in ms."""
    return await _publish(task, task.count)


async def after_few(task: Task) -> Sample:
    """Publish a file after FEW others."""
    return await _publish(task, FEW)


async def _publish(task: Task, before: int) -> Sample:
    async with eventproc.open(task.directory / "data", durability=task.durability) as ep:
        work = partial(_publish_all, instance=ep.db.instance_id, count=before + TIMED)
        cpu_s = time.process_time()
        took_s = await on_tables(ep.db, work)
        cpu_us = (time.process_time() - cpu_s) * 1e6 / (before + TIMED)
    return Sample(median(took_s[-TIMED:]) * 1000, cpu_us, peak_rss_mb())


def _publish_all(tables: StoreTables, *, instance: str, count: int) -> list[float]:
    took_s: list[float] = []
    for number in range(count):
        hour = number % HOURS
        path = new_table_path(f"clicks/{hour}", instance, tables.clock)
        times = [hour * 3_600_000_000 + each for each in range(100)]
        rows = pa.table({TIME: times, "clicks": [1] * len(times)}, schema=COLUMNS)
        data = pa.BufferOutputStream()
        pq.write_table(rows, data)
        file = tables.files.create(path)
        file.write(memoryview(data.getvalue()))
        file.finish()
        began_s = time.perf_counter()
        tables.append("clicks", COLUMNS, TablePartitioning.HOUR, [path])
        took_s.append(time.perf_counter() - began_s)
    return took_s
