"""A driver that measures its query by OpenTelemetry: `python -m tests.spark.measured_driver DIRECTORY`.

Says what is exported, as JSON, when two events are not read.
"""

from __future__ import annotations

import os
import sys
from threading import Event

from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from pyspark.sql import DataFrame

from eventproc.spark import attach, session
from tests.spark.conftest import CHEAP


def main(directory: str) -> None:
    reader, released = InMemoryMetricReader(), Event()

    def hold_later_batches(_: DataFrame, batch_id: int) -> None:
        if batch_id:
            released.wait()

    metrics.set_meter_provider(MeterProvider([reader]))
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", CHEAP)
    spark = session(master="local[2]", conf={"spark.driver.defaultJavaOptions": CHEAP})
    with attach(spark, directory) as ep:
        ep.create_scope("s")
        stream = ep.create_stream("s/t")
        with stream.writer() as writer:
            writer.write_many((b"%d" % number, None) for number in range(10))
        frame = spark.readStream.format("eventproc").option("path", directory).option("stream", "s/t").load()
        query = frame.writeStream.foreachBatch(hold_later_batches).queryName("copy").start()
        query.processAllAvailable()
        with stream.writer() as writer:
            writer.write_many((b"%d" % number, None) for number in range(2))
        found = reader.get_metrics_data()
        assert found is not None
        released.set()
        query.stop()
        sys.stdout.write(found.to_json(indent=None))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
