"""Jobs of Spark that write and read a stream once, beside the same work with Spark's own formats; seconds.

A session of two cores in each process. Each job runs once before it is timed, so that the JVM has compiled its code
and the workers have imported theirs, and then REPETITIONS_COUNT times. The median counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median, quantiles
from typing import Final

from pyspark.sql import DataFrame, Row
from pyspark.sql.types import StructType

from benchmarks.samples import Sample, Task
from benchmarks.spark import (
    FEED_S,
    SEGMENTS_COUNT,
    STREAM,
    WARM_BATCHES_COUNT,
    SparkBench,
    cpu_s,
    rss_mb,
    session,
)
from eventproc import ScalingPolicy

REPETITIONS_COUNT: Final = 3
"""Timed runs in a process."""

ROW: Final = (
    "concat('customer-', id % 1000) AS customer",
    "id",
    "id / 7 AS amount",
    "id % 3 = 0 AS paid",
    "timestamp_seconds(1700000000 + id) AS at",
    "named_struct('city', concat('city ', id % 97), 'zip', id % 9999) AS place",
    "CASE WHEN id % 5 > 0 THEN concat('note ', id) END AS note",
)
"""A row of several types, one of them nested and one often null: about 175 bytes as JSON."""


async def json_sink(task: Task) -> Sample:
    """Rows as JSON into a stream."""
    with _session(task) as bench:
        rows = _rows(bench, task.count)
        return _timed(task, lambda _: _write(bench, rows, key="customer"))


async def json_sink_by_hand(task: Task) -> Sample:
    """The same rows, made into JSON by Spark, as payloads into a stream."""
    with _session(task) as bench:
        rows = _payloads(_rows(bench, task.count))
        return _timed(task, lambda _: _write(bench, rows))


async def sink(task: Task) -> Sample:
    """Payloads and keys into a stream."""
    with _session(task) as bench:
        rows = _payloads(_rows(bench, task.count)).persist()
        rows.count()
        return _timed(task, lambda _: _write(bench, rows))


async def parquet_sink(task: Task) -> Sample:
    """Payloads and keys into Parquet."""
    with _session(task) as bench:
        rows = _payloads(_rows(bench, task.count)).persist()
        rows.count()
        return _timed(task, lambda number: rows.write.parquet(str(bench.folder / f"copy-{number}")))


async def batch_read(task: Task) -> Sample:
    """Payloads and keys out of a stream."""
    with _filled(task) as bench:
        return _timed(task, lambda _: _drop(_read(bench, columns="payload,key")))


async def parquet_read(task: Task) -> Sample:
    """Payloads and keys out of Parquet."""
    with _filled(task) as bench:
        return _timed(task, lambda _: _drop(_parquet(bench)))


async def typed_read(task: Task) -> Sample:
    """The fields of JSON payloads out of a stream."""
    with _filled(task) as bench:
        schema = _schema(bench)
        return _timed(task, lambda _: _drop(_read(bench, schema=schema.json())))


async def parquet_typed_read(task: Task) -> Sample:
    """The fields of JSON payloads out of Parquet, by `from_json`."""
    with _filled(task) as bench:
        schema = _schema(bench).simpleString()
        parsed = f"from_json(CAST(payload AS STRING), '{schema}') AS row"
        return _timed(task, lambda _: _drop(_parquet(bench).selectExpr(parsed).select("row.*")))


async def first_read(task: Task) -> Sample:
    """Payloads and keys of events that are in no chunk file yet."""
    with _session(task) as bench:
        stream = bench.ep.stream(STREAM)
        _drop(_read(bench, columns="payload,key"))
        payloads = [(b"%08d" % each).ljust(175, b".") for each in range(task.count)]

        def write() -> None:
            stream.truncate(stream.tail())
            with stream.writer() as writer:
                writer.write_many((payload, f"customer-{at % 1000}") for at, payload in enumerate(payloads))

        return _timed(task, lambda _: _drop(_read(bench, columns="payload,key")), before=write)


async def query(task: Task) -> Sample:
    """An AvailableNow query over a stream, from its start to its end."""
    with _filled(task) as bench:
        return _timed(task, lambda number: _query(bench, bench.stream(), number))


async def parquet_query(task: Task) -> Sample:
    """An AvailableNow query over Parquet, from its start to its end."""
    with _filled(task) as bench:
        return _timed(task, lambda number: _query(bench, bench.parquet(), number))


async def latency_p50(task: Task) -> Sample:
    """From the write of an event to its handler in `foreachBatch`; the median."""
    return _of_latencies(task, median, _stream_latencies)


async def latency_p99(task: Task) -> Sample:
    """The same; one event in a hundred takes longer."""
    return _of_latencies(task, _p99, _stream_latencies)


async def rate_latency_p50(task: Task) -> Sample:
    """From the time of a row of Spark's rate source to its handler; the median."""
    return _of_latencies(task, median, _rate_latencies)


