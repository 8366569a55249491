"""DataFrames into streams, through Spark: batch and streaming, restarted, and with a lost checkpoint."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from eventproc.blocking import BlockingEventproc, BlockingStream
from eventproc.spark import committed
from eventproc.store.model.policies import ScalingPolicy
from tests.spark.sink_support import events_of, numbers_of
from tests.spark.support import STREAM, growing, write

COPY = "s/copy"


@pytest.fixture
def copy(ep: BlockingEventproc) -> BlockingStream:
    return ep.create_stream(COPY, scaling=ScalingPolicy.fixed(3))


def save(frame: DataFrame, path: Path, **options: str) -> None:
    frame.write.format("eventproc").mode("append").options(**{"stream": STREAM, **options}).save(str(path))


def copy_now(spark: SparkSession, path: Path, checkpoint: Path, **options: str) -> None:
    """Copy what is there from the one stream to the other, by a query that ends."""
    given = {"startingOffsets": "earliest", "columns": "payload,key,event_time,headers", **options}
    reading = spark.readStream.format("eventproc").options(stream=STREAM, **given).load(str(path))
    writing = reading.writeStream.format("eventproc").options(stream=COPY, sink="copy")
    query = writing.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start(str(path))
    assert query.awaitTermination(120), "the query did not end"


def test_rows_become_keyed_events_and_a_named_batch_is_written_once(
    spark: SparkSession, stream: BlockingStream, path: Path
) -> None:
    frame = spark.sql("SELECT concat('k', id % 5) AS carrier, id / 2 AS delay FROM range(100)")
    for _ in range(2):
        save(frame, path, key="carrier", sink="import", batch="7")
    read = spark.read.format("eventproc").options(stream=STREAM, schema="carrier string, delay double")
    rows = read.option("columns", "key").load(str(path)).collect()
    assert sorted((row.delay, row.carrier, row.key) for row in rows) == [
        (each / 2, f"k{each % 5}", f"k{each % 5}") for each in range(100)
    ]


def test_query_that_copies_a_stream_survives_a_death_and_a_lost_checkpoint(
    spark: SparkSession, stream: BlockingStream, copy: BlockingStream, path: Path, tmp_path: Path
) -> None:
    with stream.writer() as writer:
        writer.post(b"000000", key="ü", event_time=-1, headers={"a": "ß"})
    write(stream, range(1, 1000))
    copy_now(spark, path, tmp_path / "checkpoint", maxEventsPerTrigger="600")
    copy.split(copy.segments()[0].id)
    write(stream, range(1000, 1500))
    for file in ("1", ".1.crc"):  # as if Spark had died between the sink's commit and its own
        (tmp_path / "checkpoint" / "commits" / file).unlink()
    copy_now(spark, path, tmp_path / "checkpoint")
    write(stream, range(1500, 1600))
    known = committed(path, COPY, "copy")
    assert known is not None
    assert known["batch"] == 2
    copy_now(spark, path, tmp_path / "new", startingOffsets=json.dumps(known["offsets"][0]))
    found = events_of(copy)
    assert sorted(numbers_of(found)) == list(range(1600))
    assert growing(found)
    (first,) = [event for event in found if event.key == "ü"]
    assert (first.payload, first.event_time, first.headers) == (b"000000", -1, {"a": "ß"})


def test_copy_of_a_topic_through_spark_has_equal_events_in_equal_partitions(
    spark: SparkSession, ep: BlockingEventproc, path: Path
) -> None:
    topic, copy = (ep.create_topic(name, partitions=3) for name in (STREAM, COPY))
    topic.add_partitions(1)
    copy.add_partitions(1)
    with topic.producer() as producer:
        producer.post(b"1", key="ü", event_time=-1, headers={"a": "ß", "b": ""}, partition=3)
        producer.post(b"", partition=0)
        producer.post(b"3", key="ü", event_time=1_700_000_000_123)
        producer.post(b"4", headers={"a": "1"}, partition=2)
    names = "payload,key,timestamp,scope,stream,segment,offset,number,event_time,headers,partition"
    found = spark.read.format("eventproc").options(stream=STREAM, columns=names).load(str(path))
    save(found, path, stream=COPY)

    def parts(stream: BlockingStream) -> list[tuple[object, ...]]:
        return sorted(
            (each.partition, each.number, each.payload, each.key, each.event_time, each.headers)
            for each in events_of(stream)
        )

    assert parts(copy) == parts(topic)
    assert len(parts(copy)) == 4
    ep.create_stream("s/plain")
    with pytest.raises(PySparkException, match="s/plain is not a topic"):
        save(found, path, stream="s/plain")


@pytest.mark.acceptance("Q16")
def test_unwritable_stream_is_refused_before_the_job_starts(
    spark: SparkSession, stream: BlockingStream, path: Path
) -> None:
    for options, named in (({"stream": "s/none"}, "s/none"), ({"key": "id"}, "cast it")):
        with pytest.raises(PySparkException, match=named):
            save(spark.range(1), path, **options)
    assert events_of(stream) == []


@pytest.mark.acceptance(
    "Q17",
    differs="Spark offers sources in Python neither update mode nor CREATE TABLE",
)
def test_view_in_sql_reads_a_stream_and_appends_to_it(
    spark: SparkSession, stream: BlockingStream, path: Path
) -> None:
    options = f"OPTIONS (path '{path}', stream '{STREAM}', columns 'payload,key')"
    with pytest.raises(PySparkException, match="CREATE TEMPORARY VIEW"):
        spark.sql(f"CREATE TABLE events USING eventproc {options}")
    spark.sql(f"CREATE TEMPORARY VIEW events USING eventproc {options}")
    try:
        spark.sql("INSERT INTO events VALUES (CAST('1' AS BINARY), 'a'), (CAST('2' AS BINARY), 'b')")
        found = spark.sql("SELECT key, CAST(payload AS STRING) AS text FROM events ORDER BY key").collect()
    finally:
        spark.sql("DROP VIEW events")
    assert [tuple(row) for row in found] == [("a", "1"), ("b", "2")]


@pytest.mark.acceptance(
    "Q17",
    differs="Spark offers sources in Python neither update mode nor CREATE TABLE",
)
def test_query_in_complete_mode_appends_each_result(
    spark: SparkSession, stream: BlockingStream, copy: BlockingStream, path: Path, tmp_path: Path
) -> None:
    for numbers in (range(3), range(3, 5)):
        write(stream, numbers, keys=1)
        reading = spark.readStream.format("eventproc").options(stream=STREAM, startingOffsets="earliest")
        counts = reading.load(str(path)).groupBy("key").count()
        writing = (
            counts.writeStream.format("eventproc").outputMode("complete").options(stream=COPY, key="key")
        )
        writing = writing.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(
            availableNow=True
        )
        assert writing.start(str(path)).awaitTermination(120), "the query did not end"
    assert [json.loads(each.payload)["count"] for each in events_of(copy)] == [3, 5]
