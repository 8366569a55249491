"""The option `assign`: a query reads chosen segments, or partitions of a topic, and nothing else matters to it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from eventproc.blocking import BlockingEventproc, BlockingStream
from eventproc.spark.assigned_segments import AssignedPosition, unread_of
from eventproc.spark.batch_cursor import BatchBudget
from eventproc.spark.planner import Planner
from eventproc.spark.planner_directory import PlannerDirectory
from eventproc.spark.queries import lags_of
from eventproc.spark.source_options import Positions, parse_options
from eventproc.store.model.errors import EventprocError, InvalidArgument, InvalidCut, NotFound, Truncated
from tests.spark.support import STREAM, free, read_slices, write

EARLIEST, LATEST = Positions("earliest"), Positions("latest")


def planner(directory: PlannerDirectory, path: Path, *segments: object, **options: str) -> Planner:
    assign = json.dumps({STREAM: list(segments)})
    return Planner(parse_options({"path": str(path), "assign": assign, **options}), directory)


def read(
    planner: Planner, start: dict[str, str], budget: BatchBudget | None = None
) -> tuple[list[tuple[int, int]], dict[str, str]]:
    """Read to the end; return (segment, number) of each event, and the position."""
    found = []
    while (end := planner.next_position(start, budget or BatchBudget())[0]) != start:
        groups = planner.plan(start, end, batch=json.dumps(end), glued=True)
        found += [(event.segment, event.number) for group in groups for event in read_slices(group)]
        start = end
    return found, start


def events(stream: BlockingStream, segment: int) -> list[tuple[int, int]]:
    with stream.reader() as reader:
        found = [event for event in reader.until(stream.tail()) if event.segment == segment]
    return [(segment, event.number) for event in found]


@pytest.mark.acceptance("Q4")
def test_query_reads_its_segment_alone_until_that_is_finished(
    stream: BlockingStream, directory: PlannerDirectory, path: Path
) -> None:
    write(stream, range(100))
    own, other = stream.segments()
    wanted = events(stream, int(own.id))
    first = planner(directory, path, str(own.id))
    start = first.position(EARLIEST)
    found, end = read(first, start, BatchBudget(events=7))
    assert found == wanted and wanted
    write(stream, range(100, 140))
    stream.split(own.id)
    later = events(stream, int(own.id))
    following = planner(directory, path, str(own.id))  # another process
    found, last = read(following, end)
    assert wanted + found == later
    assert last[STREAM].endswith(f"finished {own.id}")
    stream.truncate(stream.tail())  # of all that it does not read, and of what it has read
    free(directory)
    write(stream, range(140, 150))
    assert read(following, last) == ([], last)
    both = planner(directory, path, str(own.id), str(other.id))  # the same checkpoint, with one more segment
    again, last = read(both, last)
    assert again == events(stream, int(other.id))
    assert read(following, last)[0] == []


def test_planned_batch_that_finishes_a_segment_is_planned_again_alike(
    stream: BlockingStream, directory: PlannerDirectory, path: Path
) -> None:
    write(stream, range(60))
    own = stream.segments()[0]
    first = planner(directory, path, str(own.id))
    start = first.position(EARLIEST)
    stream.split(own.id)
    end, _ = first.next_position(start, BatchBudget())
    again = planner(directory, path, str(own.id))
    groups = again.plan(start, end, batch="", glued=True)
    stream.truncate(stream.tail())
    held = planner(directory, path, str(own.id)).plan(start, end, batch="", glued=True)
    assert [read_slices(each) for each in held] == [read_slices(each) for each in groups]
    assert len([event for group in groups for event in read_slices(group)]) > 0


def test_truncation_of_its_own_events_is_data_loss(
    stream: BlockingStream, directory: PlannerDirectory, path: Path
) -> None:
    write(stream, range(100))
    own = stream.segments()[0].id
    start = planner(directory, path, str(own)).position(EARLIEST)
    stream.truncate(stream.tail())
    with pytest.raises(Truncated, match="failOnDataLoss"):
        read(planner(directory, path, str(own)), start)
    write(stream, range(100, 120))
    found, _ = read(planner(directory, path, str(own), failOnDataLoss="false"), start)
    assert found == events(stream, int(own)) and found


def test_positions_of_chosen_segments(
    stream: BlockingStream, directory: PlannerDirectory, path: Path
) -> None:
    write(stream, range(50))
    own = stream.segments()[0].id
    middle = stream.tail()
    stream.split(own)
    write(stream, range(50, 70))
    new = max(each.id for each in stream.segments())
    chosen = planner(directory, path, str(own), str(new))
    assert len(read(chosen, chosen.position(EARLIEST))[0]) == len(
        events(stream, int(own)) + events(stream, int(new))
    )
    tails = AssignedPosition.parse(chosen.position(LATEST)[STREAM], STREAM)
    assert set(tails.offsets) == {own, new} and set(
        directory.read(lambda tx: unread_of(tx, tails)).values()
    ) == {(0, 0)}
    behind = read(chosen, chosen.position(Positions(str(middle))))[0]
    assert behind == events(stream, int(new))
    frozen = planner(directory, path, str(own), str(new))
    frozen.freeze(frozen.position(Positions(str(middle))))
    assert read(frozen, frozen.position(EARLIEST))[0] == events(stream, int(own))
    by_segment = chosen.position(Positions("earliest", {STREAM: {new: -1}}))
    assert read(chosen, by_segment)[0] == events(stream, int(own))
    with pytest.raises(InvalidArgument, match="inside an event"):
        chosen.position(Positions("earliest", {STREAM: {own: 1}}))
    with pytest.raises(InvalidArgument, match="does not name"):
        chosen.position(Positions("earliest", {STREAM: {min(each.id for each in stream.segments()): 0}}))
    with pytest.raises(NotFound, match=r"9\.9 of s/t"):
        planner(directory, path, "9.9").position(EARLIEST)
    with pytest.raises(InvalidCut, match="new checkpoint"):
        read(chosen, {STREAM: str(middle)})
    (lag,) = directory.read(lambda tx: lags_of(tx, chosen.position(EARLIEST)))
    assert lag.events == len(events(stream, int(own)) + events(stream, int(new)))


@pytest.mark.parametrize(
    "given",
    [
        {"assign": "0.0"},
        {"assign": "{}"},
        {"assign": '{"s/t": []}'},
        {"assign": '{"s/t": [-1]}'},
        {"assign": '{"s/t": ["x"]}'},
        {"assign": '{"s/t": ["0.0"]}', "stream": "s/t"},
        {"assign": '{"s/t": ["0.0"]}', "streamPattern": "s/.*"},
    ],
)
def test_wrong_assignment_is_refused_by_name(given: dict[str, str]) -> None:
    with pytest.raises(EventprocError, match="option assign"):
        parse_options({"path": "/data", **given})


@pytest.mark.acceptance("Q4")
def test_partitions_of_a_topic_are_read_in_batches_and_by_a_query(
    spark: SparkSession, ep: BlockingEventproc, path: Path, tmp_path: Path
) -> None:
    topic = ep.create_topic("s/topic", partitions=3)
    with topic.producer() as producer:
        for each in range(90):
            producer.post(b"%06d" % each, key=f"k{each % 30}")
    options = {"assign": '{"s/topic": [0, 2]}', "startingOffsets": "earliest"}
    batch = spark.read.format("eventproc").options(**options).load(str(path)).collect()
    every = spark.read.format("eventproc").option("stream", "s/topic").load(str(path)).collect()
    assert {row.segment for row in batch} == {0, 2}
    assert sorted(row.payload for row in batch) == sorted(row.payload for row in every if row.segment != 1)
    got: list[bytes] = []

    def keep(rows: DataFrame, _: int) -> None:
        got.extend(bytes(row.payload) for row in rows.collect())

    def run() -> None:
        rows = (
            spark.readStream.format("eventproc").options(**options, maxEventsPerTrigger="20").load(str(path))
        )
        query = rows.writeStream.foreachBatch(keep).option("checkpointLocation", str(tmp_path / "checkpoint"))
        assert query.trigger(availableNow=True).start().awaitTermination(120)

    run()
    with topic.producer() as producer:
        for each in range(90, 120):
            producer.post(b"%06d" % each, key=f"k{each % 30}")
    run()
    keys = {int(row.payload) % 30 for row in batch}
    assert sorted(int(each) for each in got) == [each for each in range(120) if each % 30 in keys]
