"""What Spark's short-lived processes import: a second for pandas would be a second of each query and of each batch."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from eventproc.blocking import BlockingEventproc
from tests.spark.sink_support import events_of
from tests.spark.support import STREAM
from tests.tidy.source import ROOT

PROGRAM = """
import sys
from pathlib import Path
import pyarrow as pa
from pyspark.sql.types import LongType, StringType, StructField, StructType
import eventproc.spark.source
from eventproc.spark.planner import Planner
from eventproc.spark.planner_directory import PlannerDirectory
from eventproc.spark.sink_commit import commit
from eventproc.spark.sink_options import SinkOptions
from eventproc.spark.sink_rows import EventColumns
from eventproc.spark.sink_task import write_task
from eventproc.spark.source_options import Positions, parse_options
from eventproc.spark.source_rows import RowLayout, read_slices
from eventproc.store.chunks.ingest import SinkBatch
from eventproc.store.file_store import LocalFiles

path, stream = Path(sys.argv[1]), sys.argv[2]
with pa.memory_map(str(path / "rows")) as file:
    rows = pa.ipc.open_file(file).get_batch(0)
schema = StructType([StructField("id", LongType()), StructField("name", StringType())])
for size in (rows.num_rows, 3):
    columns = EventColumns.of(SinkOptions(address=path, stream=stream, key="name"), schema)
    output = write_task([rows.slice(0, size)], columns, LocalFiles(path / "chunks"), "run")
    with PlannerDirectory(path, hold_ms=60_000) as directory:
        commit(directory, stream, [output], SinkBatch("sink", "run", size == 3))
options = parse_options({"path": str(path), "stream": stream})
with PlannerDirectory(path, hold_ms=60_000) as directory:
    planner = Planner(options, directory)
    ends = (planner.position(Positions(name)) for name in ("earliest", "latest"))
    groups = planner.plan(*ends, batch="", glued=True)
layout = RowLayout.of(options, eventproc.spark.source.schema_of(options))
read = [each for group in groups for each in read_slices(layout, group)]
assert sum(each.num_rows for each in read) == rows.num_rows + 3
print(*({"pandas", "eventproc.runtime", "eventproc.groups"} & sys.modules.keys()))
"""


def test_planner_commit_and_tasks_import_neither_pandas_nor_the_runtime(
    ep: BlockingEventproc, path: Path
) -> None:
    stream = ep.create_stream(STREAM)
    (path / "chunks").mkdir()
    rows = pa.record_batch(
        {"id": range(10_000), "name": [f"k{each % 7}" if each % 5 else None for each in range(10_000)]}
    )
    with pa.OSFile(str(path / "rows"), "wb") as file, pa.ipc.new_file(file, rows.schema) as writer:
        writer.write_batch(rows)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(path), STREAM],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "\n"), done.stderr
    assert len(events_of(stream)) == 10_003


def test_tasks_of_a_session_run_under_the_daemon_that_acknowledges_immediately(spark: SparkSession) -> None:
    def program(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        spec = sys.modules["__main__"].__spec__
        name = None if spec is None else spec.name
        yield from (pa.RecordBatch.from_pylist([{"name": name}]) for _ in batches)

    found = spark.range(0, 1, 1, 1).mapInArrow(program, "name string").collect()
    assert [row.name for row in found] == ["eventproc.spark.python_daemon"]
