"""Runs the sink without Spark: writes rows like a task and commits batches like a driver."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import pyarrow as pa
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from eventproc.blocking import BlockingStream
from eventproc.spark.planner_directory import PlannerDirectory
from eventproc.spark.sink_commit import commit
from eventproc.spark.sink_options import SinkOptions
from eventproc.spark.sink_rows import EventColumns
from eventproc.spark.sink_task import TaskOutput, write_task
from eventproc.store.chunks.ingest import SinkBatch
from eventproc.store.file_store import LocalFiles
from eventproc.store.segments import Event
from eventproc.testing import violations
from tests.spark.support import STREAM

COLUMNS = EventColumns.of(
    SinkOptions(address=Path(), stream=STREAM),
    StructType([StructField("payload", BinaryType()), StructField("key", StringType())]),
)

LARGE = 2000
"""Bytes of a payload: a hundred of them exceed a task's message."""


def rows(numbers: Iterable[int], *, keys: int = 7, size: int = 6) -> pa.RecordBatch:
    """Return a row for each number, with one of so many keys: those of a key grow."""
    found = list(numbers)
    payloads = [(b"%06d" % each).ljust(size, b".") for each in found]
    return pa.record_batch(
        [pa.array(payloads), pa.array([f"k{each % keys}" if keys else None for each in found], pa.string())],
        names=["payload", "key"],
    )


def task(
    path: Path, *batches: pa.RecordBatch, run: str = "run", columns: EventColumns = COLUMNS
) -> TaskOutput:
    """Write what a task is given."""
    (path / "chunks").mkdir(exist_ok=True)
    return write_task(batches, columns, LocalFiles(path / "chunks"), run)


def commit_batch(
    directory: PlannerDirectory,
    written: Sequence[TaskOutput],
    batch: int,
    *,
    name: str = "sink",
    run: str = "run",
) -> bool:
    """Commit as Spark's driver does."""
    return commit(directory, STREAM, written, SinkBatch(name, run, batch))


def events_of(stream: BlockingStream) -> list[Event]:
    """Return what an ordinary reader reads, from the head to the tail."""
    with stream.reader() as reader:
        return list(reader.until(stream.tail()))


def numbers_of(events: Iterable[Event]) -> list[int]:
    return [int(event.payload[:6]) for event in events]


def files(path: Path) -> list[Path]:
    """Return the files of sinks in a directory."""
    return sorted((path / "chunks" / "sink").glob("*/*"))


def check(directory: PlannerDirectory) -> None:
    """Assert that every invariant holds."""
    found = directory.read(violations)
    assert not found, "\n".join(found)
