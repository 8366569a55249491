"""Files of tables lie where eventproc looks for them, and a missing one is an error that names it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from eventproc.blocking import BlockingEventproc
from eventproc.errors import CorruptRecord, InvalidArgument, TableChanged
from eventproc.spark import attach
from eventproc.spark.ingestion.files import TableFiles
from eventproc.spark.ingestion.parquet import WrittenFile, write_parquet
from eventproc.spark.ingestion.worker import compact_old
from eventproc.spark.planner_directory import PlannerDirectory
from eventproc.store.file_store import LocalFiles
from eventproc.store.ingestion import find_task
from eventproc.store.model.ingestion import TablePartitioning
from tests.ingestion.support import COLUMNS, write_rows
from tests.spark.ingestion_support import (
    CLICKS,
    HOUR_MS,
    STREAM,
    expected,
    merged,
    publish_clicks,
    rows_of,
    spec_of,
    worker_room,
)


@pytest.fixture
def elsewhere(spark: SparkSession, tmp_path: Path) -> Iterator[Path]:
    """Make another folder the root of Spark's default file system, as a cluster's HDFS is."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    settings = {
        "fs.defaultFS": "viewfs://elsewhere/",
        "fs.viewfs.mounttable.elsewhere.linkFallback": folder.as_uri(),
    }
    java: Any = spark.sparkContext._jsc
    hadoop = java.hadoopConfiguration()
    before = {name: hadoop.get(name) for name in settings}
    for name, value in settings.items():
        hadoop.set(name, value)
    yield folder
    for name, value in before.items():
        if value is None:
            hadoop.unset(name)
        else:
            hadoop.set(name, value)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "of [a] {b}*?"


class _RowsOfOneTask:
    """Rows as a task of Spark gets them, in this process."""

    def __init__(self, *batches: pa.RecordBatch) -> None:
        self._batches = batches

    def mapInArrow(self, fn: Any, _schema: object) -> Any:  # noqa: N802  # Spark's name
        return list(fn(self._batches))


def test_a_task_that_cannot_begin_a_file_leaves_nothing(tmp_path: Path) -> None:
    rows: Any = _RowsOfOneTask(pa.record_batch({"no type of Parquet": [pa.MonthDayNano([1, 2, 3])]}))
    with pytest.raises(pa.ArrowException):
        write_parquet(rows, LocalFiles(tmp_path), "clicks/1", "instance", rows_max=1, synced=False)
    assert not [each for each in tmp_path.rglob("*") if each.is_file()]


def test_the_default_file_system_of_spark_does_not_redirect_the_files_of_a_table(
    spark: SparkSession, elsewhere: Path, ep: BlockingEventproc, path: Path
) -> None:
    stream = ep.create_stream(STREAM)
    with worker_room(spark, path) as room, attach(spark, path, host=False) as attached:
        publish_clicks(room, stream, range(100), base="first")
        assert rows_of(attached.table("clicks")) == expected(range(100))
        publish_clicks(room, stream, range(100, 200), base="second")
        assert attached.compact_table("clicks").files_before == 2
        version = attached.table_version("clicks")
        kept = attached.table("clicks", version=version).where("page <> 'p0'")
        attached.overwrite_table("clicks", kept, start=0, end=HOUR_MS, version=version)
        wanted = [row for row in expected(range(200)) if row[1] != "p0"]
        assert merged(rows_of(attached.table("clicks"))) == wanted
        version = attached.table_version("clicks")
        nothing = attached.table("clicks", version=version).where("false")
        done = attached.overwrite_table("clicks", nothing, start=0, end=HOUR_MS, version=version)
        assert done.rows_after == 0
    assert list(elsewhere.iterdir()) == []


