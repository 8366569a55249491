"""The format "eventproc" as a sink: DataFrames into streams, batch and streaming. See docs/design/spark-sink.md.

As in `source`, the classes are thin, and travel between Spark's processes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlparse

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from eventproc.spark.sink_options import SinkOptions, parse_sink_options
from eventproc.spark.sink_rows import EventColumns
from eventproc.spark.sink_task import TaskOutput, write_task
from eventproc.store.chunks.ingest import SinkBatch
from eventproc.store.model.errors import CorruptRecord
from eventproc.store.segments.file_blobs import CHUNKS_FOLDER
from eventproc.store.segments.holds import HOLD_MS

QUERY_ID: Final = "sql.streaming.queryId"
"""The local property in which Spark tells the tasks of a query its id; within `foreachBatch`, too."""

_NOTHING: Final = "-"
"""How Spark's log of offsets says that a source has none."""


class EventprocWriter(DataSourceArrowWriter):
    """Writes a DataFrame, once if it says which batch it is."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        self._options = parse_sink_options(options, streaming=False, overwrite=overwrite)
        self._columns = EventColumns.of(self._options, schema)
        self._folder = _folder_of(self._options)
        _check_stream(self._options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write what one task is given."""
        return _write(iterator, self._columns, self._folder)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Make everything visible."""
        options, written = self._options, _written(messages)
        batch = None
        if options.sink is not None and options.batch is not None:
            batch = SinkBatch(options.sink, _run_of(written) or "", options.batch)
        _commit(options, written, batch)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Take away what tasks wrote."""
        _abort(self._options, messages)


class EventprocStreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a query, each once."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        self._options = parse_sink_options(options, streaming=True, overwrite=overwrite)
        self._columns = EventColumns.of(self._options, schema)
        self._folder = _folder_of(self._options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write what one task is given."""
        return _write(iterator, self._columns, self._folder)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Make the batch visible, unless it is there already."""
        options, written = self._options, _written(messages)
        if not written:
            return  # no task, so nothing to write
        if (run := _run_of(written)) is None:
            raise CorruptRecord(
                key=f"batch {batchId}", reason="Spark did not tell its tasks which query it is of"
            )
        batch = SinkBatch(options.sink or run, run, batchId, _offsets_of(options.checkpoint, batchId))
        _commit(options, written, batch)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Take away what tasks wrote."""
        _abort(self._options, messages)


def _check_stream(options: SinkOptions) -> None:
    """Find out before a job begins what would end it. Raises NotFound, StreamSealed."""
    from eventproc.spark.planner_directory import PlannerDirectory
    from eventproc.spark.sink_commit import find_stream_route

    with PlannerDirectory(options.path, hold_ms=HOLD_MS) as directory:
        directory.read(lambda tx: find_stream_route(options.stream, tx))


def _folder_of(options: SinkOptions) -> Path:
    """Return where tasks write; a link is followed here, so that executors elsewhere find the same place."""
    return (options.path / CHUNKS_FOLDER).resolve()


def _write(iterator: Iterator[pa.RecordBatch], columns: EventColumns, folder: Path) -> WriterCommitMessage:
    context = TaskContext.get()
    run = None if context is None else context.getLocalProperty(QUERY_ID)
    return write_task(iterator, columns, folder, run)


def _written(messages: Sequence[WriterCommitMessage | None]) -> list[TaskOutput]:
    return [each for each in messages if isinstance(each, TaskOutput)]


def _run_of(written: Sequence[TaskOutput]) -> str | None:
    return next((each.run for each in written), None)


def _commit(options: SinkOptions, written: Sequence[TaskOutput], batch: SinkBatch | None) -> None:
    from eventproc.spark.planner_directory import PlannerDirectory
    from eventproc.spark.sink_commit import abort, commit

    with PlannerDirectory(options.path, hold_ms=HOLD_MS) as directory:
        if not commit(directory, options.stream, written, batch):
            abort(directory, written)


def _abort(options: SinkOptions, messages: Sequence[WriterCommitMessage | None]) -> None:
    from eventproc.spark.planner_directory import PlannerDirectory
    from eventproc.spark.sink_commit import abort

    with PlannerDirectory(options.path, hold_ms=HOLD_MS) as directory:
        abort(directory, _written(messages))


def _offsets_of(checkpoint: str | None, batch: int) -> str | None:
    """Return where a batch ends in each of the query's sources, as JSON, out of Spark's own log, if it lies here."""
    if checkpoint is None or (address := urlparse(checkpoint)).scheme not in ("", "file"):
        return None
    folder = Path(unquote(address.path) if address.scheme else checkpoint)
    try:
        lines = (folder / "offsets" / str(batch)).read_text().splitlines()
        # The version of the format, settings, then a line for each source.
        return json.dumps([None if line == _NOTHING else json.loads(line) for line in lines[2:]])
    except (OSError, ValueError):
        return None


def committed(path: str | Path, stream: str, sink: str) -> dict[str, Any] | None:
    """Return what the sink of that name wrote last to a stream: {"run", "batch", "offsets"}; None if nothing.

    run: the query's id. offsets: a list, where each source of the query stood behind that batch, as `startingOffsets`
    wants it (of the format eventproc, as JSON); None where the checkpoint was not on this machine. For a query whose
    checkpoint was lost. Raises NotFound.
    """
    from eventproc.spark.planner_directory import PlannerDirectory
    from eventproc.store.catalog import get_stream
    from eventproc.store.chunks.ingest import find_sink_batch
    from eventproc.store.database import Tx

    def find(tx: Tx) -> SinkBatch | None:
        return find_sink_batch(tx, get_stream(tx, stream).value.stream_id, sink)

    with PlannerDirectory(Path(path).expanduser().absolute(), hold_ms=HOLD_MS) as directory:
        found = directory.read(find)
    if found is None:
        return None
    offsets = None if found.offsets is None else json.loads(found.offsets)
    return {"run": found.run, "batch": found.batch, "offsets": offsets}
