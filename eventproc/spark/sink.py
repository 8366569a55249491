"""The format "eventproc" as a sink: DataFrames into streams, batch and streaming. See docs/design/spark-sink.md.

As in `source`, the classes are thin and are pickled between Spark's processes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final
from urllib.parse import unquote, urlparse

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from eventproc.spark.option_names import spark_address
from eventproc.spark.sink_options import SinkOptions, parse_sink_options
from eventproc.spark.sink_rows import EventColumns
from eventproc.spark.sink_task import RoutedOutput, TaskOutput, write_routed_task, write_task
from eventproc.store.chunks.ingest import SinkBatch
from eventproc.store.file_store import open_file_store
from eventproc.store.model.errors import CorruptRecord

QUERY_ID: Final = "sql.streaming.queryId"
"""Local property that holds the query's id in its tasks and within `foreachBatch`."""

_NOTHING: Final = "-"
"""How Spark's offset log marks a source without an offset."""


class RowWriter:
    """What the writers of both kinds have in common: how they begin, and how their tasks write."""

    _streaming: ClassVar[bool]

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        self._options = parse_sink_options(options, streaming=self._streaming, overwrite=overwrite)
        self._columns = EventColumns.of(self._options, schema)
        self._place = _place_of(self._options, self._columns, check=not self._streaming)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task."""
        context = TaskContext.get()
        run = None if context is None else context.getLocalProperty(QUERY_ID)
        files = open_file_store(self._place)
        if self._columns.stream is None:
            return write_task(iterator, self._columns, files, run)
        return RoutedOutput(run, write_routed_task(iterator, self._columns, files, run))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int = 0) -> None:  # noqa: N803 - Spark's name
        """Delete the files of the tasks."""
        from eventproc.spark.planner_directory import PlannerDirectory
        from eventproc.spark.sink_commit import abort

        with PlannerDirectory(self._options.address) as directory:
            abort(directory, _written(messages))


class EventprocWriter(RowWriter, DataSourceArrowWriter):
    """Writes a DataFrame; exactly once if the options name its sink and batch."""

    _streaming = False

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Make all rows visible together."""
        options, written = self._options, _written(messages)
        batch = None
        if options.sink is not None and options.batch is not None:
            batch = SinkBatch(options.sink, _run_of(messages) or "", options.batch)
        _commit(options, written, batch)


class EventprocStreamWriter(RowWriter, DataSourceStreamArrowWriter):
    """Writes the batches of a query, each exactly once."""

    _streaming = True

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Make the batch visible, unless it was committed before."""
        options, written = self._options, _written(messages)
        if not written:
            return  # without tasks there are no rows
        if (run := _run_of(messages)) is None:
            raise CorruptRecord(
                key=f"batch {batchId}", reason="Spark did not pass the query's id to its tasks"
            )
        batch = SinkBatch(options.sink or run, run, batchId, _offsets_of(options.checkpoint, batchId))
        _commit(options, written, batch)


def _place_of(options: SinkOptions, columns: EventColumns, *, check: bool) -> str:
    """Return the place of the tasks' files. check: that the stream can be written, before the job starts.

    Raises NotFound, StreamSealed; InvalidArgument if rows name partitions, and the stream is no topic.
    """
    from eventproc.spark.planner_directory import PlannerDirectory
    from eventproc.spark.sink_commit import find_stream_route

    with PlannerDirectory(options.address) as directory:
        if check and (stream := options.stream) is not None:
            _, router = directory.read(lambda tx: find_stream_route(stream, tx))
            if columns.partition is not None:
                router.partition(0, topic=stream)
        files = directory.files
        if files.is_local:
            # Here, where the directory is: a task on another machine makes none.
            Path(files.place).mkdir(exist_ok=True)
        return files.place


def _written(messages: Sequence[WriterCommitMessage | None]) -> list[TaskOutput]:
    found: list[TaskOutput] = []
    for each in messages:
        if isinstance(each, RoutedOutput):
            found += each.outputs
        elif isinstance(each, TaskOutput):
            found.append(each)
    return found


def _run_of(messages: Sequence[WriterCommitMessage | None]) -> str | None:
    """Return the query's id, which tasks without rows know as well."""
    return next((each.run for each in messages if isinstance(each, RoutedOutput | TaskOutput)), None)


def _commit(options: SinkOptions, written: Sequence[TaskOutput], batch: SinkBatch | None) -> None:
    from eventproc.spark.planner_directory import PlannerDirectory
    from eventproc.spark.sink_commit import abort, commit

    with PlannerDirectory(options.address) as directory:
        if not commit(directory, options.stream, written, batch):
            abort(directory, written)


def _offsets_of(checkpoint: str | None, batch: int) -> str | None:
    """Return the end offsets of a batch as JSON, from Spark's offset log, if that is on this machine."""
    if checkpoint is None or (address := urlparse(checkpoint)).scheme not in ("", "file"):
        return None
    folder = Path(unquote(address.path) if address.scheme else checkpoint)
    try:
        lines = (folder / "offsets" / str(batch)).read_text().splitlines()
        # Two lines with the format version and settings, then one line per source.
        return json.dumps([None if line == _NOTHING else json.loads(line) for line in lines[2:]])
    except (OSError, ValueError):
        return None


def committed(path: str | Path, stream: str | None, sink: str) -> dict[str, Any] | None:
    """Return the last batch that a sink committed to a stream, to restart a query whose checkpoint was lost.

    Args:
        path: The directory, or the URL of a store on a server.
        stream: The stream, "scope/stream"; None: of a sink whose rows name their streams, its last batch to any.
        sink: The name of the sink: its option `sink`, or the query's id.

    Returns:
        None if the sink committed nothing, else a dict. `run`: the query's id. `batch`: the batch id. `offsets`: a
        list with the end position of that batch in each source of the query, in the form of `startingOffsets` (as
        JSON for the format eventproc); None if the checkpoint was not on this machine.

    Raises:
        NotFound: The stream does not exist.
    """
    from eventproc.spark.planner_directory import PlannerDirectory
    from eventproc.store.catalog import get_stream
    from eventproc.store.chunks.ingest import ALL_STREAMS, find_sink_batch
    from eventproc.store.database import Tx

    def find(tx: Tx) -> SinkBatch | None:
        stream_id = ALL_STREAMS if stream is None else get_stream(tx, stream).value.stream_id
        return find_sink_batch(tx, stream_id, sink)

    with PlannerDirectory(spark_address(path)) as directory:
        found = directory.read(find)
    if found is None:
        return None
    offsets = None if found.offsets is None else json.loads(found.offsets)
    return {"run": found.run, "batch": found.batch, "offsets": offsets}
