"""Parquet files that Spark's tasks write into a file store, and read from one.

A task puts its files itself, complete and under their names, and tells the driver what it put. So a table needs no
file system that Spark knows, and a file that a failed attempt left has a name that nobody uses.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Final

import attrs
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from eventproc.base.clock import SystemClock
from eventproc.spark.ingestion.rows import INTERVAL
from eventproc.store.file_store import CountedFile, FileStore, open_file_store
from eventproc.store.ingestion.table_paths import new_table_path
from eventproc.store.model.ingestion import TIME

ROW_GROUP_BYTES: Final = 32 * 2**20
"""Bytes of rows, as Arrow holds them, that are written together. Higher: a task needs more memory; lower: readers skip
and compress less."""

_SPARK_VERSION: Final = {b"org.apache.spark.version": b"4.0.0"}
"""Tells Spark's reader that times before 1900 follow the proleptic Gregorian calendar, as Arrow's do."""


@attrs.frozen
class WrittenFile:
    """A file that a task put.

    start_ms: beginning of the interval of its rows; None if they lie in any. min_ms, max_ms: first and last time of a
    row, None without any. no_time: rows without a time.
    """

    path: str
    start_ms: int | None
    rows: int
    bytes: int
    min_ms: int | None
    max_ms: int | None
    no_time: int


_WRITTEN: Final = pa.schema(
    [(each.name, pa.string() if each.name == "path" else pa.int64()) for each in attrs.fields(WrittenFile)]
)
"""The fields of a WrittenFile, as a task passes them to the driver."""


def write_parquet(
    rows: DataFrame, files: FileStore, folder: str, instance: str, *, rows_max: int, synced: bool
) -> list[WrittenFile]:
    """Write rows into files of at most `rows_max` rows, by a job, and return them.

    With the column INTERVAL, whose equal values must be together and in order, each file has the rows of one interval,
    and lies in a folder of it. instance: that may publish them. synced: whether they must survive a power loss.

    Raises Spark's errors; FileNotFoundError if a task wrote on a machine whose files this one does not see.
    """
    write = _Write(files.place, folder, instance, rows_max, synced)
    found = [WrittenFile(*each) for each in rows.mapInArrow(write, from_arrow_schema(_WRITTEN)).collect()]
    for each in found if files.is_local else ():
        if files.size(each.path) != each.bytes:
            raise FileNotFoundError(f"{files.show(each.path)}: not found here; a task wrote it elsewhere")
    return found


def read_parquet(
    session: SparkSession, columns: StructType, files: FileStore, paths: Sequence[str]
) -> DataFrame:
    """Return the rows of files. A file that is missing fails the job, whatever the session says."""
    if files.is_local:
        reader = session.read.schema(columns).options(ignoreMissingFiles="false", ignoreCorruptFiles="false")
        # Without the scheme, Spark's default file system takes them; and it takes paths as patterns.
        return reader.parquet(
            *(re.sub(r"[{}\[\]*?\\]", r"\\\g<0>", f"file:{files.show(each)}") for each in paths)
        )
    count = min(session.sparkContext.defaultParallelism, len(paths))
    parts = [paths[number::count] for number in range(count)]
    read = _Read(files.place, parts, to_arrow_schema(columns, timezone="UTC"))
    return session.range(0, count, 1, max(count, 1)).mapInArrow(read, columns)


def rows_of_file(files: FileStore, path: str, wanted: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file; a column that it does not have is null. Raises FileNotFoundError."""
    with pq.ParquetFile(files.open_arrow(path)) as file:
        columns = [name for name in wanted.names if name in file.schema_arrow.names]
        for batch in file.iter_batches(columns=columns):
            yield pa.RecordBatch.from_arrays(
                [
                    batch.column(field.name).cast(field.type)
                    if field.name in columns
                    else pa.nulls(batch.num_rows, field.type)
                    for field in wanted
                ],
                schema=wanted,
            )