async def rate_latency_p99(task: Task) -> Sample:
    """The same; one row in a hundred takes longer."""
    return _of_latencies(task, _p99, _rate_latencies)


@contextmanager
def _session(task: Task) -> Iterator[SparkBench]:
    with session(task) as bench:
        bench.ep.create_stream(STREAM, scaling=ScalingPolicy.fixed(SEGMENTS_COUNT))
        yield bench


@contextmanager
def _filled(task: Task) -> Iterator[SparkBench]:
    """Give a session, and `count` events in a stream and in Parquet."""
    with _session(task) as bench:
        _write(bench, _payloads(_rows(bench, task.count)))
        bench.parquet()
        yield bench


def _rows(bench: SparkBench, rows_count: int) -> DataFrame:
    return bench.spark.range(0, rows_count, 1, 2).selectExpr(*ROW)


def _payloads(rows: DataFrame) -> DataFrame:
    return rows.selectExpr("to_json(struct(*)) AS payload", "customer AS key")


def _write(bench: SparkBench, rows: DataFrame, **options: str) -> None:
    asked = {"path": str(bench.ep.path), "stream": STREAM, **options}
    rows.write.format("eventproc").mode("append").options(**asked).save()


def _read(bench: SparkBench, **options: str) -> DataFrame:
    return bench.spark.read.format("eventproc").options(stream=STREAM, **options).load(str(bench.ep.path))


def _parquet(bench: SparkBench) -> DataFrame:
    return bench.spark.read.parquet(str(bench.folder / "source"))


def _query(bench: SparkBench, rows: DataFrame, number: int) -> None:
    bench.batches(f"{number}", rows.writeStream.format("noop"))


def _schema(bench: SparkBench) -> StructType:
    return _rows(bench, 1).schema


def _drop(rows: DataFrame) -> None:
    rows.write.format("noop").mode("overwrite").save()


def _timed(task: Task, work: Callable[[int], object], *, before: Callable[[], None] = lambda: None) -> Sample:
    took_s: list[float] = []
    spent_s = cpu_s()
    for number in range(1 + REPETITIONS_COUNT):
        before()
        began = time.perf_counter()
        work(number)
        took_s.append(time.perf_counter() - began)
    cpu_us = (cpu_s() - spent_s) * 1e6 / (task.count * len(took_s))
    return Sample(value=median(took_s[1:]), cpu_us=cpu_us, rss_mb=rss_mb())


def _of_latencies(
    task: Task, figure: Callable[[list[float]], float], measure: Callable[[Task, SparkBench], list[float]]
) -> Sample:
    with _session(task) as bench:
        before_s = cpu_s()
        found = measure(task, bench)
        cpu_us = (cpu_s() - before_s) * 1e6 / len(found)
        return Sample(value=figure(found), cpu_us=cpu_us, rss_mb=rss_mb())


def _p99(seconds: list[float]) -> float:
    return quantiles(seconds, n=100)[-1]


class _Latencies:
    """A handler for `foreachBatch` that notes how long each row took to it, after WARM_BATCHES_COUNT batches."""

    def __init__(self, time_of: Callable[[Row], float]) -> None:
        self.seconds: list[float] = []
        self._time_of = time_of
        self._batches_count = 0

    def __call__(self, batch: DataFrame, _: int) -> None:
        rows = batch.collect()
        now = time.time()
        self._batches_count += bool(rows)
        if self._batches_count > WARM_BATCHES_COUNT:
            self.seconds += [now - self._time_of(row) for row in rows]


def _stream_latencies(task: Task, bench: SparkBench) -> list[float]:
    """Write an event every FEED_S, and return how long each took to its handler."""
    handler = _Latencies(lambda row: float(bytes(row.payload)))
    query = bench.stream().writeStream.foreachBatch(handler)
    running = query.option("checkpointLocation", str(bench.folder / "checkpoint")).start()
    with bench.ep.stream(STREAM).writer() as writer:
        while len(handler.seconds) < task.count:
            writer.write(b"%.6f" % time.time(), key="customer")
            time.sleep(FEED_S)
    running.stop()
    return handler.seconds


def _rate_latencies(task: Task, bench: SparkBench) -> list[float]:
    """Let Spark make as many rows a second, and return how long each took to its handler."""
    handler = _Latencies(lambda row: row.timestamp.timestamp())
    rows = bench.spark.readStream.format("rate").option("rowsPerSecond", round(1 / FEED_S)).load()
    query = rows.writeStream.foreachBatch(handler)
    running = query.option("checkpointLocation", str(bench.folder / "checkpoint")).start()
    while len(handler.seconds) < task.count:
        time.sleep(FEED_S)
    running.stop()
    return handler.seconds
