"""The format "eventproc": streams as DataFrames, batch and streaming (docs/design/spark-source.md), and as sinks.

The classes are thin: they live in Spark's processes and are pickled between them. Modules that only planning needs are
imported where they are used, because tasks run in many processes and do not need them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, ClassVar, Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from eventproc.spark.partitioning import ChunkPartition, FileSlice, divide_into_partitions
from eventproc.spark.source_options import Positions, SourceOptions, parse_options
from eventproc.spark.source_rows import RowLayout, read_slices, schema_of

if TYPE_CHECKING:
    from eventproc.spark.planner import Planner
    from eventproc.spark.planner_directory import PlannerDirectory

CLEANED_MS: Final = 600_000
"""How often a query deletes exported files that nobody needs. A lower value costs a read more often; a higher one keeps
the files for longer if no host is there."""


class EventprocSource(DataSource):
    """`format("eventproc")` for `spark.read`, `spark.readStream`, `df.write` and `df.writeStream`."""

    cores: ClassVar[int] = os.cpu_count() or 1
    """Partitions of a batch, at most, unless `minPartitions` asks for more. `register` sets the session's cores."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        """options: see the design notes. They are parsed when Spark asks for a reader or a writer."""
        super().__init__(options)
        self._given = dict(options.items())

    @classmethod
    def name(cls) -> str:
        """Return "eventproc"."""
        return "eventproc"

    def schema(self) -> StructType | str:
        """Return the columns that the options ask for. Raises InvalidArgument."""
        return schema_of(parse_options(self._given))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of one batch."""
        asked = parse_options(self._given)
        return EventprocReader(asked, RowLayout.of(asked, schema), self.cores)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return the reader of a query, or of one of its tasks."""
        asked = parse_options(self._given)
        return EventprocStreamReader(asked, RowLayout.of(asked, schema), self.cores)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of a DataFrame. Raises InvalidArgument."""
        from eventproc.spark.sink import EventprocWriter

        return EventprocWriter(self._given, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        """Return the writer of a query's batches. Raises InvalidArgument."""
        from eventproc.spark.sink import EventprocStreamWriter

        return EventprocStreamWriter(self._given, schema, overwrite)


class SliceReader:
    """What the readers of both kinds have in common: how a plan becomes tasks, and how these read."""

    def __init__(self, options: SourceOptions, layout: RowLayout, cores: int) -> None:
        self._options = options
        self._layout = layout
        self._cores = cores

    def _divided(self, groups: list[list[FileSlice]]) -> list[InputPartition]:
        """Return the tasks that read a plan."""
        options = self._options
        count_min, events_max = options.partitions_min or 0, options.partition_events_max
        return [*divide_into_partitions(groups, count_min, self._cores, events_max)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the events of a partition."""
        assert isinstance(partition, ChunkPartition), f"{partition} is not a ChunkPartition"
        return read_slices(self._layout, partition.slices)


class EventprocReader(SliceReader, DataSourceReader):
    """Reads what lies between two positions, once."""

    def partitions(self) -> list[InputPartition]:
        """Plan the read. The process ends soon after, so the hold lasts for `holdMs` and is not renewed."""
        from eventproc.spark.chunk_cleanup import try_to_clean_chunks
        from eventproc.spark.planner import Planner
        from eventproc.spark.planner_directory import PlannerDirectory

        with PlannerDirectory(self._options.address, hold_ms=self._options.hold_ms) as directory:
            planner = Planner(self._options, directory)
            start = planner.position(self._options.starting or Positions("earliest"))
            end = planner.position(self._options.ending or Positions("latest"))
            groups = planner.plan(start, end, batch="", glued=False)
            try_to_clean_chunks(directory)
        return self._divided(groups) or [ChunkPartition(())]


class EventprocStreamReader(SliceReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans the batches of a query in a process that lives as long as the query, and reads them in other processes."""

    def __init__(self, options: SourceOptions, layout: RowLayout, cores: int) -> None:
        super().__init__(options, layout, cores)
        self._initial: dict[str, str] | None = None
        self._tails: dict[str, str] | None = None
        self._directory: PlannerDirectory | None = None
        self._planner: Planner | None = None
        self._cleaned_ms: int | None = None

    def __reduce__(self) -> tuple[type[EventprocStreamReader], tuple[Any, ...]]:
        # Only what tasks need is pickled; the open directory stays in this process.
        return EventprocStreamReader, (self._options, self._layout, self._cores)

    def initialOffset(self) -> dict[str, str]:  # noqa: N802 - Spark's name
        """Return where a new query begins: always the same answer."""
        if self._initial is None:
            self._initial = self._open().position(self._options.starting or Positions("latest"))
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return the limit of a batch that the options set."""
        if self._options.events_max is not None:
            return ReadMaxRows(self._options.events_max)
        if self._options.bytes_max is not None:
            return ReadMaxBytes(self._options.bytes_max)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, str], limit: ReadLimit) -> dict[str, str]:  # noqa: N802 - Spark's name
        """Return where the next batch ends, or `start` if there are no events. One read of the database."""
        from eventproc.spark.batch_cursor import BatchBudget

        planner = self._open()
        assert self._directory is not None, "the planner has a directory"
        self._directory.finish(_text(start))  # Spark asks for the next batch only after this one is finished
        budget = BatchBudget(
            events=limit.max_rows if isinstance(limit, ReadMaxRows) else None,
            bytes=limit.max_bytes if isinstance(limit, ReadMaxBytes) else None,
        )
        end, self._tails = planner.next_position(start, budget)
        return end

    def reportLatestOffset(self) -> dict[str, str] | None:  # noqa: N802 - Spark's name
        """Return the tails of the streams as of the last `latestOffset`: Spark derives the lag from them."""
        return self._tails

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Limit the query to the events that exist now, in as many batches as the limit requires."""
        planner = self._open()
        if self._options.ending is None:
            planner.freeze(planner.position(Positions("latest")))

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> list[InputPartition]:
        """Plan a batch. A second plan, after a crash, has the same events."""
        groups = self._open().plan(start, end, batch=_text(end), glued=True)
        self._clean()
        return self._divided(groups)

    def commit(self, end: dict[str, str]) -> None:
        """End the holds of finished batches. Spark never sends the last one: `latestOffset` does it too."""
        if self._directory is not None:
            self._directory.finish(_text(end))

    def stop(self) -> None:
        """Close the directory. Spark does not always call it; then only the holds stay, until their deadline."""
        if self._directory is not None:
            self._directory.__exit__(None, None, None)
            self._directory = self._planner = None

    def _clean(self) -> None:
        """Delete exported files that nobody needs, now and then: no host may be there to do it."""
        from eventproc.spark.chunk_cleanup import try_to_clean_chunks

        assert self._directory is not None, "the planner has a directory"
        now_ms = self._directory.db.clock.monotonic_ms()
        if self._cleaned_ms is None or now_ms - self._cleaned_ms >= CLEANED_MS:
            # Where some are left, the next batch goes on.
            self._cleaned_ms = None if try_to_clean_chunks(self._directory) else now_ms

    def _open(self) -> Planner:
        from eventproc.spark.planner import Planner
        from eventproc.spark.planner_directory import PlannerDirectory

        if self._planner is None:
            directory = PlannerDirectory(self._options.address, hold_ms=self._options.hold_ms).__enter__()
            self._directory = directory
            directory.keep_holds()
            self._planner = Planner(self._options, directory)
            if self._options.ending is not None:
                self._planner.freeze(self._planner.position(self._options.ending))
        return self._planner


def _text(offsets: Mapping[str, str]) -> str:
    return json.dumps(offsets, sort_keys=True)
