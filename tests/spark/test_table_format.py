"""The reader of the format "eventproc.table", without a session of Spark."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.types import StructType, TimestampType

from eventproc.spark.ingestion.table_format import FileRead, TableOptions, TableReader

ROWS = 200_000
"""More than one batch of a file holds."""


def test_the_bounds_hold_for_every_row_of_a_file_of_several_batches(tmp_path: Path) -> None:
    times = pa.array(range(ROWS), pa.timestamp("ms", tz="UTC"))
    pq.write_table(pa.table({"__time": times}), tmp_path / "rows.parquet")
    asked = TableOptions.parse({"path": str(tmp_path), "table": "t", "start": "100", "end": "150000"})
    reader = TableReader(asked, StructType().add("__time", TimestampType()))
    batches = list(reader.read(FileRead(str(tmp_path), "rows.parquet")))
    assert len(batches) > 1
    found = pa.Table.from_batches(batches).column("__time").cast(times.type)
    assert found == pa.chunked_array([times[100:150_000]])
