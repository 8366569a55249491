"""A driver to be killed: `python -m tests.spark.driver DIRECTORY CHECKPOINT OUTPUT` copies a stream to Parquet.

Says "batch N" on stdout for each batch that is done.
"""

from __future__ import annotations

import os
import sys

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from eventproc.spark import session
from tests.spark.conftest import CHEAP
from tests.spark.streams import STREAM


class Saying(StreamingQueryListener):
    """Says which batches are done."""

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        sys.stdout.write(f"batch {event.progress.batchId}\n")
        sys.stdout.flush()

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        pass


def main(directory: str, checkpoint: str, output: str) -> None:
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", CHEAP)
    spark = session(master="local[2]", conf={"spark.driver.defaultJavaOptions": CHEAP})
    spark.streams.addListener(Saying())
    reading = spark.readStream.format("eventproc").options(
        stream=STREAM, startingOffsets="earliest", maxEventsPerTrigger="100"
    )
    writing = reading.load(directory).writeStream.format("parquet").option("checkpointLocation", checkpoint)
    writing.trigger(availableNow=True).start(output).awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
