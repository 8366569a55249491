"""A driver that stops Spark in the middle of work that never ends: `python -m tests.spark.stopping_driver DIRECTORY`.

Says what each of its threads raised, and "stopped" when Spark and the directory are closed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from threading import Event, Thread

from pyspark.sql import DataFrame, SparkSession

from eventproc.processors import App
from eventproc.spark import AttachedEventproc, attach, session
from eventproc.store.segments import Event as StreamEvent
from tests.spark.conftest import CHEAP

PATIENCE_S = 60


def say(name: str, work: Callable[[], object]) -> None:
    """Do the work and say the error that ended it."""
    try:
        work()
    except Exception as why:
        sys.stdout.write(f"{name} {type(why).__name__}\n")


def follow(ep: AttachedEventproc, begun: Event) -> None:
    """Read the stream for ever."""
    with ep.stream("s/t").reader() as reader:
        for _ in reader:
            begun.set()


def endless_job(spark: SparkSession, begun: Event) -> None:
    """Run a job that never ends."""
    begun.set()
    spark.range(10**15, numPartitions=1).selectExpr("sum(id % 7)").collect()


def main(directory: str) -> None:
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", CHEAP)
    spark = session(
        master="local[2]",
        conf={"spark.driver.defaultJavaOptions": CHEAP, "spark.sql.streaming.stopTimeout": "1s"},
    )
    ep = attach(spark, Path(directory), durability="os")
    ep.create_scope("s")
    with ep.create_stream("s/t").writer() as writer:
        writer.write(b"first", key="k")
    begun = {name: Event() for name in ("thread", "job", "batch", "handler")}

    def handle(batch: DataFrame, batch_id: int) -> None:
        say("batch", partial(follow, ep, begun["batch"]))

    def process(event: StreamEvent) -> None:
        say("handler", partial(follow, ep, begun["handler"]))

    app = App()
    app.add(process, "s/t")
    ep.start(app, grace_ms=0)
    for _ in range(2):
        spark.readStream.format("rate").load().writeStream.foreachBatch(handle).start()
    ep.reading({"s/t": {"0.0": (0, 0)}}).__enter__()  # never left
    threads = [
        Thread(target=say, args=["thread", partial(follow, ep, begun["thread"])]),
        Thread(target=say, args=["job", partial(endless_job, spark, begun["job"])]),
    ]
    for thread in threads:
        thread.start()
    for name, event in begun.items():
        assert event.wait(PATIENCE_S), name
    spark.stop()
    for thread in threads:
        thread.join()
    say("directory", ep.scopes)
    sys.stdout.write("stopped\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
