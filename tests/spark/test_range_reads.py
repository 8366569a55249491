"""Exact ranges that the attached driver plans: nothing else is read, and what is read cannot be truncated meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import eventproc.spark
from eventproc.blocking import BlockingStream
from eventproc.spark.planner import Planner, SegmentRanges
from eventproc.spark.planner_directory import PlannerDirectory
from eventproc.spark.source_options import parse_options
from eventproc.store.model.errors import InvalidArgument, NotFound, StreamReplaced, Truncated
from eventproc.store.model.ids import SegmentId, segment_id
from eventproc.store.model.policies import CompactionPolicy, ScalingPolicy
from tests.spark.support import STREAM, ReadEvent, free, read_slices, write

FRAMED = 14
"""Bytes of an event: a frame of 8 bytes and 6 digits."""

FIRST, SECOND = segment_id(0, 0), segment_id(1, 0)


def plan(
    directory: PlannerDirectory, ranges: dict[SegmentId, tuple[int, int]], stream_id: int | None = None
) -> list[ReadEvent]:
    options = parse_options({"path": "/unused", "stream": STREAM})
    planned = Planner(options, directory).plan_ranges([SegmentRanges(STREAM, stream_id, ranges)], batch="b")
    return [event for group in planned for event in read_slices(group)]


def test_chosen_ranges_of_chosen_segments_are_read(path: Path, stream: BlockingStream) -> None:
    write(stream, range(100))
    with PlannerDirectory(path, hold_ms=60_000) as directory:
        found = plan(directory, {FIRST: (5 * FRAMED, 9 * FRAMED), SECOND: (FRAMED, FRAMED)})
        assert [(event.segment, event.number) for event in found] == [(FIRST, n) for n in range(5, 9)]
        assert plan(directory, {FIRST: (7 * FRAMED, 8 * FRAMED)}) == found[2:3]
        directory.end_batch("b")
        assert directory.read(lambda tx: tx.execute("SELECT count(*) FROM hold").fetchone()) == (0,)


def test_held_range_stays_readable_behind_the_head_and_a_released_one_is_refused(
    path: Path, stream: BlockingStream
) -> None:
    write(stream, range(100))
    with PlannerDirectory(path, hold_ms=60_000) as directory:
        found = plan(directory, {FIRST: (0, 9 * FRAMED)})
        stream.truncate(stream.tail())
        free(directory)
        assert plan(directory, {FIRST: (FRAMED, 9 * FRAMED)}) == found[1:]
        directory.end_batch("b")
        with pytest.raises(Truncated):
            plan(directory, {FIRST: (0, 9 * FRAMED)})


def test_range_that_does_not_exist_is_refused_by_name(path: Path, stream: BlockingStream) -> None:
    write(stream, range(100))
    with PlannerDirectory(path, hold_ms=60_000) as directory:
        for ranges, said in (
            ({FIRST: (0, 10**9)}, "the segment ends at"),
            ({FIRST: (3, FRAMED)}, "inside an event"),
        ):
            with pytest.raises(InvalidArgument, match=said):
                plan(directory, ranges)
        with pytest.raises(NotFound, match=r"7\.3 of s/t"):
            plan(directory, {segment_id(7, 3): (0, 0)})
        with pytest.raises(StreamReplaced):
            plan(directory, {FIRST: (0, FRAMED)}, stream_id=stream.stream_id + 1)


def test_attached_driver_reads_ranges_as_a_data_frame(spark: SparkSession, path: Path) -> None:
    with eventproc.spark.attach(spark, path, durability="os") as attached:
        attached.create_scope("s")
        stream = attached.create_stream(STREAM, scaling=ScalingPolicy.fixed(2))
        write(stream, range(100))
        ranges = {STREAM: {"0.0": (FRAMED, 5 * FRAMED), "1.0": (0, 2 * FRAMED)}}
        columns = ("segment", "number", "timestamp", "key", "headers")
        with attached.reading(ranges, columns=columns, min_partitions=4) as frame:
            assert frame.columns == list(columns)
            stream.truncate(stream.tail())
            for _ in range(2):
                rows = [(row.segment, row.number) for row in frame.collect()]
                assert rows == [(FIRST, 1), (FIRST, 2), (FIRST, 3), (FIRST, 4), (SECOND, 0), (SECOND, 1)]
        with attached.reading({STREAM: {"0.0": (FRAMED, FRAMED)}}) as frame:
            assert frame.collect() == []
        with pytest.raises(InvalidArgument, match="ends before it starts"):
            attached.reading({STREAM: {"0.0": (FRAMED, 0)}})


def test_spark_reads_what_a_compaction_has_left_with_the_same_numbers_and_offsets(
    spark: SparkSession, path: Path
) -> None:
    with eventproc.spark.attach(spark, path, durability="os") as attached:
        attached.create_scope("s")
        topic = attached.create_topic(STREAM, compaction=CompactionPolicy(min_age_ms=0))
        with topic.writer() as writer:
            for number in range(100):
                writer.post(
                    b"%06d" % number, key=f"k{number % 3}", headers={"a": "b"} if number % 2 else None
                )
        with topic.writer() as writer:
            writer.write(b"", key="k1")
        with attached.reading({STREAM: {"0.0": (0, 100 * FRAMED)}}, columns=("number",)) as frame:
            assert topic.compact().events == 0  # a batch that runs again reads the same
            assert len(frame.collect()) == 100
        topic.compact()
        expected = [(98, "k2", b"000098"), (99, "k0", b"000099"), (100, "k1", b"")]
        columns = ("number", "offset", "key", "payload", "headers")
        for first in (0, 50):
            ranges = {STREAM: {"0.0": (first * FRAMED, 100 * FRAMED + 8)}}
            with attached.reading(ranges, columns=columns) as frame:
                rows = frame.collect()
            assert [(row.number, row.key, bytes(row.payload)) for row in rows] == expected
            assert [row.offset for row in rows] == [98 * FRAMED, 99 * FRAMED, 100 * FRAMED]
        with attached.reading({STREAM: {"0.0": (0, 50 * FRAMED)}}, columns=columns) as frame:
            assert frame.collect() == []