def test_a_slice_that_was_lost_fails_its_task_and_publishes_nothing(
    spark: SparkSession, ep: BlockingEventproc, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = TableFiles.write_scratch

    def lose(tables: TableFiles, rows: DataFrame, task: str) -> list[WrittenFile]:
        written = write(tables, rows, task)
        tables.delete(each.path for each in written)
        return written

    with worker_room(spark, path) as room:
        monkeypatch.setattr(TableFiles, "write_scratch", lose)
        (run,) = publish_clicks(room, ep.create_stream(STREAM), range(100))
        task = room.directory.read(partial(find_task, task_id=run.id))
        assert task is not None
        assert (task.state, f"_tasks/{run.id}" in (task.error or "")) == ("failed", True), task.error
        assert room.tables.tables.used("clicks") == []


def test_a_lost_file_of_a_table_is_named_even_if_the_session_ignores_missing_files(
    spark: SparkSession, ep: BlockingEventproc, path: Path
) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.files.ignoreMissingFiles", "true")
    with worker_room(spark, path) as room, attach(session, path, host=False) as attached:
        publish_clicks(room, ep.create_stream(STREAM), range(4000))
        planned = attached.table("clicks")
        lost = room.tables.tables.used("clicks")[0].path
        room.tables.delete([lost])
        with pytest.raises(CorruptRecord, match=re.escape(lost)):
            attached.table("clicks")
        with pytest.raises(Exception, match=re.escape(Path(lost).name)):
            planned.collect()


def test_of_two_callers_that_overwrite_what_they_read_the_later_one_is_refused(
    spark: SparkSession, ep: BlockingEventproc, path: Path
) -> None:
    with worker_room(spark, path) as room, attach(spark, path, host=False) as attached:
        publish_clicks(room, ep.create_stream(STREAM), range(100))
        version = attached.table_version("clicks")
        first = attached.table("clicks", version=version).where("page <> 'p0'")
        second = attached.table("clicks", version=version).where("page <> 'p1'")
        attached.overwrite_table("clicks", first, start=0, end=HOUR_MS, version=version)
        with pytest.raises(TableChanged):
            attached.overwrite_table("clicks", second, start=0, end=HOUR_MS, version=version)
        with pytest.raises(TableChanged):
            attached.table("clicks", version=version)
        with pytest.raises(InvalidArgument, match="version"):
            attached.table("clicks", version="other")
        with pytest.raises(InvalidArgument, match="version"):
            attached.table("clicks", version=attached.table_version("clicks"), realtime=True)
        assert rows_of(attached.table("clicks")) == [row for row in expected(range(100)) if row[1] != "p0"]


def test_rows_that_a_task_wrote_on_another_machine_do_not_count_as_none(
    spark: SparkSession, ep: BlockingEventproc, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with worker_room(spark, path) as room:
        stream = ep.create_stream(STREAM)
        with monkeypatch.context() as elsewhere:
            elsewhere.setattr(room.tables.files, "size", lambda _: None)
            (run,) = publish_clicks(room, stream, range(100))
        task = room.directory.read(partial(find_task, task_id=run.id))
        assert task is not None and task.state == "failed"
        assert "wrote it elsewhere" in (task.error or "")


def test_a_sweep_drops_intervals_beyond_the_retention_and_what_no_table_names(
    spark: SparkSession, ep: BlockingEventproc, path: Path
) -> None:
    with worker_room(spark, path) as room, attach(spark, path, host=False) as attached:
        now_ms = room.directory.db.clock.wall_ms()
        spec = attrs.evolve(
            spec_of(), retention_ms=now_ms - 3 * HOUR_MS // 2
        )  # counted from the end of an interval
        publish_clicks(room, ep.create_stream(STREAM), range(5000), spec)
        lost = room.tables.write_scratch(attached.table("clicks"), "dead")
        assert room.tables.sweep(room.directory, lambda instance: instance != room.instance) == len(lost)
        assert rows_of(attached.table("clicks")) == [
            row for row in expected(range(5000)) if row[0] >= HOUR_MS
        ]


def test_intervals_of_several_files_that_ended_long_ago_become_one_file(
    spark: SparkSession, ep: BlockingEventproc, path: Path
) -> None:
    with worker_room(spark, path) as room, attach(spark, path, host=False) as attached:
        stream = ep.create_stream(STREAM)
        for base, numbers in (("first", range(5000)), ("second", range(5000, 7200)), ("third", range(100))):
            publish_clicks(room, stream, numbers, base=base)
        assert [each.start_ms for each in room.tables.tables.used("clicks")] == [0, 0, HOUR_MS, HOUR_MS]
        before = merged(rows_of(attached.table("clicks")))
        compact_old(spark, path, 10 * HOUR_MS, {"clicks": 17 * HOUR_MS // 2})
        assert [each.start_ms for each in room.tables.tables.used("clicks")] == [0, HOUR_MS, HOUR_MS]
        assert merged(rows_of(attached.table("clicks"))) == before


def test_a_table_that_cannot_be_read_keeps_no_other_one_from_its_retention(
    ep: BlockingEventproc, directory: PlannerDirectory
) -> None:
    files, names = TableFiles(directory), ("broken", "clicks")
    ep.create_stream(STREAM)
    for name in names:
        ep.submit_supervisor(
            attrs.evolve(spec_of(attrs.evolve(CLICKS, datasource=name)), id=name, retention_ms=1)
        )
        write_rows(files.files, f"{name}/0/rows.parquet", 1)
        files.tables.append(name, COLUMNS, TablePartitioning.HOUR, [f"{name}/0/rows.parquet"])
    for each in list(files.files.paths("broken/metadata")):
        files.files.delete(each)
    with pytest.raises(FileNotFoundError):  # it is not known which files are in use
        files.sweep(directory, lambda _: True)
    assert files.tables.used("clicks") == []
