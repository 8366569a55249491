"""Ingestion tasks as Spark jobs: ranges of a stream become published rows, exactly once."""

from __future__ import annotations

import json
import re
import sys
import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn, TypeVar

import attrs
import pytest
from pyspark.sql import (
    Observation,
    SparkSession,
    functions as F,  # noqa: N812 - as all of Spark's users know it
)

from eventproc.base.clock import SystemClock
from eventproc.blocking import BlockingEventproc, BlockingStream
from eventproc.cli.main import run as run_command
from eventproc.ingestion import (
    Dimension,
    DimensionType,
    Granularity,
    Metric,
    MetricType,
    TimestampSpec,
    Transform,
)
from eventproc.spark import attach
from eventproc.spark.ingestion.ranges import RangeReader
from eventproc.spark.ingestion.rows import SESSION, RowFrames, table_columns
from eventproc.spark.ingestion.slice_size import SLICE_MS
from eventproc.spark.ingestion.stats import StatsMeter
from eventproc.spark.ingestion.task import KEEP_MS, TaskRun, WorkerRoom
from eventproc.spark.ingestion.worker import IngestionWorker
from eventproc.spark.partitioning import FileSlice
from eventproc.spark.planner_directory import PlannerDirectory
from eventproc.store.file_store import LocalFiles
from eventproc.store.ingestion import find_task
from eventproc.store.ingestion.iceberg import StoreTables
from eventproc.store.ingestion.rows import write_task
from eventproc.store.ingestion.tasks import end_task
from eventproc.store.model.errors import DiskFull, InvalidArgument, Unreachable
from eventproc.store.model.ingestion import PartitionKey, TaskState
from eventproc.store.model.policies import ScalingPolicy
from eventproc.store.segments import number_at, segment_state
from tests.spark.ingestion_support import (
    CLICKS,
    HOUR_MS,
    STREAM,
    WAIT_S,
    claim,
    click,
    create_group,
    expected,
    merged,
    positions,
    publish_clicks,
    rows_of,
    run_tasks,
    spec_of,
    worker_room,
    write_clicks,
)

T = TypeVar("T")

BETWEEN_LOOKS = threading.Event()
"""Never set: Spark announces nothing when a task of a job begins."""


def published(spark: SparkSession, room: WorkerRoom) -> list[tuple[int, str, int, int]]:
    files = room.tables.tables.used("clicks")
    return rows_of(room.tables.read(spark, table_columns(CLICKS), room.tables.find(files)))


def slices_of(
    room: WorkerRoom, stream: BlockingStream, starts: dict[PartitionKey, int]
) -> list[list[FileSlice]]:
    """Export and hold what was written since."""
    reader = RangeReader(room.directory, {stream.tail().stream_id: STREAM})
    reader.hold("test", starts, room.directory.db.clock.wall_ms() + HOUR_MS)
    return reader.slices(starts, positions(stream, tail=True))


def tails_of(room: WorkerRoom, partitions: Iterable[PartitionKey]) -> dict[PartitionKey, int]:
    """Return the tails of partitions, sealed ones too."""
    found = {
        key: room.directory.read(partial(segment_state, stream_id=key[0], segment=key[1]))
        for key in partitions
    }
    return {key: state.tail for key, state in found.items() if state is not None}