@attrs.frozen
class _Read:
    """A function for `mapInArrow` that reads the files of the parts with the numbers that it receives."""

    place: str
    parts: Sequence[Sequence[str]]
    schema: pa.Schema

    def __call__(self, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        files = open_file_store(self.place)
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                for path in self.parts[int(number)]:
                    yield from rows_of_file(files, path, self.schema)


@attrs.frozen
class _Write:
    """A function for `mapInArrow` that writes the rows that it receives, and yields what it wrote."""

    place: str
    folder: str
    instance: str
    rows_max: int
    synced: bool

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        files = open_file_store(self.place)
        file: _NewFile | None = None
        try:
            for batch in batches:
                for start_ms, rows in _by_interval(batch):
                    while rows.num_rows:
                        if file is not None and not file.takes(start_ms):
                            yield file.finish()
                            file = None
                        if file is None:
                            file = _NewFile(files, self, start_ms, rows.schema)
                        rows = file.add(rows)
            if file is not None:
                yield file.finish()
                file = None
        finally:
            if file is not None:
                file.abandon()


def _by_interval(batch: pa.RecordBatch) -> Iterator[tuple[int | None, pa.RecordBatch]]:
    """Yield the rows of each interval in turn, without the column of it."""
    if INTERVAL not in batch.schema.names:
        yield None, batch
        return
    runs = pc.call_function("run_end_encode", [batch.column(INTERVAL)])
    rows, begin = batch.drop_columns([INTERVAL]), 0
    for start_ms, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
        yield start_ms, rows.slice(begin, end - begin)
        begin = end


class _NewFile:
    """A file that a task is writing."""

    def __init__(self, files: FileStore, write: _Write, start_ms: int | None, schema: pa.Schema) -> None:
        files.verify_reachable()  # a folder made here would be one that the driver does not see
        folder = write.folder if start_ms is None else f"{write.folder}/{start_ms}"
        self._files, self._synced, self._rows_max = files, write.synced, write.rows_max
        self._path = new_table_path(folder, write.instance, SystemClock())
        self._start_ms = start_ms
        self._file = CountedFile(files.create(self._path))
        try:
            file = pa.PythonFile(self._file, mode="w")
            self._writer = pq.ParquetWriter(file, schema.with_metadata(_SPARK_VERSION))
        except BaseException:
            self._file.abandon()
            raise
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0
        self._count = self._no_time = 0
        self._bounds: list[int] = []

    def takes(self, start_ms: int | None) -> bool:
        """Return whether rows of an interval may be added."""
        return start_ms == self._start_ms and self._count < self._rows_max

    def add(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Add rows up to the limit, and return the others."""
        taken = rows.slice(0, self._rows_max - self._count)
        self._count += taken.num_rows
        times = taken.column(TIME).cast(pa.timestamp("us", tz="UTC"))
        self._no_time += times.null_count
        found = pc.call_function("min_max", [times.cast(pa.int64())]).as_py()
        self._bounds += [each // 1000 for each in found.values() if each is not None]
        self._waiting.append(taken)
        self._waiting_bytes += taken.nbytes
        if self._waiting_bytes >= ROW_GROUP_BYTES:
            self._write_waiting()
        return rows.slice(taken.num_rows)

    def finish(self) -> pa.RecordBatch:
        """Give the file its name, and return what it is."""
        self._write_waiting()
        self._writer.close()
        self._file.finish()
        if self._synced:
            self._files.sync(self._path)
        low, high = min(self._bounds, default=None), max(self._bounds, default=None)
        made = (self._path, self._start_ms, self._count, self._file.size_bytes, low, high, self._no_time)
        return pa.RecordBatch.from_pylist([dict(zip(_WRITTEN.names, made, strict=True))], schema=_WRITTEN)

    def abandon(self) -> None:
        """Discard the file."""
        with suppress(Exception):  # the disk may be full; a writer that is not closed complains later
            self._writer.close()
        self._file.abandon()

    def _write_waiting(self) -> None:
        if self._waiting:
            table = pa.Table.from_batches(self._waiting)
            self._writer.write_table(table, row_group_size=table.num_rows)
        self._waiting, self._waiting_bytes = [], 0
