"""A compaction that has nothing to do starts no job of Spark."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest
from pyspark.sql import SparkSession

import eventproc
from eventproc.spark.ingestion import tables as tables_module
from eventproc.spark.ingestion.tables import Compaction, Tables
from tests.ingestion.support import publish_rows, spec_of

NO_SPARK = cast("SparkSession", None)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_an_interval_of_full_files_and_a_last_one_is_not_compacted_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables_module, "COMPACT_ROWS", 2)
    async with eventproc.open(tmp_path / "data", durability="os") as ep:
        await ep.create_scope("s")
        await ep.create_stream("s/t")
        await ep.submit_supervisor(spec_of())
        for times in ((1, 2), (3, 4), (5,)):
            await publish_rows(ep.db, *times)
    tables = Tables(NO_SPARK, tmp_path / "data")
    try:
        assert tables.compact("clicks") == Compaction(0, 0, 0, 0, 0)
    finally:
        tables.close()
