"""Flights of a stream as a table: a supervisor, two task groups with replicas, a worker that is killed, and queries.

    python docs/examples/flight_table.py
    python docs/examples/flight_table.py --limit 50000

The flights are written while a supervisor ingests them, rolled up by day, carrier and airport. Two worker processes run
its tasks as Spark jobs. The lag scales it from one group to two. One worker is killed. At the end, the table equals a
direct computation over the file.
"""

from __future__ import annotations

import argparse
import csv
import json
import lzma
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from threading import Event
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users know it

import eventproc.spark
from eventproc import (
    AutoscalerConfig,
    DataSchema,
    Dimension,
    Granularity,
    IoConfig,
    Metric,
    MetricType,
    ScalingPolicy,
    SupervisorSpec,
    TimestampSpec,
    TuningConfig,
)
from eventproc.spark import AttachedEventproc

DATA: Final = Path(__file__).resolve().parents[2] / "data"
FLIGHTS, TABLE = "air/flights", "flights"

PAUSE: Final = Event()
"""Never set: a pause between two reports."""

SPEC: Final = SupervisorSpec(
    io=IoConfig(
        streams=(FLIGHTS,),
        replicas=2,
        task_duration_ms=20_000,
        start_delay_ms=0,
        period_ms=1_000,
        use_earliest_offset=True,
        autoscaler=AutoscalerConfig(  # minutes by default; here the program is over sooner
            task_count_min=1,
            task_count_max=2,
            lag_collection_interval_ms=1_000,
            lag_collection_range_ms=3_000,
            scale_action_period_ms=1_000,
            min_scale_up_delay_ms=1_000,
            scale_out_threshold=1_000,
            scale_out_step=1,
            scale_in_threshold=0,
            trigger_scale_in_fraction=1.0,
            min_scale_down_delay_ms=3_600_000,
        ),
    ),
    schema=DataSchema(
        datasource=TABLE,
        timestamp=TimestampSpec(column="time_hour"),
        dimensions=(Dimension(name="carrier"), Dimension(name="origin")),
        metrics=(
            Metric(name="flights", type=MetricType.COUNT),
            Metric(name="distance", type=MetricType.LONG_SUM, field="distance"),
        ),
        query_granularity=Granularity.DAY,
        segment_granularity=Granularity.MONTH,
    ),
    tuning=TuningConfig(intermediate_handoff_ms=5_000),
)


def say(text: str) -> None:
    """Print a line with the time."""
    sys.stdout.write(f"{time.strftime('%H:%M:%S')}  {text}\n")
    sys.stdout.flush()


def flights(path: Path, limit: int | None) -> list[dict[str, str]]:
    """Return the file's rows in the order of time."""
    with lzma.open(path, "rt", encoding="utf-8", newline="") as rows:
        return sorted(islice(csv.DictReader(rows), limit), key=lambda row: row["time_hour"])


def worker(directory: Path) -> subprocess.Popen[bytes]:
    """Start a process that runs tasks. In production: `eventproc ingest worker`, under systemd or in a container."""
    command = [sys.executable, "-m", "eventproc", "-C", str(directory), "ingest", "worker", "--slots", "4"]
    return subprocess.Popen([*command, "--master", "local[1]", "--log-level", "error"])


def totals(table: DataFrame) -> DataFrame:
    """Return the flights and miles of each day, carrier and airport. Published rows are partial sums."""
    day = F.to_date("__time").alias("day")
    return table.groupBy(day, "carrier", "origin").agg(
        F.sum("flights").alias("flights"), F.sum("distance").alias("distance")
    )


def direct(spark: SparkSession, rows: list[dict[str, str]]) -> DataFrame:
    """Return the same, computed by Spark from the rows of the file."""
    found = [(row["time_hour"], row["carrier"], row["origin"], int(row["distance"])) for row in rows]
    read = spark.createDataFrame(found, "time_hour string, carrier string, origin string, distance long")
    day = F.to_date(F.to_timestamp("time_hour")).alias("day")
    return read.groupBy(day, "carrier", "origin").agg(
        F.count("*").alias("flights"), F.sum("distance").alias("distance")
    )


