"""How much a Spark job beside them slows the writers of a stream: one that reads the stream, and one over Parquet.

The writer is a separate process. A query reads its events immediately: from the stream, or as Parquet files of the
same rows, with one more file per FILE_EVENTS events. Both sides end with the writer.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count, islice
from pathlib import Path
from typing import Final

import anyio
import pyarrow as pa
import pyarrow.parquet
from pyspark.sql.streaming.query import StreamingQuery

import eventproc
from benchmarks.samples import Sample, Task
from benchmarks.spark import (
    COLUMNS,
    ROOT,
    SEGMENTS_COUNT,
    STREAM,
    SparkBench,
    cpu_s,
    events_of,
    rss_mb,
    session,
)
from eventproc import ScalingPolicy

FILE_EVENTS: Final = 100_000
"""Events of a Parquet file, and between two reports of the writer."""

WARM_EVENTS: Final = 500_000
"""Events that are written before the clock starts: the JVM is slow at first."""


async def beside_stream(task: Task) -> Sample:
    """Write while a query reads the stream; events/s written."""
    with _filled(task) as bench:
        query = (
            bench.stream().writeStream.format("noop").option("checkpointLocation", _checkpoint(bench)).start()
        )
        return _written(task, query, bench, iter(()))


async def beside_parquet(task: Task) -> Sample:
    """Write while a query reads Parquet files of the same rows, as they appear; events/s written."""
    with _filled(task) as bench:
        source = bench.folder / "source"
        source.mkdir()
        found = bench.spark.readStream.schema("payload binary, key string").parquet(str(source))
        query = found.writeStream.format("noop").option("checkpointLocation", _checkpoint(bench)).start()
        return _written(task, query, bench, _files(bench.folder, source))


def _checkpoint(bench: SparkBench) -> str:
    return str(bench.folder / "checkpoint")


@contextmanager
def _filled(task: Task) -> Iterator[SparkBench]:
    """Give a session, an empty stream, and a Parquet file of FILE_EVENTS events."""
    with session(task) as bench:
        bench.ep.create_stream(STREAM, scaling=ScalingPolicy.fixed(SEGMENTS_COUNT))
        payloads, names = zip(*events_of(FILE_EVENTS), strict=True)
        rows = pa.table(dict(zip(COLUMNS, (pa.array(payloads), pa.array(names)), strict=True)))
        pyarrow.parquet.write_table(rows, bench.folder / "rows.parquet")
        yield bench


def _files(folder: Path, source: Path) -> Iterator[None]:
    """Let one more file appear, each time."""
    for number in count():
        os.link(folder / "rows.parquet", source / f"{number:06d}.parquet")
        yield


def _written(task: Task, query: StreamingQuery, bench: SparkBench, appear: Iterator[None]) -> Sample:
    """Let a process write, and return how fast it was."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.spark_writers",
        str(bench.ep.path),
        task.durability,
        str(task.count),
    ]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        before_s, rate = cpu_s(), 0.0
        for line in writer.stdout:
            kind, _, value = line.partition(" ")
            if kind == "rate":
                rate = float(value)
            else:
                next(appear, None)
    spent_us = (cpu_s() - before_s) * 1e6
    read = sum(each.numInputRows for each in query.recentProgress)
    query.stop()
    assert rate, "the writer failed"
    assert read > FILE_EVENTS, "nothing was read beside the writer"
    return Sample(value=rate, cpu_us=spent_us / (task.count + WARM_EVENTS), rss_mb=rss_mb())


async def _write(directory: str, durability: str, events_count: int) -> None:
    """Write events, and say so on stdout."""
    async with eventproc.open(directory, durability=durability, host=False) as ep:
        stream = await ep.stream(STREAM)
        events = events_of(WARM_EVENTS + events_count)
        began = time.perf_counter()
        async with stream.writer() as writer:
            for done in range(0, WARM_EVENTS + events_count, FILE_EVENTS):
                if done == WARM_EVENTS:
                    await writer.flush()
                    began = time.perf_counter()
                for payload, key in islice(events, FILE_EVENTS):
                    await writer.post(payload, key=key)
                sys.stdout.write(f"written {done + FILE_EVENTS}\n")
                sys.stdout.flush()
            await writer.flush()
            sys.stdout.write(f"rate {events_count / (time.perf_counter() - began)}\n")


if __name__ == "__main__":
    anyio.run(_write, sys.argv[1], sys.argv[2], int(sys.argv[3]))
