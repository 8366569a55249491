"""Events that are no rows of a table are in another stream exactly once, with their origin and the reason."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
from pyspark.sql import SparkSession

import eventproc.spark.ingestion.task
from eventproc import Event, ScalingPolicy
from eventproc.blocking import BlockingEventproc, BlockingStream
from eventproc.errors import NotFound
from eventproc.ingestion import TuningConfig
from eventproc.spark import attach
from eventproc.spark.ingestion.task import WorkerRoom
from eventproc.spark.planner_directory import PlannerDirectory
from tests.spark.ingestion_support import (
    STREAM,
    click,
    create_group,
    create_task,
    expected,
    positions,
    rows_of,
    run_tasks,
    spec_of,
    worker_room,
)
from tests.spark.sink_support import events_of, files

ODD = "s/odd-clicks"
LARGE = b"x" * 200_000
"""More than a task of Spark sends to the driver: it writes a file."""

SPEC = spec_of(tuning=TuningConfig(unparseable_stream=ODD))


@pytest.fixture
def odd(ep: BlockingEventproc) -> BlockingStream:
    return ep.create_stream(ODD, scaling=ScalingPolicy.fixed(2))


def origins(events: list[Event[bytes]]) -> list[str]:
    return sorted(event.headers["ep-number"] for event in events)


def again(room: WorkerRoom, replica: int) -> None:
    """Run another task of the group, as after the death of the one before."""
    room.directory.write(lambda tx: create_task(tx, SPEC, "clicks-0", replica))
    run_tasks(room, SPEC)


def test_unparseable_events_keep_what_they_carry_and_say_where_they_were_and_why(
    spark: SparkSession, ep: BlockingEventproc, odd: BlockingStream, path: Path
) -> None:
    topic = ep.create_topic(STREAM, partitions=2)
    starts = positions(topic, tail=False)
    many = {f"h{number}": "ü" for number in range(64)}
    with topic.producer() as producer:
        for number in range(100):
            producer.post(click(number), partition=0)
        producer.post(b"{", key="k1", event_time=-5, headers={"trace": "t", "ep-error": "a lie"}, partition=0)
        producer.post(b'{"page": "x", "at": "soon"}', headers=many, partition=1)
        producer.post(b"\xff", key="k1", partition=1)
    with worker_room(spark, path) as room, attach(spark, path, host=False) as attached:
        create_group(room.directory, SPEC, starts, positions(topic, tail=True), replicas=2)
        run_tasks(room, SPEC)
        assert rows_of(attached.table("clicks")) == expected(range(100))
    found = {(event.headers["ep-segment"], event.headers["ep-number"]): event for event in events_of(odd)}
    assert len(events_of(odd)) == len(found) == 3
    first, timeless, no_text = (found[place] for place in [("0.0", "100"), ("1.0", "0"), ("1.0", "1")])
    assert (first.payload, first.key, first.event_time) == (b"{", "k1", -5)
    assert (timeless.payload, timeless.key, timeless.event_time) == (
        b'{"page": "x", "at": "soon"}',
        None,
        None,
    )
    assert (no_text.payload, no_text.key) == (b"\xff", "k1")
    assert first.headers["ep-error"] != "a lie" and first.headers["trace"] == "t"
    assert "timestamp" in timeless.headers["ep-error"] and many.items() <= timeless.headers.items()
    given = {
        "ep-stream": STREAM,
        "ep-supervisor": "clicks",
        "ep-table": "clicks",
        "ep-error-type": "Unparseable",
    }
    assert all(given.items() <= event.headers.items() for event in found.values())
    with topic.reader() as reader:
        appended = {event.payload: event for event in reader.until(topic.tail())}
    for event in found.values():
        origin = appended[event.payload]
        assert event.headers["ep-offset"] == str(origin.offset)
        assert event.headers["ep-timestamp"] == str(origin.timestamp)


def test_unparseable_events_are_appended_once_whether_a_task_dies_before_or_after_its_publication(
    spark: SparkSession,
    ep: BlockingEventproc,
    odd: BlockingStream,
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream = ep.create_stream(STREAM)
    starts = positions(stream, tail=False)
    with stream.writer() as writer:
        writer.write_many((each, "k") for each in [LARGE, click(0), LARGE, click(1), LARGE + b"y"])
    module: Any = eventproc.spark.ingestion.task
    publish, write = module.publish, PlannerDirectory.write

    def die_before(*given: Any, **named: Any) -> object:
        publish(*given, **named)
        raise RuntimeError("died before COMMIT")

    def die_after(self: PlannerDirectory, step: Callable[[Any], Any]) -> Any:
        done = write(self, step)
        if getattr(done, "name", None) == "PUBLISHED":
            raise RuntimeError("died after COMMIT")
        return done

    with worker_room(spark, path) as room, attach(spark, path, host=False) as attached:
        create_group(room.directory, SPEC, starts, positions(stream, tail=True))
        with monkeypatch.context() as patched:
            patched.setattr(module, "publish", die_before)
            run_tasks(room, SPEC)
        assert events_of(odd) == [] and attached.tables() == []
        odd.split(odd.segments()[0].id)
        with monkeypatch.context() as patched:
            patched.setattr(PlannerDirectory, "write", die_after)
            again(room, 1)
        assert origins(events_of(odd)) == ["0", "2", "4"]
        before = set(files(path))
        again(room, 2)
        assert origins(events_of(odd)) == ["0", "2", "4"]
        assert set(files(path)) == before, "the files of the last task are gone"
        assert [event.headers["ep-number"] for event in events_of(odd)] == ["0", "2", "4"], (
            "in the order of a key"
        )
        assert rows_of(attached.table("clicks")) == expected(range(2))


def test_unparseable_events_of_several_slices_are_written_together(
    spark: SparkSession, ep: BlockingEventproc, odd: BlockingStream, path: Path
) -> None:
    stream = ep.create_stream(STREAM)
    starts = positions(stream, tail=False)
    with stream.writer() as writer:
        writer.write_many((each, "k") for each in [click(0), b"1", LARGE, LARGE, b"[]", click(1)])
    tuning = attrs.evolve(SPEC.tuning, max_rows_in_memory=2)
    spec = attrs.evolve(SPEC, tuning=tuning)
    with worker_room(spark, path) as room:
        create_group(room.directory, spec, starts, positions(stream, tail=True))
        (run,) = run_tasks(room, spec)
        assert len(run._meter._slices) > 1
    assert [event.headers["ep-number"] for event in events_of(odd)] == ["1", "2", "3", "4"]


def test_nothing_is_published_while_unparseable_events_cannot_be_appended(
    spark: SparkSession, ep: BlockingEventproc, odd: BlockingStream, path: Path
) -> None:
    stream = ep.create_stream(STREAM)
    starts = positions(stream, tail=False)
    with stream.writer() as writer:
        writer.write_many((each, "k") for each in [LARGE, click(0)])
    odd.seal()
    odd.delete()
    with worker_room(spark, path) as room, attach(spark, path, host=False) as attached:
        create_group(room.directory, SPEC, starts, positions(stream, tail=True))
        run_tasks(room, SPEC)
        assert attached.tables() == []
        ep.create_stream(ODD)
        again(room, 1)
        assert rows_of(attached.table("clicks")) == expected(range(1))
    assert origins(events_of(ep.stream(ODD))) == ["0"]


def test_a_missing_stream_of_unparseable_events_is_refused_before_anything_is_read(
    ep: BlockingEventproc,
) -> None:
    ep.create_stream(STREAM)
    with pytest.raises(NotFound, match=ODD):
        ep.submit_supervisor(SPEC)
    ep.create_stream(ODD)
    assert ep.submit_supervisor(SPEC).spec().tuning.unparseable_stream == ODD
