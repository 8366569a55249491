"""An ingestion task with roll-up, beside the same aggregation written by hand as one Spark job over the same stream.

Ours reads in slices, keeps statistics, merges, and publishes durably; the hand-written job reads all in one pass, and
writes Parquet by day. Both read chunk files that an earlier run, which is not timed, exported, and both run in a
session with a worker's settings, whose start is not timed. A timed task follows others, as after a hand-over: it begins
with the size of a slice that these have found.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Final

from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users know it

from benchmarks.samples import Sample, Task
from benchmarks.spark import SparkBench, cpu_s, rss_mb, session
from eventproc import ScalingPolicy
from eventproc.ingestion import (
    DataSchema,
    Dimension,
    Granularity,
    IoConfig,
    Metric,
    MetricType,
    SupervisorSpec,
    TimestampSpec,
    TuningConfig,
)
from eventproc.spark.ingestion.files import TableFiles
from eventproc.spark.ingestion.task import TaskRun, WorkerRoom
from eventproc.spark.ingestion.worker import SETTINGS
from eventproc.spark.planner_directory import PlannerDirectory
from eventproc.store.database import Tx
from eventproc.store.ingestion import TaskOrder, claim_tasks, find_task, register_worker
from eventproc.store.ingestion.rows import (
    IngestOffset,
    write_group,
    write_offset,
    write_sequence,
    write_stream,
    write_task,
)
from eventproc.store.model.ingestion import (
    IngestGroup,
    IngestGroupState,
    IngestSequence,
    IngestTask,
    SequenceState,
    TaskState,
)
from eventproc.store.segments.holds import HOLD_MS

STREAM: Final = "bench/clicks"
SEGMENTS_COUNT: Final = 4
WARM_COUNT: Final = 2
REPETITIONS_COUNT: Final = 3

PAGES_COUNT: Final = 200
DAY_S: Final = 86_400

SCHEMA: Final = DataSchema(
    datasource="clicks",
    timestamp=TimestampSpec(column="at"),
    dimensions=(Dimension(name="page"),),
    metrics=(
        Metric(name="clicks", type=MetricType.COUNT),
        Metric(name="ms", type=MetricType.LONG_SUM, field="ms"),
    ),
    query_granularity=Granularity.HOUR,
    segment_granularity=Granularity.DAY,
)


async def ingest(task: Task) -> Sample:
    """A task that reads the stream to its tail and publishes; events/s."""
    with session(task, SETTINGS) as bench:
        _fill(bench, task.count)
        path = bench.ep.path
        assert path is not None
        with PlannerDirectory(path, hold_ms=HOLD_MS) as directory:
            instance = directory.db.instance_id
            directory.write(lambda tx: register_worker(tx, instance, 1))
            room = WorkerRoom(bench.spark, directory, TableFiles(directory))
            return _measured(task, lambda number: _ingest_once(bench, room, f"bench-{number}"))


async def by_hand(task: Task) -> Sample:
    """The same rows by one job; events/s."""
    with session(task, SETTINGS) as bench:
        _fill(bench, task.count)
        return _measured(task, lambda number: _aggregate_once(bench, bench.folder / f"by-hand-{number}"))


def _measured(task: Task, once: Callable[[int], None]) -> Sample:
    for number in range(WARM_COUNT):
        once(number)
    before_s = cpu_s()
    took_s = []
    for number in range(WARM_COUNT, WARM_COUNT + REPETITIONS_COUNT):
        began = time.perf_counter()
        once(number)
        took_s.append(time.perf_counter() - began)
    cpu_us = (cpu_s() - before_s) * 1e6 / (task.count * REPETITIONS_COUNT)
    return Sample(value=task.count / median(took_s), cpu_us=cpu_us, rss_mb=rss_mb())


def _fill(bench: SparkBench, count: int) -> None:
    stream = bench.ep.create_stream(STREAM, scaling=ScalingPolicy.fixed(SEGMENTS_COUNT))
    with stream.writer() as writer:
        writer.write_many(_clicks(count))


def _clicks(count: int) -> Iterator[tuple[bytes, str]]:
    """Yield clicks of ten days, in the order of time."""
    for number in range(count):
        at_ms = number * 10 * DAY_S * 1000 // count
        page = f"/page/{number * 7919 % PAGES_COUNT}"
        click = {"at": at_ms, "page": page, "ms": number % 500, "agent": "Mozilla/5.0", "user": number % 9973}
        yield json.dumps(click).encode(), f"user-{number % 9973}"


def _aggregate_once(bench: SparkBench, output: Path) -> None:
    source = bench.spark.read.format("eventproc").options(
        stream=STREAM, schema="at long, page string, ms long"
    )
    clicks = source.load(str(bench.ep.path))
    hour = F.timestamp_millis(F.col("at") - F.pmod("at", F.lit(3_600_000))).alias("__time")
    rows = clicks.groupBy(hour, "page").agg(F.count("*").alias("clicks"), F.sum("ms").alias("ms"))
    rows.withColumn("day", F.to_date("__time")).repartition("day").write.partitionBy("day").parquet(
        str(output)
    )


def _ingest_once(bench: SparkBench, room: WorkerRoom, supervisor: str) -> None:
    """Run one task of a group that reads everything. A supervisor of its own, so that offsets begin at the heads."""
    spec = SupervisorSpec(
        io=IoConfig(streams=(STREAM,)), schema=SCHEMA, tuning=TuningConfig(), id=supervisor
    ).validate()
    stream = bench.ep.stream(STREAM)
    head, tail = stream.head(), stream.tail()
    starts = {(head.stream_id, segment): offset for segment, offset in head.offsets.items()}
    ends = {(tail.stream_id, segment): offset for segment, offset in tail.offsets.items()}

    def begin(tx: Tx) -> list[TaskOrder]:
        write_stream(tx, supervisor, STREAM, head.stream_id)
        for key, start in starts.items():
            write_offset(tx, supervisor, key, IngestOffset(start, 0))
        group = IngestGroup(
            base=supervisor,
            supervisor=supervisor,
            gid=0,
            version=1,
            fingerprint=spec.fingerprint,
            state=IngestGroupState.PENDING,
            created_ms=tx.now_ms,
            starts=starts,
            ends=ends,
        )
        write_group(tx, group)
        state = SequenceState.CLOSED
        write_sequence(tx, IngestSequence(base=supervisor, n=0, starts=starts, ends=ends, state=state))
        waiting = IngestTask(
            id=f"{supervisor}-task",
            supervisor=supervisor,
            base=supervisor,
            replica=0,
            state=TaskState.WAITING,
            worker=None,
            n=0,
            read={},
            planned={},
            created_ms=tx.now_ms,
        )
        write_task(tx, waiting)
        return claim_tasks(tx, room.instance, 1, lambda _: True)

    (order,) = room.directory.write(begin)
    run = TaskRun(order, spec, room)
    run.start()
    run.join()
    found = room.directory.read(lambda tx: find_task(tx, run.id))
    assert found is not None and found.state is TaskState.SUCCEEDED, f"the task failed: {found}"
