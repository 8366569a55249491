"""Streams read by Spark, beside what Spark reads by itself: its Parquet source, and a Python source that does nothing.

A session of two cores in each process. What is read lies in chunk files: a first query, which is not timed, exports
it, and another one warms up the JVM. Times are those that Spark reports of a batch, from planning to its commit log.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import Final

import attrs
import psutil
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.readwriter import DataStreamWriter

import eventproc.spark
from benchmarks.samples import KEYS_COUNT, PAYLOAD_BYTES, Sample, Task, keys
from benchmarks.spark_source import TrivialSource
from eventproc import ScalingPolicy
from eventproc.spark import AttachedEventproc

STREAM: Final = "bench/stream"

SEGMENTS_COUNT: Final = 4
"""Segments of the stream: more than cores, so that tasks have several."""

COLUMNS: Final = ("payload", "key")
"""What is read, by both sides."""

WARM_QUERIES_COUNT: Final = 2
"""Queries that are not timed: the first one exports, and the JVM is at its full speed in the third."""

REPETITIONS_COUNT: Final = 3
"""Timed queries in a process; the median counts."""

WARM_BATCHES_COUNT: Final = 15
"""Small batches that are not counted: the first ones are compiled code by code."""

FEED_S: Final = 0.05
"""Pause between two events for small batches: one is always waiting, and no core is kept busy."""

ROOT: Final = Path(__file__).resolve().parents[1]


@attrs.frozen
class SparkBench:
    """A session, a directory open in it, and where the sides put what they make."""

    spark: SparkSession
    ep: AttachedEventproc
    folder: Path

    def stream(self, **options: str) -> DataFrame:
        """Return the stream as a query reads it."""
        asked = {"stream": STREAM, "startingOffsets": "earliest", "columns": ",".join(COLUMNS), **options}
        return self.spark.readStream.format("eventproc").options(**asked).load(str(self.ep.path))

    def parquet(self) -> DataFrame:
        """Return the same rows as Spark's own source reads them."""
        source = str(self.folder / "source")
        if not Path(source).exists():
            found = self.spark.read.format("eventproc").options(stream=STREAM, columns=",".join(COLUMNS))
            found.load(str(self.ep.path)).write.parquet(source)
        return self.spark.readStream.schema("payload binary, key string").parquet(source)

    def batches(self, name: str, writing: DataStreamWriter) -> list[StreamingQueryProgress]:
        """Run a query over what is there, to its end, and return what Spark says of its batches."""
        checkpoint = str(self.folder / f"checkpoint-{name}")
        query = writing.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        query.awaitTermination()
        return [each for each in query.recentProgress if each.numInputRows]


async def read(task: Task) -> Sample:
    """The stream into a sink that drops everything; events/s."""
    with _filled(task) as bench:
        return _rate(bench, task, lambda name: bench.stream().writeStream.format("noop"))


async def read_parquet(task: Task) -> Sample:
    """Parquet into a sink that drops everything; events/s."""
    with _filled(task) as bench:
        return _rate(bench, task, lambda name: bench.parquet().writeStream.format("noop"))


async def copy(task: Task) -> Sample:
    """The stream into Spark's Parquet sink; events/s."""
    with _filled(task) as bench:
        return _rate(bench, task, lambda name: _to_parquet(bench, bench.stream(), name))


async def copy_parquet(task: Task) -> Sample:
    """Parquet into Spark's Parquet sink; events/s."""
    with _filled(task) as bench:
        return _rate(bench, task, lambda name: _to_parquet(bench, bench.parquet(), name))


async def small_batch(task: Task) -> Sample:
    """A batch of a few events that were just written, into a sink that drops everything; ms."""
    with session(task) as bench:
        stream = bench.ep.create_stream(STREAM)
        with stream.writer() as writer:
            writer.write(b"first")

            def feed() -> None:
                writer.write(b"another")

            return _batch_ms(task, bench, bench.stream(), feed)


async def small_batch_trivial(task: Task) -> Sample:
    """A batch of one row of a source that has another one whenever it is asked; ms."""
    with session(task) as bench:
        bench.spark.dataSource.register(TrivialSource)
        return _batch_ms(task, bench, bench.spark.readStream.format("trivial").load(), lambda: None)