def test_pending_group_publishes_the_rollup_of_its_range_once_with_two_replicas(
    spark: SparkSession, ep: BlockingEventproc, path: Path
) -> None:
    stream = ep.create_stream(STREAM, scaling=ScalingPolicy.fixed(2))
    starts = positions(stream, tail=False)
    write_clicks(stream, range(5000))
    ends = positions(stream, tail=True)
    write_clicks(stream, range(5000, 5100))
    with worker_room(spark, path) as room:
        spec = spec_of()
        create_group(room.directory, spec, starts, ends, replicas=2)
        runs = run_tasks(room, spec)
        assert published(spark, room) == expected(range(5000))
        tasks = [room.directory.read(partial(find_task, task_id=run.id)) for run in runs]
        assert [(each.state, each.error) for each in tasks if each] == [("succeeded", None)] * 2
        assert [each.stats.processed for each in tasks if each] == [5000, 5000]
        logs = [[line.message for line in ep.ingestion_log(run.id)] for run in runs]
        assert all(each[-1] == "succeeded" for each in logs)
        assert sum("published sequence 0: 252 rows in 2 files" in each for each in logs) == 1
        assert all(any(line.startswith("read 5,000 events, ") for line in each) for each in logs)
        kinds = [[line.split()[0] for line in each] for each in logs]
        assert ["read", "published", "succeeded"] in [each[-3:] for each in kinds]
        files = room.tables.tables.used("clicks")
        assert [(each.start_ms, each.rows) for each in files] == [(0, 180), (3_600_000, 72)]
        paths = [each for each in room.tables.files.paths() if "/metadata/" not in each]
        assert sorted(paths) == sorted(each.path for each in files)


