"""Columns of a table survive the specs that leave them out, and no call changes the type of one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest
from pyspark.sql import (
    DataFrame,
    SparkSession,
    functions as F,  # noqa: N812 - as all of Spark's users know it
)

from eventproc.blocking import BlockingEventproc
from eventproc.errors import InvalidArgument
from eventproc.ingestion import DataSchema, Dimension, DimensionType, Metric, MetricType
from eventproc.spark import AttachedEventproc, attach
from eventproc.store.ingestion.rows import find_task
from tests.spark.ingestion_support import (
    CLICKS,
    HOUR_MS,
    STREAM,
    create_group,
    positions,
    publish_clicks,
    run_tasks,
    spec_of,
    worker_room,
)

SHARE = Metric(name="share", type=MetricType.DOUBLE_MAX, field="share")
BY_COUNTRY = attrs.evolve(
    CLICKS, dimensions=(*CLICKS.dimensions, Dimension(name="country")), metrics=(*CLICKS.metrics, SHARE)
)
BY_BROWSER = attrs.evolve(
    CLICKS, dimensions=(Dimension(name="browser"), *CLICKS.dimensions), metrics=CLICKS.metrics[:1]
)


def all_rows(table: DataFrame) -> list[tuple[Any, ...]]:
    """Return the rows of a table in all columns that BY_COUNTRY and BY_BROWSER have, sorted."""
    names = ["page", "country", "browser", "clicks", "ms", "share"]
    return sorted(map(tuple, table.select(*names).collect()), key=str)


def test_compaction_keeps_columns_that_only_some_files_have(
    spark: SparkSession, ep: BlockingEventproc, path: Path
) -> None:
    stream = ep.create_stream(STREAM)

    def add(base: str, schema: DataSchema, **row: Any) -> None:
        starts = positions(stream, tail=True)
        with stream.writer() as writer:
            for _ in range(3):
                writer.post(json.dumps({"at": 0, "page": "p", **row}).encode(), key="k")
        create_group(room.directory, spec_of(schema), starts, positions(stream, tail=True), base=base)
        run_tasks(room, spec_of(schema))

    with worker_room(spark, path) as room, attach(spark, path, host=False) as attached:
        add("first", BY_COUNTRY, country="de", ms=5, share=0.5)
        add("second", BY_COUNTRY, country="de", ms=5, share=0.25)
        add("third", BY_BROWSER, browser="b")
        one, two, three = (
            ("p", "de", None, 3, 15, 0.5),
            ("p", "de", None, 3, 15, 0.25),
            ("p", None, "b", 3, None, None),
        )
        assert all_rows(attached.table("clicks")) == sorted([one, two, three], key=str)
        assert all_rows(attached.table("clicks", realtime=True)) == sorted([one, two, three], key=str)
        assert attached.compact_table("clicks").files_before == 3
        wanted = sorted([("p", "de", None, 6, 30, 0.5), three], key=str)
        assert all_rows(attached.table("clicks")) == wanted
        loaded = spark.read.format("eventproc.table").option("table", "clicks").load(str(path))
        assert all_rows(loaded) == wanted
        version = attached.table_version("clicks")
        kept = attached.table("clicks", version=version).where("country = 'de'")
        attached.overwrite_table("clicks", kept, start=0, end=HOUR_MS, version=version)
        assert all_rows(attached.table("clicks")) == wanted[:1]


@pytest.fixture
def published(spark: SparkSession, ep: BlockingEventproc, path: Path) -> Iterator[AttachedEventproc]:
    """A table with some rows."""
    schema = attrs.evolve(CLICKS, metrics=(*CLICKS.metrics, SHARE))
    with worker_room(spark, path) as room, attach(spark, path, host=False) as attached:
        publish_clicks(room, ep.create_stream(STREAM), range(100), spec_of(schema))
        yield attached


@pytest.mark.parametrize(
    ("column", "type", "refused"),
    [
        ("clicks", "int", False),
        ("clicks", "decimal(18,0)", False),
        ("clicks", "decimal(19,0)", True),
        ("clicks", "double", True),
        ("clicks", "string", True),
        ("share", "int", False),
        ("share", "float", False),
        ("share", "bigint", True),
        ("share", "decimal(4,2)", True),
        ("page", "void", False),
        ("page", "int", True),
        ("other", "int", True),
    ],
)
def test_rows_that_would_lose_something_overwrite_nothing(
    published: AttachedEventproc, column: str, type: str, refused: bool
) -> None:
    version = published.table_version("clicks")
    before = sorted(map(str, published.table("clicks").collect()))
    rows = published.table("clicks", version=version).withColumn(column, F.lit(None).cast(type))
    if refused:
        with pytest.raises(InvalidArgument, match=column):
            published.overwrite_table("clicks", rows, start=0, end=HOUR_MS, version=version)
        assert sorted(map(str, published.table("clicks").collect())) == before
        assert published.table_version("clicks") == version
    else:
        published.overwrite_table("clicks", rows, start=0, end=HOUR_MS, version=version)
        assert published.table("clicks").where(f"{column} IS NOT NULL").isEmpty()


def test_rows_whose_column_has_another_type_fail_their_task_which_names_it(
    spark: SparkSession, ep: BlockingEventproc, path: Path
) -> None:
    stream = ep.create_stream(STREAM)
    with worker_room(spark, path) as room, attach(spark, path, host=False) as attached:
        publish_clicks(room, stream, range(100), base="first")
        version = attached.table_version("clicks")
        number = spec_of(
            attrs.evolve(CLICKS, dimensions=(Dimension(name="page", type=DimensionType.LONG),))
        )  # as a spec could be submitted before changes of columns were refused
        (run,) = publish_clicks(room, stream, range(100, 200), number, base="second")
        task = room.directory.read(partial(find_task, task_id=run.id))
        assert task is not None and task.state == "failed"
        assert "column page of the table is a string, and not a long" in (task.error or "")
        assert attached.table_version("clicks") == version
