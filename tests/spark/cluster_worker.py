"""A driver on a cluster: `python -m tests.spark.cluster_worker MASTER ADDRESS CHECKPOINT [CHUNKS]`.

Copies a stream into another, in batches, from an attached store, through `foreachBatch` and through the sink, and
processes what was written. Prints how many executors read, and what was processed, when Spark was stopped and the
store is closed.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator

import pyarrow as pa

import eventproc.spark
from eventproc.processors import App
from eventproc.store.model.errors import Closed
from eventproc.store.model.policies import ScalingPolicy
from eventproc.store.segments import Event
from tests.spark.conftest import CHEAP
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
        stream=STREAM, startingOffsets="earliest", maxEventsPerTrigger="100"
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


def who(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Say once for each batch which process forks the workers of this executor."""
    for _ in batches:
        yield pa.RecordBatch.from_pydict({"parent": [os.getppid()]})


if __name__ == "__main__":
    main(*sys.argv[1:])