def parts(rows: list[dict[str, str]], count: int) -> Iterator[list[dict[str, str]]]:
    """Yield the rows in so many parts."""
    size = -(-len(rows) // count)
    for at in range(0, len(rows), size):
        yield rows[at : at + size]


def write(ep: AttachedEventproc, rows: list[dict[str, str]]) -> None:
    """Append flights, keyed by aircraft."""
    with ep.stream(FLIGHTS).writer() as writer:
        writer.write_many((json.dumps(row).encode(), row["tailnum"]) for row in rows)


def report(ep: AttachedEventproc) -> int:
    """Print where the ingestion is, and return how many flights are published."""
    published = ep.table(TABLE).agg(F.sum("flights")).first()
    everything = ep.table(TABLE, realtime=True).agg(F.sum("flights")).first()
    assert published is not None and everything is not None, "an aggregation has a row"
    tasks = [each for each in ep.supervisor(TABLE).tasks() if each.finished_ms is None]
    groups = len({each.group for each in tasks})
    say(
        f"{groups} groups, {len(tasks)} tasks; flights: {published[0] or 0} published, {everything[0]} in all"
    )
    return published[0] or 0


def ingest(ep: AttachedEventproc, rows: list[dict[str, str]]) -> None:
    """Write the flights in parts, and wait until all are published. Kill a worker in between."""
    assert ep.path is not None, "a directory has a path"
    ep.create_scope("air")
    ep.create_stream(FLIGHTS, scaling=ScalingPolicy.fixed(4))
    workers = [worker(ep.path), worker(ep.path)]
    try:
        first, *rest = parts(rows, 4)
        write(ep, first)
        ep.submit_supervisor(SPEC)
        while report(ep) == 0:
            PAUSE.wait(1)
        for each in rest:
            write(ep, each)
        workers[0].kill()
        say(f"killed worker {workers[0].pid}")
        workers.append(worker(ep.path))
        while report(ep) < len(rows):
            PAUSE.wait(1)
    finally:
        for process in workers:
            process.send_signal(signal.SIGTERM)
        for process in workers:
            process.wait()


def run(spark: SparkSession, source: Path, output: Path, limit: int | None = None) -> bool:
    """Run the program, and return whether the table equals the direct computation."""
    rows = flights(source, limit)
    with eventproc.spark.attach(spark, output / "streams") as ep:
        ingest(ep, rows)
        ended = [each for each in ep.supervisor(TABLE).tasks() if each.finished_ms is not None]
        say(f"tasks that ended: {', '.join(sorted(each.state.value for each in ended)) or 'none'}")
        done = ep.compact_table(TABLE)
        say(f"compacted {done.files_before} files into {done.files_after}")
        table, wanted = totals(ep.table(TABLE)), direct(spark, rows)
        same = not table.exceptAll(wanted).count() and not wanted.exceptAll(table).count()
        carriers = table.groupBy("carrier").agg(F.sum("flights").alias("flights"))
        carriers.orderBy(F.desc("flights")).show(5)
        say(f"{table.count()} rows, {'equal to' if same else 'NOT equal to'} the direct computation")
    return same


def main() -> int:
    """Run the example."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--flights", type=Path, default=DATA / "flights.csv.xz", help="the file of flights")
    parser.add_argument("--limit", type=int, help="largest number of flights to write")
    arguments = parser.parse_args()
    output = Path(tempfile.mkdtemp(prefix="flight-table-"))
    spark = eventproc.spark.session(conf={"spark.sql.session.timeZone": "UTC"})
    try:
        return 0 if run(spark, arguments.flights, output, arguments.limit) else 1
    finally:
        spark.stop()
        shutil.rmtree(output)


if __name__ == "__main__":
    sys.exit(main())
