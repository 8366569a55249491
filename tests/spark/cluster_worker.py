"""A driver on a cluster: `python -m tests.spark.cluster_worker MASTER ADDRESS CHECKPOINT [CHUNKS]`.

Copies a stream into another, in batches, from an attached store, through `foreachBatch` and through the sink; ingests a
stream into a table, changes and reads that; and processes what was written. Prints how many executors read, and what
was processed, when Spark was stopped and the store is closed.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import SparkSession

import eventproc.spark
from eventproc.ingestion import IoConfig, SupervisorSpec
from eventproc.processors import App
from eventproc.spark import AttachedEventproc
from eventproc.spark.option_names import spark_address
from eventproc.store.ingestion import read_offsets
from eventproc.store.model.errors import Closed
from eventproc.store.model.policies import ScalingPolicy
from eventproc.store.segments import Event
from tests.spark.conftest import CHEAP
from tests.spark.ingestion_support import (
    CLICKS,
    HOUR_MS,
    STREAM as CLICKED,
    expected,
    rows_of,
    run_backfill,
    wait_until,
    worker_room,
    write_clicks,
)
from tests.spark.support import STREAM, write

OUT, SUNK = "s/out", "s/sunk"
EVENTS = 300


def main(master: str, address: str, checkpoint: str, chunks: str | None = None) -> None:
    conf = {
        "spark.driver.defaultJavaOptions": CHEAP,
        "spark.executor.defaultJavaOptions": CHEAP,
        "spark.executor.memory": "512m",
        "spark.cores.max": "2",
        "spark.sql.shuffle.partitions": "2",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "100s",
    }
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", CHEAP)
    spark = eventproc.spark.session(master=master, conf=conf)
    ep = eventproc.spark.attach(spark, address, durability="os", chunks=chunks)
    ep.create_scope("s")
    stream = ep.create_stream(STREAM, scaling=ScalingPolicy.fixed(2))
    for name in (OUT, SUNK):
        ep.create_stream(name, scaling=ScalingPolicy.fixed(2))
    write(stream, range(EVENTS))
    seen: list[int] = []

    reading = spark.readStream.format("eventproc").options(
        stream=STREAM, startingOffsets="earliest", maxEventsPerTrigger="150"
    )
    rows = reading.option("columns", "payload,key").load(address)
    queries = (
        rows.writeStream.foreachBatch(ep.writing(OUT, key="key")),
        rows.writeStream.format("eventproc").options(path=address, stream=SUNK),
    )
    for number, query in enumerate(queries):
        query = query.option("checkpointLocation", f"{checkpoint}/{number}").trigger(availableNow=True)
        assert query.start().awaitTermination(200)
    found = spark.read.format("eventproc").options(stream=OUT, minPartitions="6").load(address)
    readers = found.select("number").mapInArrow(who, "parent long").distinct().count()
    ingest(spark, ep, address)
    app = App()

    def count(event: Event) -> None:
        seen.append(int(event.payload))

    app.add(count, OUT, group="count")
    ep.start(app).wait_idle(timeout_ms=100_000)
    spark.stop()  # with an app that runs
    try:
        ep.scopes()
    except Closed:
        sys.stdout.write(json.dumps({"executors": readers, "seen": sorted(seen)}))


def ingest(spark: SparkSession, ep: AttachedEventproc, address: str) -> None:
    """Publish events in a table, twice, compact and overwrite it, and read it."""
    stream = ep.create_stream(CLICKED, scaling=ScalingPolicy.fixed(2))
    supervisor = None
    with worker_room(spark, spark_address(address)) as room:
        for numbers in (range(2000), range(2000, 3000)):
            write_clicks(stream, numbers)
            if supervisor is None:
                io = IoConfig(streams=(CLICKED,), use_earliest_offset=True, start_delay_ms=0, period_ms=500)
                supervisor = ep.submit_supervisor(SupervisorSpec(io=io, schema=CLICKS))
                wait_until(ep, lambda tx: len(read_offsets(tx, "clicks")) == 2)
            run_backfill(ep, room, supervisor.backfill())
        assert ep.compact_table("clicks").files_before > 1
        assert rows_of(ep.table("clicks")) == expected(range(3000))
        version = ep.table_version("clicks")
        kept = ep.table("clicks", version=version).where("page <> 'p0'")
        ep.overwrite_table("clicks", kept, start=0, end=HOUR_MS, version=version)
        found = spark.read.format("eventproc.table").option("table", "clicks").load(address)
        assert rows_of(found) == [row for row in expected(range(3000)) if row[1] != "p0"]
        room.tables.sweep(room.directory, room.directory.db.peers.is_alive)
        assert not list(room.tables.files.paths("_tasks"))


def who(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Say once for each batch which process forks the workers of this executor."""
    for _ in batches:
        yield pa.RecordBatch.from_pydict({"parent": [os.getppid()]})


if __name__ == "__main__":
    main(*sys.argv[1:])
