"""A driver to be killed: `python -m tests.spark.worker DIRECTORY CHECKPOINTS` copies a stream to Parquet and a stream.

Says "NAME N" on stdout for each batch that is done; NAME is "parquet" or "stream".
"""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)
from pyspark.sql.streaming.query import StreamingQuery

from eventproc.spark import session
from tests.spark.conftest import CHEAP
from tests.spark.support import STREAM

COPY = "s/copy"
COLUMNS = "payload,key,segment,number"


class Saying(StreamingQueryListener):
    """Says which batches are done."""

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        sys.stdout.write(f"{event.progress.name} {event.progress.batchId}\n")
        sys.stdout.flush()

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        pass


def start(spark: SparkSession, directory: str, checkpoints: str, *, events: int) -> list[StreamingQuery]:
    """Start both queries, which read so many events a batch, and end."""
    reading = spark.readStream.format("eventproc").options(
        stream=STREAM, startingOffsets="earliest", maxEventsPerTrigger=str(events), columns=COLUMNS
    )
    queries = []
    for name, kind, output in (
        ("parquet", "parquet", f"{checkpoints}/output"),
        ("stream", "eventproc", directory),
    ):
        writing = reading.load(directory).writeStream.format(kind).queryName(name)
        if kind == "eventproc":
            writing = writing.option("stream", COPY)
        writing = writing.option("checkpointLocation", f"{checkpoints}/{name}").trigger(availableNow=True)
        queries.append(writing.start(output))
    return queries


def main(directory: str, checkpoints: str) -> None:
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", CHEAP)
    spark = session(master="local[2]", conf={"spark.driver.defaultJavaOptions": CHEAP})
    spark.streams.addListener(Saying())
    for query in start(spark, directory, checkpoints, events=100):
        query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
