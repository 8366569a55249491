"""A driver to be killed: `python -m tests.spark.flights_worker STEP FLIGHTS_FILE DIRECTORY CHECKPOINTS BATCH_EVENTS`.

STEP is one of `STEPS`. Says "job" on stdout when a job of Spark is running, and "batch N" for each batch that is done.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from threading import Event, Thread
from typing import Final

from pyspark.sql import (
    SparkSession,
    functions as F,  # noqa: N812 - its usual name
)

from eventproc.spark import session
from tests.spark.conftest import CHEAP
from tests.spark.worker import Saying

RAW: Final = "air/raw"
COPIED: Final = "air/copied"
STREAMED: Final = "air/streamed"

KEY: Final = "tailnum"
EVENTS: Final = "payload,key"

LOOK_S: Final = 0.02
"""Pause between two looks at the jobs of the session, which announces none."""

_ENDED: Final = Event()


def load(spark: SparkSession, file: str, directory: str, checkpoints: str, events: str) -> None:
    """Write the rows of the file into a stream, as one batch of a batch job."""
    # The number of the row is in the event; a key's rows are in one task, in the order of the file.
    rows = (
        spark.read.option("header", True)
        .csv(file)
        .repartition(4, KEY)
        .sortWithinPartitions(F.col("row").cast("int"))
    )
    writing = rows.write.format("eventproc").mode("append")
    writing.options(stream=RAW, key=KEY, sink="load", batch="1").save(directory)


def copy(spark: SparkSession, file: str, directory: str, checkpoints: str, events: str) -> None:
    """Copy the stream into another, as one batch of a batch job."""
    reading = spark.read.format("eventproc").options(stream=RAW, columns=EVENTS)
    writing = reading.load(directory).write.format("eventproc").mode("append")
    writing.options(stream=COPIED, sink="copy", batch="1").save(directory)


def stream(spark: SparkSession, file: str, directory: str, checkpoints: str, events: str) -> None:
    """Copy the stream into a third one, in batches of a query."""
    reading = spark.readStream.format("eventproc").options(
        stream=RAW, columns=EVENTS, startingOffsets="earliest", maxEventsPerTrigger=events
    )
    writing = reading.load(directory).writeStream.format("eventproc").queryName("batch")
    writing = writing.options(stream=STREAMED, checkpointLocation=checkpoints).trigger(availableNow=True)
    writing.start(directory).awaitTermination()


STEPS: Final[dict[str, Callable[[SparkSession, str, str, str, str], None]]] = {
    "load": load,
    "copy": copy,
    "stream": stream,
}


def main(step: str, *arguments: str) -> None:
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", CHEAP)
    spark = session(master="local[2]", conf={"spark.driver.defaultJavaOptions": CHEAP})
    spark.streams.addListener(Saying())
    looking = Thread(target=_say_job, args=(spark,))
    looking.start()
    try:
        STEPS[step](spark, *arguments)
    finally:
        _ENDED.set()
        looking.join()
        spark.stop()


def _say_job(spark: SparkSession) -> None:
    while not _ENDED.wait(LOOK_S):
        if spark.sparkContext.statusTracker().getActiveStageIds():
            sys.stdout.write("job\n")
            sys.stdout.flush()
            return


if __name__ == "__main__":
    main(*sys.argv[1:])
