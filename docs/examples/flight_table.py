"""Flights of a stream as a table: a supervisor, two task groups with replicas, a worker that is killed, and queries.

    python docs/examples/flight_table.py
    python docs/examples/flight_table.py --limit 336776

The flights are written while a supervisor ingests them, rolled up by day, carrier and airport. Two worker processes run
its tasks as Spark jobs. The lag scales it from one group to two. One worker is killed. At the end, the table equals a
direct computation over the file. Memory holds one part of the flights, however many there are.
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
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from threading import Event
from typing import Final, TypeAlias

from pyspark.sql import (
    DataFrame,
    SparkSession,
    functions as F,  # noqa: N812 - as all of Spark's users know it
)

import eventproc.spark
from eventproc import ScalingPolicy
from eventproc.ingestion import (
    AutoscalerConfig,
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
from eventproc.spark import AttachedEventproc

DATA: Final = Path(__file__).resolve().parents[2] / "data"
FLIGHTS, TABLE = "air/flights", "flights"

LIMIT: Final = 20_000
"""Flights unless `--limit` says otherwise: some minutes on two cores."""

PART: Final = 5_000
"""Flights between two reports."""

Totals: TypeAlias = dict[tuple[str, str, str], tuple[int, int]]
"""{(day, carrier, origin): (flights, miles)}."""

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
            scale_out_threshold=200,
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


def flights(path: Path, limit: int) -> Iterator[dict[str, str]]:
    """Yield the first rows of the file."""
    with lzma.open(path, "rt", encoding="utf-8", newline="") as rows:
        yield from islice(csv.DictReader(rows), limit)


def worker(directory: Path) -> subprocess.Popen[bytes]:
    """Start a process that runs tasks. In production: `eventproc ingest worker`, under systemd or in a container."""
    command = [sys.executable, "-m", "eventproc", "-C", str(directory), "ingest", "worker", "--slots", "4"]
    return subprocess.Popen([*command, "--master", "local[1]", "--log-level", "error"])


def totals(table: DataFrame) -> Totals:
    """Return what the table says. Its rows are partial sums, so they are added up."""
    sums = table.groupBy(F.to_date("__time").cast("string"), "carrier", "origin").agg(
        F.sum("flights"), F.sum("distance")
    )
    return {(row[0], row[1], row[2]): (row[3], row[4]) for row in sums.toLocalIterator()}


def direct(rows: Iterable[dict[str, str]]) -> Totals:
    """Return the same, computed without any of it."""
    found: Totals = defaultdict(lambda: (0, 0))
    for row in rows:
        key = row["time_hour"][:10], row["carrier"], row["origin"]
        count, miles = found[key]
        found[key] = count + 1, miles + int(row["distance"])
    return dict(found)


def write(ep: AttachedEventproc, rows: Iterable[dict[str, str]]) -> int:
    """Append flights, keyed by aircraft, and return how many."""
    with ep.stream(FLIGHTS).writer() as writer:
        return writer.write_many((json.dumps(row).encode(), row["tailnum"]) for row in rows)


def report(ep: AttachedEventproc) -> int:
    """Print where the ingestion is, and return how many flights are published."""
    published, everything = counted(ep.table(TABLE)), counted(ep.table(TABLE, realtime=True))
    status = ep.supervisor(TABLE).status()
    tasks = len(status.active) + len(status.publishing)
    say(f"{status.task_count} groups, {tasks} tasks; flights: {published} published, {everything} in all")
    return published


def counted(table: DataFrame) -> int:
    """Return the flights of a table."""
    row = table.agg(F.sum("flights")).first()
    assert row is not None, "an aggregation has a row"
    return row[0] or 0


def ingest(ep: AttachedEventproc, rows: Iterator[dict[str, str]], part: int) -> None:
    """Write the flights in parts, and wait until all are published. Kill a worker in between."""
    assert ep.path is not None, "a directory has a path"
    ep.create_scope("air")
    ep.create_stream(FLIGHTS, scaling=ScalingPolicy.fixed(4))
    workers = [worker(ep.path), worker(ep.path)]
    try:
        written = write(ep, islice(rows, part))
        ep.submit_supervisor(SPEC)
        while report(ep) == 0:
            PAUSE.wait(1)
        written += write(ep, islice(rows, part))
        workers[0].kill()  # SIGKILL
        say(f"killed worker {workers[0].pid}, with its tasks")
        workers.append(worker(ep.path))
        while count := write(ep, islice(rows, part)):
            written += count
            report(ep)
        while report(ep) < written:
            PAUSE.wait(1)
    finally:
        for process in workers:
            process.send_signal(signal.SIGTERM)
        for process in workers:
            process.wait()


def run(spark: SparkSession, source: Path, output: Path, limit: int = LIMIT, part: int = PART) -> bool:
    """Run the program, and return whether the table equals the direct computation."""
    with eventproc.spark.attach(spark, output / "streams") as ep:
        ingest(ep, flights(source, limit), part)
        ended = Counter(each.state.value for each in ep.supervisor(TABLE).tasks() if each.finished_ms)
        say("tasks that ended: " + ", ".join(f"{count} {state}" for state, count in sorted(ended.items())))
        done = ep.compact_table(TABLE)
        say(f"compacted {done.files_before} files into {done.files_after}")
        found, wanted = totals(ep.table(TABLE)), direct(flights(source, limit))
        same = found == wanted
        say(f"{len(found)} rows, {'equal to' if same else 'NOT equal to'} the direct computation")
    return same


def main() -> int:
    """Run the example."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--flights", type=Path, default=DATA / "flights.csv.xz", help="the file of flights")
    parser.add_argument("--limit", type=int, default=LIMIT, help="largest number of flights to write")
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
