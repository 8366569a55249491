"""Streams as DataFrames, through Spark: read back as written, batch and streaming, restarted and truncated."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import Row

from eventproc.blocking import BlockingEventproc, BlockingStream
from tests.spark.support import STREAM, write


def batch(spark: SparkSession, path: Path, **options: str) -> DataFrame:
    named = {"stream": STREAM} if "streamPattern" not in options else {}
    return spark.read.format("eventproc").options(**{**named, **options}).load(str(path))


def start(
    spark: SparkSession, path: Path, checkpoint: Path, rows: list[Row], **options: str
) -> StreamingQuery:
    """Start a query that appends what is there to `rows`, in the order in which it comes, and ends."""
    reading = spark.readStream.format("eventproc").options(stream=STREAM, **options).load(str(path))
    writing = reading.writeStream.foreachBatch(lambda batch, _: rows.extend(batch.collect()))
    return writing.trigger(availableNow=True).option("checkpointLocation", str(checkpoint)).start()


def read_now(spark: SparkSession, path: Path, checkpoint: Path, **options: str) -> list[Row]:
    """Return what such a query reads."""
    rows: list[Row] = []
    assert start(spark, path, checkpoint, rows, **options).awaitTermination(120), "the query did not end"
    return rows


def payloads(rows: Sequence[Row]) -> list[bytes]:
    return [bytes(row.payload) for row in rows]


def numbered(numbers: range) -> list[bytes]:
    return [b"%06d" % each for each in numbers]


def in_order(rows: Sequence[Row]) -> bool:
    last: dict[str, bytes] = {}
    for row in rows:
        if last.get(row.key, b"") >= bytes(row.payload):
            return False
        last[row.key] = bytes(row.payload)
    return True


@pytest.mark.acceptance("Q1")
def test_batch_query_reads_every_column_across_a_scale(
    spark: SparkSession, stream: BlockingStream, path: Path
) -> None:
    with stream.writer() as writer:
        writer.post(b"keyed", key="ü", event_time=1_700_000_000_123, headers={"a": "1", "b": "ß"})
        writer.post(b"")
    stream.split(stream.segments()[0].id)
    write(stream, range(50))
    names = "payload,key,timestamp,scope,stream,segment,offset,number,event_time,headers,partition"
    rows = batch(spark, path, columns=names).collect()
    with stream.reader() as reader:
        events = list(reader.until(stream.tail()))
    found = {(row.segment, row.offset): row for row in rows}
    assert len(found) == len(rows) == len(events)
    for event in events:
        row = found[event.segment, event.offset]
        assert (bytes(row.payload), row.key, row.number) == (event.payload, event.key, event.number)
        assert (row.scope, row.stream, row.partition) == ("s", "t", event.partition)
        assert round(row.timestamp.timestamp() * 1000) == event.timestamp
        assert (row.headers or {}) == event.headers
        at = None if row.event_time is None else round(row.event_time.timestamp() * 1000)
        assert at == event.event_time
    assert in_order([row for row in rows if row.key != "ü" and row.key is not None])


def test_columns_come_in_the_requested_order(spark: SparkSession, stream: BlockingStream, path: Path) -> None:
    write(stream, range(3))
    found = batch(spark, path, columns="number,key")
    assert found.columns == ["number", "key"]
    assert found.count() == 3
    assert batch(spark, path).columns[:3] == ["payload", "key", "timestamp"]


def test_json_payloads_become_typed_columns(spark: SparkSession, stream: BlockingStream, path: Path) -> None:
    with stream.writer() as writer:
        writer.post(b'{"carrier": "UA", "delay": 2.5}', key="UA")
        writer.post(b"no json")
    by_option = batch(spark, path, schema="carrier string, delay double", columns="key").orderBy("delay")
    assert [tuple(row) for row in by_option.collect()] == [(None, None, None), ("UA", 2.5, "UA")]
    by_schema = spark.read.format("eventproc").schema("delay float").option("stream", STREAM).load(str(path))
    assert sorted(row.delay or 0 for row in by_schema.collect()) == [0, 2.5]


@pytest.mark.acceptance("Q9")
def test_min_partitions_splits_segments(spark: SparkSession, stream: BlockingStream, path: Path) -> None:
    write(stream, range(1000))
    found = batch(spark, path, minPartitions="6", columns="payload,key")
    assert found.rdd.getNumPartitions() >= 6
    rows = found.collect()
    assert sorted(payloads(rows)) == numbered(range(1000))
    assert in_order(rows)


@pytest.mark.acceptance("Q10")
def test_topic_is_read_by_partition_with_headers_as_kafka_has_them(
    spark: SparkSession, ep: BlockingEventproc, path: Path
) -> None:
    topic = ep.create_topic("s/topic", partitions=3)
    with topic.producer() as producer:
        for each in range(100):
            headers = {"n": f"{each}", "é": ""} if each % 2 else None
            producer.post(b"%06d" % each, key=f"k{each % 30}", headers=headers)
    topic.add_partitions(1)
    asked = {"stream": "s/topic", "includeHeaders": "array", "maxEventsPerPartition": "30"}
    found = batch(spark, path, **asked)
    sizes = [len(rows) for rows in found.rdd.glom().collect()]
    rows = found.collect()
    assert max(sizes) == 30 and sum(sizes) == 100
    assert {row.segment for row in rows} == set(range(3)) and in_order(rows)
    assert [row.headers for row in rows if not int(row.payload) % 2] == [None] * 50
    lists = {int(row.payload): row.headers for row in rows if row.headers is not None}
    assert lists == {n: [Row(key="n", value=b"%d" % n), Row(key="é", value=b"")] for n in range(1, 100, 2)}
    ep.create_stream(STREAM)
    found.select("payload", "headers").write.format("eventproc").mode("append").options(
        path=str(path), stream=STREAM
    ).save()
    copied = batch(spark, path, columns="payload,headers").collect()
    assert {int(row.payload): row.headers for row in copied if row.headers} == {
        n: {"n": f"{n}", "é": ""} for n in lists
    }


def test_empty_stream_is_an_empty_data_frame(spark: SparkSession, stream: BlockingStream, path: Path) -> None:
    assert batch(spark, path).count() == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [({"maxOffsetsPerTrigger": "5"}, "maxoffsetspertrigger"), ({"stream": "s/none"}, "none")],
)
def test_errors_reach_the_user_in_the_words_of_the_source(
    spark: SparkSession, stream: BlockingStream, path: Path, options: Mapping[str, str], said: str
) -> None:
    reading = spark.read.format("eventproc").options(**{"stream": STREAM, **options})
    with pytest.raises(AnalysisException, match=said):
        reading.load(str(path)).collect()


@pytest.mark.acceptance("Q2")
def test_limited_batches_read_every_event_in_order_across_scales_and_restarts(
    spark: SparkSession, stream: BlockingStream, path: Path, tmp_path: Path
) -> None:
    write(stream, range(200))
    stream.split(stream.segments()[0].id)
    write(stream, range(200, 300))
    options = {"startingOffsets": "earliest", "maxEventsPerTrigger": "120"}
    first: list[Row] = []
    query = start(spark, path, tmp_path / "checkpoint", first, **options)
    assert query.awaitTermination(120)
    sizes = [each.numInputRows for each in query.recentProgress]
    assert sum(sizes) == 300 and max(sizes) <= 120
    stream.merge(*[each.id for each in stream.segments()][:2])
    write(stream, range(300, 400))
    second = read_now(spark, path, tmp_path / "checkpoint", **options)
    assert payloads(sorted(first, key=lambda row: row.payload)) == numbered(range(300))
    assert sorted(payloads(second)) == numbered(range(300, 400))
    assert in_order(first + second)


def test_concurrent_queries_read_the_same_files(
    spark: SparkSession, stream: BlockingStream, path: Path, tmp_path: Path
) -> None:
    write(stream, range(300))
    options = {"startingOffsets": "earliest"}
    read: list[list[Row]] = [[], []]
    queries = [start(spark, path, tmp_path / f"{n}", rows, **options) for n, rows in enumerate(read)]
    assert all(query.awaitTermination(120) for query in queries)
    for rows in read:
        assert sorted(payloads(rows)) == numbered(range(300))
    # Both may write the files; those of the slower query are not registered, and are deleted later.
    with closing(sqlite3.connect(path / "eventproc.db")) as db:
        assert db.execute("SELECT count(*) FROM chunk").fetchone() == (2,)


@pytest.mark.acceptance("Q8")
def test_truncation_ahead_of_the_query_fails_it_or_is_skipped(
    spark: SparkSession, stream: BlockingStream, path: Path, tmp_path: Path
) -> None:
    write(stream, range(100))
    rows = read_now(spark, path, tmp_path / "checkpoint", startingOffsets="earliest")
    assert len(rows) == 100
    write(stream, range(100, 200))
    stream.truncate(stream.tail())
    write(stream, range(200, 250))
    failing = start(spark, path, tmp_path / "checkpoint", [])
    with pytest.raises(StreamingQueryException, match="truncated"):
        failing.awaitTermination(120)
    rows = read_now(spark, path, tmp_path / "checkpoint", failOnDataLoss="false")
    assert sorted(payloads(rows)) == numbered(range(200, 250))


def test_running_query_follows_writers_through_a_scale_and_a_truncation(
    spark: SparkSession, stream: BlockingStream, path: Path, tmp_path: Path
) -> None:
    write(stream, range(50))
    reading = spark.readStream.format("eventproc").options(stream=STREAM, startingOffsets="earliest")
    rows: list[Row] = []
    query = (
        reading.load(str(path))
        .writeStream.foreachBatch(lambda batch, _: rows.extend(batch.collect()))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        query.processAllAvailable()
        stream.truncate(stream.tail())
        stream.split(stream.segments()[0].id)
        write(stream, range(50, 120))
        query.processAllAvailable()
        progress = query.lastProgress
        assert progress is not None
        assert progress.sources[0].endOffset == progress.sources[0].latestOffset
    finally:
        query.stop()
    assert sorted(payloads(rows)) == numbered(range(120))
    assert in_order(rows)