def _to_parquet(bench: SparkBench, found: DataFrame, name: str) -> DataStreamWriter:
    return found.writeStream.format("parquet").option("path", str(bench.folder / f"copy-{name}"))


def _rate(bench: SparkBench, task: Task, start: Callable[[str], DataStreamWriter]) -> Sample:
    for number in range(WARM_QUERIES_COUNT):
        bench.batches(f"warm-{number}", start(f"warm-{number}"))
    before_s = cpu_s()
    took_ms = []
    for number in range(REPETITIONS_COUNT):
        found = bench.batches(str(number), start(str(number)))
        rows = sum(each.numInputRows for each in found)
        assert rows == task.count, f"{rows} rows of {task.count} were read"
        took_ms.append(sum(each.durationMs["triggerExecution"] for each in found))
    cpu_us = (cpu_s() - before_s) * 1e6 / (task.count * REPETITIONS_COUNT)
    return Sample(value=task.count / median(took_ms) * 1000, cpu_us=cpu_us, rss_mb=rss_mb())


def _batch_ms(task: Task, bench: SparkBench, found: DataFrame, feed: Callable[[], None]) -> Sample:
    took_ms: list[int] = []
    checkpoint = str(bench.folder / "checkpoint")
    query = found.writeStream.format("noop").option("checkpointLocation", checkpoint).start()
    seen = -1
    before_s = cpu_s()
    while len(took_ms) < task.count + WARM_BATCHES_COUNT:
        time.sleep(FEED_S)
        feed()
        last = query.lastProgress
        if last is not None and last.batchId > seen:
            new = [each for each in query.recentProgress if each.batchId > seen]
            took_ms += [each.durationMs["triggerExecution"] for each in new if each.numInputRows]
            seen = last.batchId
    cpu_us = (cpu_s() - before_s) * 1e6 / len(took_ms)
    query.stop()
    return Sample(value=median(took_ms[WARM_BATCHES_COUNT:]), cpu_us=cpu_us, rss_mb=rss_mb())


@contextmanager
def _filled(task: Task) -> Iterator[SparkBench]:
    """Give a session, and a stream of `count` events."""
    with session(task) as bench:
        stream = bench.ep.create_stream(STREAM, scaling=ScalingPolicy.fixed(SEGMENTS_COUNT))
        with stream.writer() as writer:
            writer.write_many(events_of(task.count))
        yield bench


def events_of(count: int) -> Iterator[tuple[bytes, str]]:
    """Yield distinct events: Parquet would write repeated values only once."""
    noise = random.Random(1).randbytes(PAYLOAD_BYTES * KEYS_COUNT)
    for number, key in zip(range(count), cycle(keys())):
        at = number * 7 % (len(noise) - PAYLOAD_BYTES)
        yield b"%08d" % number + noise[at : at + PAYLOAD_BYTES - 8], key


@contextmanager
def session(task: Task, conf: Mapping[str, str] | None = None) -> Iterator[SparkBench]:
    """Give a session, with further settings, and an empty directory open in it."""
    os.environ["PYTHONPATH"] = str(ROOT)  # Spark's processes import the trivial source
    spark = eventproc.spark.session(master="local[2]", conf=conf)
    with eventproc.spark.attach(spark, task.directory / "streams", durability=task.durability) as ep:
        ep.create_scope("bench")
        yield SparkBench(spark, ep, task.directory)
    spark.stop()


def _processes() -> list[psutil.Process]:
    here = psutil.Process()
    return [here, *here.children(recursive=True)]


def cpu_s() -> float:
    """Return the CPU time of this process, of the JVM and of Spark's Python processes, ended ones too."""
    seconds = 0.0
    for each in _processes():
        with suppress(psutil.NoSuchProcess):  # it ended meanwhile: its parent has its time
            spent = each.cpu_times()
            seconds += spent.user + spent.system + spent.children_user + spent.children_system
    return seconds


def rss_mb() -> float:
    """Return the memory of all of them now: what they share is counted in each."""
    size_bytes = 0
    for each in _processes():
        with suppress(psutil.NoSuchProcess):
            size_bytes += each.memory_info().rss
    return size_bytes / 1e6
