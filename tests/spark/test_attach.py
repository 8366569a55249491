"""A directory inside a Spark driver: batches written once, queries seen from outside, processors that run jobs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from threading import Event, Thread, current_thread
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark import SparkContext
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import eventproc.spark
from eventproc.blocking import BlockingStream
from eventproc.processors import App
from eventproc.spark import AttachedEventproc
from eventproc.spark.attached import _StopHook
from eventproc.spark.planner_processes import PlannerProcesses
from eventproc.store.model.errors import Closed, IllegalTransition, InvalidArgument, NotFound
from eventproc.store.model.policies import ScalingPolicy
from eventproc.store.segments import Event as StreamEvent
from tests.spark.support import STREAM, write

OUT = "s/out"


@pytest.fixture
def attached(spark: SparkSession, path: Path) -> Iterator[AttachedEventproc]:
    with eventproc.spark.attach(spark, path, durability="os") as attached:
        attached.create_scope("s")
        yield attached


@pytest.fixture
def stream(attached: AttachedEventproc) -> BlockingStream:
    stream = attached.create_stream(STREAM, scaling=ScalingPolicy.fixed(2))
    write(stream, range(100))
    return stream


@pytest.fixture
def out(attached: AttachedEventproc) -> BlockingStream:
    return attached.create_stream(OUT, scaling=ScalingPolicy.fixed(2))


def payloads(stream: BlockingStream) -> list[bytes]:
    with stream.reader() as reader:
        return sorted(event.payload for event in reader.until(stream.tail()))


def reading(spark: SparkSession, path: Path, **options: str) -> DataFrame:
    """Return the stream as it comes, from its head."""
    found = spark.readStream.format("eventproc").options(stream=STREAM, startingOffsets="earliest", **options)
    return found.load(str(path))


def test_repeated_batch_is_in_the_stream_once(
    spark: SparkSession,
    attached: AttachedEventproc,
    stream: BlockingStream,
    out: BlockingStream,
    path: Path,
    tmp_path: Path,
) -> None:
    dies = [True]
    topic = attached.create_topic("s/topic", partitions=2)
    sides = [attached.create_stream(f"s/out{segment}") for segment in (0, 1, 2**32 + 2, 2**32 + 3)]

    def both(batch: DataFrame, batch_id: int) -> None:
        routed = batch.selectExpr("payload", "concat('s/out', segment) AS to")
        attached.writing(stream_column="to")(routed, batch_id)
        in_partitions = batch.selectExpr("payload", "number % 2 AS to")
        attached.writing(topic.name, partition="to")(in_partitions, batch_id)
        attached.write_batch(batch.select("segment", "number", "key"), batch_id, OUT, key="key")
        attached.write_batch(batch.select("payload", "key"), batch_id, OUT, key="key", part="copies")
        if dies:
            dies.pop()
            raise RuntimeError("dies between the stream and Spark's own log")

    def start() -> StreamingQuery:
        query = reading(spark, path, maxEventsPerTrigger="100").writeStream.foreachBatch(both)
        query = query.queryName("both").option("checkpointLocation", str(tmp_path / "checkpoint"))
        return query.trigger(availableNow=True).start()

    with pytest.raises(StreamingQueryException, match="dies between"):
        start().awaitTermination(120)
    stream.split(stream.segments()[0].id)
    write(stream, range(100, 110))
    assert start().awaitTermination(120)
    found = payloads(out)
    routed = [payload for each in sides for payload in payloads(each)]
    assert sorted(routed) == [b"%06d" % each for each in range(110)]
    copies = [each for each in found if not each.startswith(b"{")]
    assert copies == [b"%06d" % each for each in range(110)]
    rows = [json.loads(each) for each in found if each.startswith(b"{")]
    assert len(rows) == 110 and len({(row["segment"], row["number"]) for row in rows}) == 110
    with topic.reader() as reader:
        written = [(event.partition, int(event.payload)) for event in reader.until(topic.tail())]
    assert sorted(number for _, number in written) == list(range(110))
    assert Counter(to for to, _ in written) == Counter(row["number"] % 2 for row in rows)
    assert attached.queries() == []


def test_query_whose_rows_name_their_streams_goes_on_behind_a_batch_without_rows(
    spark: SparkSession, attached: AttachedEventproc, stream: BlockingStream, out: BlockingStream, path: Path
) -> None:
    def routed(batch: DataFrame, batch_id: int) -> None:
        rows = batch.where("true" if batch_id != 1 else "false").selectExpr("payload", f"'{OUT}' AS to")
        attached.writing(stream_column="to")(rows, batch_id)

    query = reading(spark, path, maxEventsPerTrigger="40").writeStream.foreachBatch(routed)
    assert query.trigger(availableNow=True).start().awaitTermination(120)
    assert len(payloads(out)) == 60


def test_second_write_of_a_batch_needs_a_part(
    spark: SparkSession, attached: AttachedEventproc, stream: BlockingStream, out: BlockingStream, path: Path
) -> None:
    said: list[int] = []

    def tried(batch: DataFrame, batch_id: int) -> None:
        rows = [(f"{batch_id}", "UA")] if batch_id != 1 else []
        frame = spark.createDataFrame(rows, "payload string, carrier string")
        attached.write_batch(frame, batch_id, OUT, key="carrier")
        with pytest.raises(InvalidArgument, match="its own part"):
            attached.write_batch(frame, batch_id, OUT)
        said.append(batch_id)

    query = reading(spark, path, maxEventsPerTrigger="40").writeStream.foreachBatch(tried)
    assert query.trigger(availableNow=True).start().awaitTermination(120)
    assert said == [0, 1, 2]
    assert payloads(out) == [b"0", b"2"]
    with pytest.raises(IllegalTransition, match="foreachBatch"):
        attached.write_batch(spark.range(1), 0, OUT)
    with pytest.raises(NotFound):
        attached.writing("s/none")
    with pytest.raises(InvalidArgument, match="either stream or stream_column"):
        attached.writing()


@pytest.mark.acceptance(
    "Q18",
    differs="by `ep.queries()`: a source in Python reports no metrics such as offsetsBehindLatest",
)
def test_running_query_is_behind_by_what_was_written_since_its_last_batch(
    spark: SparkSession, attached: AttachedEventproc, stream: BlockingStream, path: Path
) -> None:
    held, released = Event(), Event()

    def hold_later_batches(batch: DataFrame, batch_id: int) -> None:
        if batch_id:
            held.set()
            released.wait()

    running = reading(spark, path).writeStream.foreachBatch(hold_later_batches).queryName("slow").start()
    running.processAllAvailable()
    (query,) = attached.queries()
    assert (query.id, query.name, query.events) == (running.id, "slow", 0)
    write(stream, range(100, 110))
    assert held.wait(
        60
    )  # a query that still plans a batch would end with what the truncation below takes away
    stream.split(stream.segments()[0].id)
    write(stream, range(110, 113))
    (query,) = attached.queries()
    assert (query.events, query.bytes) == (13, 13 * 14)
    stream.truncate(stream.tail())
    assert [(each.events, each.bytes) for each in attached.queries()] == [(0, 0)]
    stream.seal()
    stream.delete()
    assert [each.streams for each in attached.queries()] == [()]
    released.set()
    running.stop()
    assert attached.queries() == []


def test_queries_ask_the_jvm_outside_of_a_transaction(
    spark: SparkSession,
    attached: AttachedEventproc,
    stream: BlockingStream,
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    askers: list[Thread] = []
    ask: Callable[[StreamingQuery], object] = vars(StreamingQuery)["lastProgress"].fget

    def noted(query: StreamingQuery) -> object:
        askers.append(current_thread())
        return ask(query)

    monkeypatch.setattr(StreamingQuery, "lastProgress", property(noted))
    running = reading(spark, path).writeStream.format("noop").start()
    running.processAllAvailable()
    (query,) = attached.queries()
    assert (query.events, askers) == (0, [current_thread()])  # not on a thread of the database
    running.stop()


def test_cancelled_handler_cancels_its_spark_jobs(
    spark: SparkSession, attached: AttachedEventproc, tmp_path: Path
) -> None:
    app, groups, done = App(), dict[int, str | None](), Event()
    attached.create_stream("s/in")

    @eventproc.spark.job
    def load(spark: SparkSession, event: StreamEvent) -> None:
        groups[event.number] = spark.sparkContext.getLocalProperty("spark.jobGroup.id")
        if event.number == 1:
            spark.range(10**15, numPartitions=1).selectExpr("sum(id % 7)").collect()  # never ends
        spark.range(3).write.parquet(str(tmp_path / "loaded"))
        done.set()

    app.add(load, "s/in", group="s/load", order=None, concurrency=2)
    with attached.stream("s/in").writer() as writer, attached.run(app, grace_ms=0):
        writer.write(b"0")
        assert done.wait(60)
        writer.write(b"1")
        while 1 not in groups or not spark.sparkContext.statusTracker().getJobIdsForGroup(groups[1]):
            spark.range(1).collect()
    spark.range(1).collect()  # what was asked of the scheduler before is done
    listeners: Any = spark.sparkContext._jsc
    listeners.sc().listenerBus().waitUntilEmpty()  # and the tracker has heard of it
    assert spark.sparkContext.statusTracker().getActiveJobsIds() == []
    assert spark.read.parquet(str(tmp_path / "loaded")).count() == 3


def test_cancelled_handler_between_two_jobs_starts_no_other(
    spark: SparkSession, attached: AttachedEventproc
) -> None:
    app, begun, cancelled, done = App(), Event(), Event(), Event()
    outcomes: list[str] = []
    attached.create_stream("s/in")

    @eventproc.spark.job
    def load(spark: SparkSession, event: StreamEvent) -> None:
        begun.set()
        cancelled.wait(60)
        try:
            spark.range(3).collect()
            outcomes.append("it ran")
        except Exception as why:
            outcomes.append(type(why).__name__)
        finally:
            done.set()

    app.add(load, "s/in", group="s/load", order=None)
    with attached.stream("s/in").writer() as writer, attached.run(app, grace_ms=0):
        writer.write(b"0")
        assert begun.wait(60)
    cancelled.set()
    assert done.wait(60)
    assert outcomes != ["it ran"]
    assert spark.range(1).collect(), "other jobs do"


def test_a_thread_that_attaches_to_a_session_of_another_thread_starts_queries(
    spark: SparkSession, tmp_path: Path
) -> None:
    copied: list[int] = []

    def copy() -> None:
        with eventproc.spark.attach(spark, tmp_path / "streams", durability="os") as ep:
            ep.create_scope("s")
            write(ep.create_stream(STREAM), range(5))
            out = ep.create_stream(OUT)
            source = spark.readStream.format("eventproc").options(
                path=str(ep.path), stream=STREAM, startingOffsets="earliest"
            )
            sink = (
                source.load()
                .writeStream.format("eventproc")
                .options(path=str(ep.path), stream=OUT, checkpointLocation=str(tmp_path / "checkpoint"))
            )
            sink.trigger(availableNow=True).start().awaitTermination()
            copied.append(out.describe().events)

    thread = Thread(target=copy)
    thread.start()
    thread.join()
    assert copied == [5]


def test_detach_closes_the_directory_and_leaves_spark_running(spark: SparkSession, path: Path) -> None:
    async def handle(event: StreamEvent) -> None:
        pass

    app = App()
    app.add(handle, "s/in")
    shared = path.parent / "shared"
    attached = eventproc.spark.attach(spark, path, durability="os", chunks=shared)
    attached.create_scope("s")
    attached.create_stream("s/in")
    running = attached.start(app)
    attached.detach()
    attached.detach()
    for ended in (attached.scopes, running.status):
        with pytest.raises(Closed):
            ended()
    assert spark.range(3).count() == 3
    assert (path / "chunks").resolve() == shared


STEPS = ("drain", "queries", "stop", "planners", "detach")


@pytest.mark.parametrize("failing", STEPS)
def test_failure_while_stopping_spark_does_not_prevent_the_other_steps(failing: str) -> None:
    done: list[str] = []

    def step(name: str) -> None:
        done.append(name)
        if name == failing:
            raise OSError(name)

    steps = {name: partial(step, name) for name in STEPS}
    planners = cast("PlannerProcesses", SimpleNamespace(end=steps["planners"]))
    ending = _StopHook(cast("SparkContext", SimpleNamespace(stop=steps["stop"])), planners)
    attached = SimpleNamespace(_drain=steps["drain"], _stop_queries=steps["queries"], detach=steps["detach"])
    ending.attached.append(cast("AttachedEventproc", attached))
    with pytest.raises(OSError, match=failing):
        ending()
    assert done == list(STEPS)