def test_a_task_that_has_published_succeeds_although_its_slices_cannot_be_deleted(
    spark: SparkSession, ep: BlockingEventproc, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(files: LocalFiles, _: str) -> NoReturn:
        raise Unreachable(place=files.place, reason="it answers 503")

    monkeypatch.setattr(LocalFiles, "delete", refuse)
    stream = ep.create_stream(STREAM)
    with worker_room(spark, path) as room:
        (run,) = publish_clicks(room, stream, range(100))
        task = room.directory.read(partial(find_task, task_id=run.id))
        assert task is not None
        assert (task.state, task.error) == ("succeeded", None)
        assert published(spark, room) == expected(range(100))


def test_few_events_at_a_time_are_read_once_a_second(
    spark: SparkSession, ep: BlockingEventproc, path: Path
) -> None:
    stream = ep.create_stream(STREAM)
    with worker_room(spark, path) as room:
        spec = spec_of()
        create_group(room.directory, spec, positions(stream, tail=False), None, base="slow")
        (order,) = claim(room)
        run = TaskRun(order, spec, room)
        began = time.monotonic()
        run.start()
        for number in range(40):
            write_clicks(stream, [number])
            BETWEEN_LOOKS.wait(0.1)
        run.drain()
        run.join(WAIT_S)
        took_s = time.monotonic() - began
        log = "\n".join(line.message for line in ep.ingestion_log(run.id))
        slices = sum(int(each) for each in re.findall(r"(?m)^read .* in (\d+) slices?;", log))
        assert slices <= took_s * 1000 / SLICE_MS + 1, log


def test_table_counts_every_event_once_while_published_and_after_compaction(
    spark: SparkSession, ep: BlockingEventproc, path: Path
) -> None:
    stream = ep.create_stream(STREAM, scaling=ScalingPolicy.fixed(2))
    starts = positions(stream, tail=False)
    write_clicks(stream, range(3000))
    middle = positions(stream, tail=True)
    spec = spec_of()
    with worker_room(spark, path) as room, attach(spark, path, host=False) as attached:
        create_group(room.directory, spec, starts, middle, base="first")
        run_tasks(room, spec)
        write_clicks(stream, range(3000, 4000))
        ends = tails_of(room, middle)
        stream.split(stream.segments()[0].id)  # the successors have no offsets yet
        write_clicks(stream, range(4000, 4100))
        assert merged(rows_of(attached.table("clicks", realtime=True))) == expected(range(4100))
        assert rows_of(attached.table("clicks")) == expected(range(3000))

        create_group(room.directory, spec, middle, ends, base="second")
        run_tasks(room, spec)
        assert merged(rows_of(attached.table("clicks"))) == expected(range(4000))
        assert merged(rows_of(attached.table("clicks", realtime=True))) == expected(range(4100))

        before = attached.table("clicks")
        done = attached.compact_table("clicks")
        assert (done.intervals, done.files_before, done.files_after) == (1, 2, 1)
        assert rows_of(attached.table("clicks")) == expected(range(4000))
        assert merged(rows_of(before)) == expected(range(4000)), "a running query keeps its files"
        hour = attached.table("clicks", start="1970-01-01T01:00", end=3_660_000)
        assert rows_of(hour) == [row for row in expected(range(4000)) if row[0] == 3_600_000]
        assert rows_of(attached.table("clicks", start=-(10**17), end="9" * 18)) == expected(range(4000))

        assert attached.drop_table("clicks", end=HOUR_MS).files == 1
        assert [each.rows for each in attached.tables()] == [
            sum(1 for row in expected(range(4000)) if row[0] >= HOUR_MS)
        ]


def test_overwritten_interval_replaces_what_was_published_before_and_keeps_what_comes_later(
    spark: SparkSession, ep: BlockingEventproc, path: Path
) -> None:
    stream = ep.create_stream(STREAM)
    with worker_room(spark, path) as room, attach(spark, path, host=False) as attached:
        publish_clicks(room, stream, range(4000), base="first")
        version = attached.table_version("clicks")
        doubled = attached.table("clicks", end=HOUR_MS, version=version).withColumn(
            "clicks", F.col("clicks") * 2
        )
        done = attached.overwrite_table("clicks", doubled, start=0, end=HOUR_MS, version=version)
        assert (done.intervals, done.files_before, done.files_after) == (1, 1, 1)
        first = [(at, page, clicks * 2, ms) for at, page, clicks, ms in expected(range(3600))]
        assert rows_of(attached.table("clicks")) == sorted([*first, *expected(range(3600, 4000))])

        publish_clicks(room, stream, range(10), base="second")
        wanted = merged([*first, *expected(range(3600, 4000)), *expected(range(10))])
        assert merged(rows_of(attached.table("clicks"))) == wanted
        assert attached.compact_table("clicks").files_before == 2
        assert rows_of(attached.table("clicks")) == wanted

        reader = spark.read.format("eventproc.table").option("table", "clicks")
        assert rows_of(reader.load(str(path))) == wanted
        late = reader.option("start", "1970-01-01T00:59").option("end", "1970-01-01T01:01").load(str(path))
        assert rows_of(late) == [row for row in wanted if 59 * 60_000 <= row[0] < 61 * 60_000]

        version = attached.table_version("clicks")
        with pytest.raises(InvalidArgument, match="reaches beyond"):
            attached.overwrite_table("clicks", doubled, start=0, end=HOUR_MS // 2, version=version)
        with pytest.raises(InvalidArgument, match="ms"):
            attached.overwrite_table("clicks", doubled.drop("ms"), start=0, end=HOUR_MS, version=version)
        timeless = doubled.withColumn("__time", F.lit(None).cast("timestamp"))
        with pytest.raises(InvalidArgument, match="no time"):
            attached.overwrite_table("clicks", timeless, start=0, end=HOUR_MS, version=version)
        assert rows_of(attached.table("clicks")) == wanted
        on_disk = list(room.tables.files.paths("clicks/0"))
        assert len(on_disk) == 4, "the used file, and those that running queries may still read"


def test_a_table_of_one_interval_is_overwritten_without_bounds(
    spark: SparkSession, ep: BlockingEventproc, path: Path
) -> None:
    stream = ep.create_stream(STREAM)
    spec = spec_of(attrs.evolve(CLICKS, segment_granularity=Granularity.ALL))
    with worker_room(spark, path) as room, attach(spark, path, host=False) as attached:
        publish_clicks(room, stream, range(4000), spec)
        version = attached.table_version("clicks")
        kept = attached.table("clicks", version=version).where("page <> 'p0'")
        done = attached.overwrite_table("clicks", kept, start=None, end=None, version=version)
        assert (done.intervals, done.files_before, done.files_after) == (1, 1, 1)
        assert rows_of(attached.table("clicks")) == [row for row in expected(range(4000)) if row[1] != "p0"]


def test_shell_queries_compacts_and_overwrites_a_table(
    spark: SparkSession, ep: BlockingEventproc, path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with worker_room(spark, path) as room:
        publish_clicks(room, ep.create_stream(STREAM), range(100))
    sql = "SELECT sum(clicks) AS clicks FROM clicks"
    assert run_command(["-C", str(path), "table", "query", sql, "--realtime", "-o", "jsonl"]) == 0
    assert run_command(["-C", str(path), "table", "compact", "clicks", "-o", "jsonl"]) == 0
    sql = "SELECT * FROM clicks WHERE page = 'p0'"
    overwrite = ["table", "overwrite", "clicks", sql, "--start", "0", "--end", str(HOUR_MS), "-o", "jsonl"]
    assert run_command(["-C", str(path), *overwrite, "--dry-run"]) == 0
    assert run_command(["-C", str(path), *overwrite, "--yes"]) == 0
    queried, compacted, dry, overwritten = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert (dry["would"], dry["rows"]) == ("overwrite", 6)
    assert (overwritten["rows_before"], overwritten["rows_after"]) == (6, 2)
    assert queried == {"clicks": 100}
    assert compacted["files_before"] == 0, "each interval has one file"
    assert run_command(["-C", str(path), "table", "query", "SELECT * FROM clix"]) == 2
    assert "The table or view `clix` cannot be found" in (refused := capsys.readouterr().err)
    assert "this is a bug" not in refused


def test_rows_are_transformed_filtered_and_counted_when_refused(
    spark: SparkSession, ep: BlockingEventproc, path: Path
) -> None:
    stream = ep.create_stream(STREAM)
    starts = positions(stream, tail=False)
    payloads = [
        b'{"when": "2026-01-31T10:00:30Z", "page": "a", "n": "7"}',
        b'{"when": 1769853600000, "page": "b", "n": 2.0}',
        b'{"when": "2026-01-31T10:00:59", "page": "A", "n": "many"}',
        b'{"when": "2026-01-31T10:01", "page": "robots", "n": 1}',
        b'{"when": "1999-01-01", "page": "a"}',
        b'{"when": "soon", "page": "a"}',
        b"[1, 2]",
        b"{",
    ]
    with stream.writer() as writer:
        writer.write_many((each, None) for each in payloads)
    schema = attrs.evolve(
        CLICKS,
        timestamp=TimestampSpec(column="when"),
        dimensions=(Dimension(name="page"), Dimension(name="first", field="initial")),
        metrics=(*CLICKS.metrics[:1], Metric(name="n", type=MetricType.LONG_MAX, field="n")),
        transforms=(
            Transform(name="page", expression="upper(page)"),
            Transform(name="initial", expression="left(page, 1)"),
        ),
        filter="page <> 'ROBOTS'",
    )
    with worker_room(spark, path) as room:
        frames = RowFrames(spark, schema)
        events = frames.read(slices_of(room, stream, starts))
        seen = Observation()
        rows = frames.rolled_up(frames.typed(events, min_ms=1_600_000_000_000, counts=seen)).collect()
        assert sorted((f"{row[0]:%H:%M}", *row[1:]) for row in rows) == [
            ("10:00", "A", "A", 1, None),
            ("10:00", "A", "a", 1, 7),
            ("10:00", "B", "b", 1, 2),
        ]
        assert seen.get == {"processed": 8, "thrown_away": 2, "unparseable": 3}
        samples = frames.unparseable(events, 10)
        assert "it is not a JSON object: [1, 2]" in samples
        assert len(samples) == 3
        with pytest.raises(InvalidArgument, match="not valid Spark SQL"):
            RowFrames(spark, attrs.evolve(schema, filter="page <"))


def test_rows_take_values_from_what_events_carry_beside_their_payloads(
    spark: SparkSession, ep: BlockingEventproc, path: Path
) -> None:
    topic = ep.create_topic(STREAM, partitions=2)
    starts = positions(topic, tail=False)
    with topic.producer() as producer:
        for number in range(4):
            producer.post(
                b'{"key": "other", "__event": {"key": "none"}, "tags": ["a", {"b": 7}]}',
                key=f"k{number}" if number else None,
                event_time=HOUR_MS * number,
                headers={"trace.id": f"t{number}", "kind": "click"} if number % 2 else None,
                partition=number % 2,
            )
    carried = ("key", "headers", "stream", "segment", "partition", "event_time", "number")
    schema = attrs.evolve(
        CLICKS,
        timestamp=TimestampSpec(column="__event.event_time"),
        dimensions=(
            *(Dimension(name=name, field=f"__event.{name}") for name in carried),
            Dimension(name="trace", field="__event.headers.trace.id"),
            Dimension(name="of_payload", field="key"),
            Dimension(name="inner", field="$['__event'].key"),
            Dimension(name="number_in_tags", field="$.tags[1].b", type=DimensionType.LONG),
            Dimension(name="tags"),
            Dimension(name="shown"),
            Dimension(name="is_late", type=DimensionType.BOOLEAN),
        ),
        metrics=(Metric(name="end", type=MetricType.LONG_MAX, field="__event.offset"),),
        transforms=(
            Transform(
                name="shown",
                expression="concat(__event.key, '@', __event.headers['kind'], `$.tags[0]`)",
            ),
            Transform(name="is_late", expression="`__event`.timestamp > __event.event_time"),
        ),
        filter="__event.number = 0 OR __event.key <> 'k3'",
        query_granularity=Granularity.NONE,
    )
    with worker_room(spark, path) as room:
        frames = RowFrames(spark, schema)
        events = frames.read(slices_of(room, topic, starts))
        rows = frames.rolled_up(frames.typed(events)).orderBy("__time").collect()
    of_payload = ("other", "none", 7, '["a", {"b": 7}]')
    assert [tuple(row)[1:-1] for row in rows] == [
        (None, None, STREAM, "0.0", "0", "0", "0", None, *of_payload, None, True),
        *(
            ("k1", headers, STREAM, "1.0", "1", f"{HOUR_MS}", "0", "t1", *of_payload, "k1@clicka", True)
            for headers in ['{"trace.id":"t1","kind":"click"}']
        ),
        ("k2", None, STREAM, "0.0", "0", f"{2 * HOUR_MS}", "1", None, *of_payload, None, True),
    ]
    assert [row.end for row in rows[:2]] == [0, 0] and rows[2].end > 0
    assert [row[0].hour for row in rows] == [0, 1, 2]


def test_a_row_that_was_on_time_at_its_append_is_no_early_row(
    spark: SparkSession, ep: BlockingEventproc, path: Path
) -> None:
    stream = ep.create_stream(STREAM)
    starts = positions(stream, tail=False)
    before_ms = SystemClock().wall_ms()
    rows = [{"at": before_ms + ahead_ms, "page": f"{ahead_ms:,}"} for ahead_ms in (0, HOUR_MS, 3 * HOUR_MS)]
    with stream.writer() as writer:
        writer.write_many((json.dumps(each).encode(), None) for each in rows)
    schema = attrs.evolve(CLICKS, timestamp=TimestampSpec(column="at"), dimensions=(Dimension(name="page"),))
    with worker_room(spark, path) as room:
        frames = RowFrames(spark, schema)
        events = frames.read(slices_of(room, stream, starts))

        def accepted(max_ms: int, early_ms: int) -> list[str]:
            return sorted(
                row.page for row in frames.typed(events, max_ms=max_ms, early_ms=early_ms).collect()
            )

        closed_ms = before_ms - HOUR_MS
        assert accepted(closed_ms, 2 * HOUR_MS) == ["0", "3,600,000"]
        assert accepted(closed_ms, HOUR_MS // 2) == ["0"]
        assert accepted(before_ms + 2 * HOUR_MS, 0) == ["0", "3,600,000"]


def test_times_out_of_range_and_failing_expressions_stop_no_task(
    spark: SparkSession, ep: BlockingEventproc, path: Path
) -> None:
    stream = ep.create_stream(STREAM)
    starts = positions(stream, tail=False)
    times = [9_223_372_036_854_775_807, -9_223_372_036_854_775_808, 253_402_300_800_000, "+294247-01-10"]
    edges = [-62_135_596_800_000, 253_402_300_799_999]
    rows = [{"at": each, "page": "x", "ms": 1} for each in (*times, *edges, "9999-12-31")]
    with stream.writer() as writer:
        writer.write_many((json.dumps(each).encode(), None) for each in rows)
    schema = attrs.evolve(
        CLICKS,
        transforms=(Transform(name="page", expression="1 / (length(page) - 1)"),),
        segment_granularity=Granularity.YEAR,
        query_granularity=Granularity.YEAR,
    )
    session = spark.newSession()
    for key, value in SESSION.items():
        session.conf.set(key, value)
    with worker_room(session, path) as room:
        spec = spec_of(schema)
        create_group(room.directory, spec, starts, positions(stream, tail=True))
        (run,) = run_tasks(room, spec)
        task = room.directory.read(partial(find_task, task_id=run.id))
        assert task is not None
        assert (task.state, task.error, task.stats.unparseable) == ("succeeded", None, len(times))
        files = room.tables.tables.used("clicks")
        assert [(each.start_ms, each.rows) for each in files] == [
            (edges[0], 1),
            (253_370_764_800_000, 1),
        ]
        assert files[-1].end_ms == edges[1] + 1
        found = room.tables.read(session, table_columns(schema), room.tables.find(files[-1:]))
        assert [tuple(each)[1:] for each in found.collect()] == [(None, 2, 2)]


def test_files_stay_if_the_outcome_of_their_publication_is_unknown(
    spark: SparkSession, ep: BlockingEventproc, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = ep.create_stream(STREAM)
    commit = StoreTables.commit_table

    def fail_after_commit(self: StoreTables, *arguments: Any) -> None:
        commit(self, *arguments)
        raise KeyboardInterrupt

    with worker_room(spark, path) as room, attach(spark, path, host=False) as attached:
        with monkeypatch.context() as patched:
            patched.setattr(StoreTables, "commit_table", fail_after_commit)
            patched.setattr(threading, "excepthook", lambda _: None)
            publish_clicks(room, stream, range(100), base="first")
        assert rows_of(attached.table("clicks")) == expected(range(100))
        publish_clicks(room, stream, range(100, 200), base="second")
        with monkeypatch.context() as patched:
            patched.setattr(StoreTables, "commit_table", fail_after_commit)
            with pytest.raises(KeyboardInterrupt):
                attached.compact_table("clicks")
            version = attached.table_version("clicks")
            rows = attached.table("clicks", version=version)
            with pytest.raises(KeyboardInterrupt):
                attached.overwrite_table("clicks", rows, start=0, end=HOUR_MS, version=version)
        assert rows_of(attached.table("clicks")) == expected(range(200))


def test_a_slice_ends_after_as_many_events_as_its_task_may_hold(ep: BlockingEventproc, path: Path) -> None:
    stream = ep.create_stream(STREAM)
    starts = positions(stream, tail=False)
    write_clicks(stream, range(100))
    (key,) = starts
    with PlannerDirectory(path, hold_ms=HOUR_MS) as directory:
        reader = RangeReader(directory, {key[0]: STREAM})
        end = reader.wanted(starts, 2**20, 7)[key]
        assert directory.read(partial(number_at, stream_id=key[0], segment=key[1], offset=end)) == 7
        assert reader.wanted(starts, 2**20, 10**6) == positions(stream, tail=True)
        half = positions(stream, tail=True)[key] // 2
        assert 0 < reader.wanted(starts, half, 10**6)[key] <= half
        assert reader.wanted(starts, half, 10**6, bytes_most=3 * half) == positions(stream, tail=True)


def test_a_small_segment_is_read_to_its_end_beside_a_large_one(ep: BlockingEventproc, path: Path) -> None:
    stream = ep.create_stream(STREAM, scaling=ScalingPolicy.fixed(2))
    starts = positions(stream, tail=False)
    for numbers, key in ((range(3), "k1"), (range(20_000), "k0")):
        with stream.writer() as writer:
            writer.write_many((click(number), key) for number in numbers)
    tails = positions(stream, tail=True)
    small, large = sorted(tails, key=lambda key: tails[key])
    assert 0 < 1_000 * tails[small] < tails[large]
    with PlannerDirectory(path, hold_ms=HOUR_MS) as directory:
        reader = RangeReader(directory, {small[0]: STREAM})
        by_bytes = reader.wanted(starts, tails[large] // 100, 10**6)
        assert by_bytes[small] == tails[small]
        assert 0 < by_bytes[large] <= tails[large] // 100
        by_events = reader.wanted(starts, 2**30, 10)
        assert by_events[small] == tails[small]
        assert (
            directory.read(partial(number_at, stream_id=large[0], segment=large[1], offset=by_events[large]))
            == 7
        )
        one_each = reader.wanted(starts, 1, 10**6)
        assert {
            key: directory.read(partial(number_at, stream_id=key[0], segment=key[1], offset=end))
            for key, end in one_each.items()
        } == {small: 1, large: 1}


def test_a_task_reads_a_stream_that_appears_while_it_runs(ep: BlockingEventproc, path: Path) -> None:
    stream = ep.create_stream(STREAM)
    starts = positions(stream, tail=False)
    write_clicks(stream, range(10))
    ends = positions(stream, tail=True)
    with worker_room(None, path) as room:  # type: ignore[arg-type]  # no job runs
        spec = spec_of()
        create_group(room.directory, spec, starts, None)
        (order,) = claim(room)
        run = TaskRun(
            attrs.evolve(order, streams={}), spec, room
        )  # named to the worker before the stream was made
        run._plan(run._begin(order.n, dict(order.starts)))
        assert run._reader.slices(starts, ends) != []


def test_a_long_job_writes_heartbeats_until_its_task_is_replaced(
    ep: BlockingEventproc, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = ep.create_stream(STREAM)
    ended = threading.Event()
    monkeypatch.setattr(TaskRun, "_run", lambda _: ended.wait(WAIT_S))  # a job that takes long
    tracker = SimpleNamespace(getJobIdsForGroup=lambda _: [])
    session: Any = SimpleNamespace(sparkContext=SimpleNamespace(_jsc=None, statusTracker=lambda: tracker))
    with worker_room(session, path) as room:
        spec = spec_of()
        create_group(room.directory, spec, positions(stream, tail=False), None, base="slow")
        (order,) = claim(room)
        run = TaskRun(order, spec, room)

        def silent() -> int | None:
            """Let the last heartbeat be old; return when the next one came, 0 without one."""
            room.directory.write(lambda tx: write_task(tx, attrs.evolve(order.task, seen_ms=0)))
            run.keep()
            found = room.directory.read(partial(find_task, task_id=run.id))
            return None if found is None else found.seen_ms

        run._reported_ms -= KEEP_MS
        assert silent() == 0, "it does not run yet"
        run.start()
        try:
            assert silent(), "nothing was reported for long"
            assert silent() == 0, "a report has just been made"
            run._reported_ms -= KEEP_MS
            with monkeypatch.context() as patched:
                patched.setattr(PlannerDirectory, "write", full_disk)
                run.keep()
            assert not run._killed, "a heartbeat may be missing"
            room.directory.write(lambda tx: end_task(tx, order.task, TaskState.STOPPED))
            run._reported_ms -= KEEP_MS
            run.keep()
            assert run._killed
        finally:
            ended.set()
            run.join()


def test_a_hung_job_shows_since_when_and_its_core_is_free_after_its_task_was_stopped(
    spark: SparkSession, ep: BlockingEventproc, path: Path
) -> None:
    stream = ep.create_stream(STREAM)
    starts = positions(stream, tail=False)
    write_clicks(stream, range(10))
    sleep = "reflect('java.lang.Thread', 'sleep', bigint(86400000))"
    schema = attrs.evolve(CLICKS, transforms=(Transform(name="page", expression=sleep),))
    with worker_room(spark, path) as room:
        spec = spec_of(schema)
        # Spark cancels the later jobs of a cancelled group, too: other tasks of this session have other names.
        create_group(room.directory, spec, starts, positions(stream, tail=True), base="hung")
        (order,) = claim(room)
        run = TaskRun(order, spec, room)

        def shown() -> tuple[int, int]:
            """Write a heartbeat; return when it was written, and since when there is no progress."""
            run._reported_ms -= KEEP_MS
            run.keep()
            task = room.directory.read(partial(find_task, task_id=run.id))
            assert task is not None and task.seen_ms is not None and task.stats.progress_ms is not None
            return task.seen_ms, task.stats.progress_ms

        tracker = spark.sparkContext.statusTracker()
        run.start()
        while not any(
            (stage := tracker.getStageInfo(each)) is not None and stage.numActiveTasks
            for each in tracker.getActiveStageIds()
        ):
            assert not run.finished
            BETWEEN_LOOKS.wait(0.05)
        shown()  # the job has begun meanwhile: that is progress
        (seen_ms, since_ms), (later_ms, still_ms) = shown(), shown()
        assert seen_ms <= later_ms
        assert since_ms == still_ms <= seen_ms
        room.directory.write(lambda tx: end_task(tx, order.task, TaskState.STOPPED))
        run._reported_ms -= KEEP_MS
        run.keep()
        run.join(WAIT_S)
        assert run.finished
        cores = spark.sparkContext.defaultParallelism
        met = spark.sparkContext.parallelize(range(cores), cores).barrier().mapPartitions(list).collect()
        assert met == list(range(cores)), "all cores are free at the same time"


def full_disk(directory: PlannerDirectory, fn: object) -> NoReturn:
    raise DiskFull(path=directory.files.place)


def test_worker_goes_on_after_an_operation_that_may_be_repeated(
    path: Path, ep: BlockingEventproc, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []
    worker = IngestionWorker(path)

    def fail_once(_: IngestionWorker, room: WorkerRoom) -> None:
        looks.append(1)
        if len(looks) == 1:
            worker._changed.set()
            raise DiskFull(path=str(room.directory.db.path))
        worker.stop()

    monkeypatch.setattr(IngestionWorker, "_reconcile", fail_once)
    with worker_room(None, path) as room:  # type: ignore[arg-type]  # no task runs
        worker._serve(room)
    assert len(looks) == 2


def test_statistics_can_be_read_while_another_thread_adds_slices() -> None:
    meter = StatsMeter(0, 10)
    interval_s, ending = sys.getswitchinterval(), threading.Event()

    def add_slices() -> int:
        count = 0
        while not ending.is_set():
            count += 1
            meter.add_slice(count * 1000, 1, {"processed": 1, "processed_bytes": 1})
        return count

    sys.setswitchinterval(1e-6)  # threads take turns as often as they can
    try:
        with ThreadPoolExecutor(1) as pool:
            adding = pool.submit(add_slices)
            try:
                for _ in range(300):
                    meter.stats(0)
            finally:
                ending.set()
            assert meter.stats(0).processed <= adding.result()
    finally:
        sys.setswitchinterval(interval_s)
