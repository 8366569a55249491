"""Tables as DataFrames: the published files at one moment, with or without what is not published yet; compaction.

A table is what its files say at one read of the database. Running queries keep their files for a day after these
were replaced or dropped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from functools import partial, reduce
from typing import Final, Self

import attrs
from pyspark.sql import (
    DataFrame,
    SparkSession,
    functions as F,  # noqa: N812 - as all of Spark's users know it
)
from pyspark.sql.pandas.types import to_arrow_schema

from eventproc.base.clock import new_id
from eventproc.ingestion import DataSchema, SupervisorSpec
from eventproc.ingestion.intervals import (
    RowTime,
    interval_end,
    interval_start,
    intervals_of,
    ms_of_bounds,
)
from eventproc.ingestion.ranges import ends_of
from eventproc.ingestion.spec import message_times
from eventproc.ingestion.table_schema import changed_columns, partitioning, table_schema
from eventproc.spark.ingestion.columns import check_rows
from eventproc.spark.ingestion.files import TableFiles
from eventproc.spark.ingestion.parquet import WrittenFile
from eventproc.spark.ingestion.ranges import RangeReader
from eventproc.spark.ingestion.rows import SESSION, RowFrames, table_columns
from eventproc.spark.planner_directory import PlannerDirectory
from eventproc.store.address import StoreAddress
from eventproc.store.database import Tx
from eventproc.store.ingestion.holds import hold_events
from eventproc.store.ingestion.iceberg import StoreTables
from eventproc.store.ingestion.pointers import find_pointer
from eventproc.store.ingestion.rows import read_streams
from eventproc.store.ingestion.supervisors import live_specs_of_table
from eventproc.store.ingestion.table_state import within
from eventproc.store.ingestion.unpublished import UnpublishedEvents, unpublished_events
from eventproc.store.model.argument_checks import invalid_argument
from eventproc.store.model.errors import InvalidArgument
from eventproc.store.model.ingestion import TIME, TIME_END_MS, TIME_MIN_MS, TableFile
from eventproc.store.model.ingestion_errors import TableChanged
from eventproc.store.segments.holds import HOLD_MS

COMPACT_ROWS: Final = 5_000_000
"""Rows of a compacted file, at most. Larger files are read faster, smaller ones by more cores."""


@attrs.frozen
class _Replaced:
    intervals: int
    files_before: int
    files_after: int
    rows_before: int
    rows_after: int

    @classmethod
    def of(cls, begins: Collection[int], old: Sequence[TableFile], new: Sequence[WrittenFile]) -> Self:
        """Return what replacing files did to the intervals that begin then."""
        rows = (sum(each.rows for each in files) for files in (old, new))
        return cls(len(begins), len(old), len(new), *rows)


@attrs.frozen
class Compaction(_Replaced):
    """What a compaction did: the intervals that it rewrote, and the files and rows of them before and after."""


@attrs.frozen
class Overwriting(_Replaced):
    """What rows took the place of: the intervals, and their files and rows before and after."""


class Tables:
    """The tables of a store, for one session of Spark; made by `attach`. Usable from any thread."""

    def __init__(self, spark: SparkSession, address: StoreAddress) -> None:
        self._spark = spark
        self._address = address
        self._open = ExitStack()
        self._directory: PlannerDirectory | None = None
        self._found: TableFiles | None = None
        self._utc: SparkSession | None = None

    def close(self) -> None:
        """Close what reading unpublished rows opened."""
        self._directory = self._found = None
        self._open.close()

    def files(
        self, name: str, start: RowTime | None = None, end: RowTime | None = None
    ) -> Sequence[TableFile]:
        """Return the used files with rows in [start, end), by interval. Raises NotFound, InvalidArgument."""
        bounds = ms_of_bounds(start, end)
        self._schema(name)
        return within(self._stored.used(name), *bounds)

    def read(
        self,
        name: str,
        *,
        start: RowTime | None = None,
        end: RowTime | None = None,
        realtime: bool = False,
        version: str | None = None,
    ) -> DataFrame:
        """Return the rows of a table as they are now. See `AttachedEventproc.table`."""
        start_ms, end_ms = ms_of_bounds(start, end)
        if realtime and version is not None:
            raise invalid_argument("version", version, "a version has no rows that are not published")
        schema = self._schema(name)
        if realtime:
            rows = self._with_unpublished(name, schema, start_ms, end_ms)
        else:
            used = self._stored.used(name, version=version)
            rows = self._published(schema, used if version is not None else within(used, start_ms, end_ms))
        if start_ms is not None:
            rows = rows.where(F.col(TIME) >= F.timestamp_millis(F.lit(start_ms)))
        if end_ms is not None:
            rows = rows.where(F.col(TIME) < F.timestamp_millis(F.lit(end_ms)))
        return rows

    def compact(self, name: str, *, start: RowTime | None = None, end: RowTime | None = None) -> Compaction:
        """Rewrite each interval of several files into as few as possible. See `AttachedEventproc.compact_table`."""
        schema = self._schema(name)
        found = self.files(name, start, end)
        begins = {each.path: interval_start(each.min_ms, schema.segment_granularity) for each in found}
        # Full files and a last one are all that a compaction makes of an interval.
        counts = Counter(begins[each.path] for each in found if each.rows < COMPACT_ROWS)
        old = [each for each in found if counts[begins[each.path]] > 1]
        if not old:
            return Compaction(0, 0, 0, 0, 0)
        new = self._rewritten(schema, self._files().find(old))
        if not self._replace(name, old, new, schema):
            return Compaction(0, 0, 0, 0, 0)
        return Compaction.of({begins[each.path] for each in old}, old, new)

    def compact_ended(self, name: str, before_ms: int) -> Compaction:
        """Compact the intervals that ended at or before a time."""
        end_ms = interval_start(before_ms, self._schema(name).segment_granularity)
        return self.compact(name, end=end_ms)

    def overwrite(
        self, name: str, rows: DataFrame, *, start: RowTime | None, end: RowTime | None, version: str
    ) -> Overwriting:
        """Put rows in the place of the intervals within [start, end). See `AttachedEventproc.overwrite_table`."""
        schema = self._schema(name)
        start_ms, end_ms = ms_of_bounds(start, end)
        low = TIME_MIN_MS if start_ms is None else start_ms
        high = TIME_END_MS if end_ms is None else end_ms
        columns = table_columns(schema)
        check_rows(name, columns, rows.schema)
        granularity = schema.segment_granularity
        spans = {each: intervals_of(each, granularity) for each in self._stored.used(name, version=version)}
        old = [each for each, (first, last) in spans.items() if first < high and low < last]
        begins = {spans[each][0] for each in old}
        for each in old:
            _check_within(*spans[each], low, high)
        scratch = f"rows-{new_id(self._opened().db.clock)}"
        try:
            typed = [F.col(f"`{each.name}`").cast(each.dataType).alias(each.name) for each in columns]
            # In the session of the rows, whose zone may be another.
            written = self._files().write_scratch(rows.select(*typed), scratch)
            if any(each.no_time for each in written):
                raise invalid_argument("rows", TIME, "a row has no time")
            new = self._rewritten(schema, [each.path for each in written])
        finally:
            self._files().clear(scratch)
        try:
            for file in new:
                assert file.start_ms is not None, "the rows have their interval"
                begins.add(begin := interval_start(file.start_ms, granularity))
                _check_within(begin, interval_end(begin, granularity), low, high)
        except InvalidArgument:
            self._files().delete(each.path for each in new)
            raise
        if not self._replace(name, old, new, schema, version):
            raise TableChanged(table=name)
        return Overwriting.of(begins, old, new)

    def _files(self) -> TableFiles:
        if self._found is None:
            self._found = TableFiles(self._opened())
        return self._found

    @property
    def _stored(self) -> StoreTables:
        return self._files().tables

    def _schema(self, name: str) -> DataSchema:
        return self._opened().read(partial(table_schema, name=name))

    def _rewritten(self, schema: DataSchema, paths: Sequence[str]) -> Sequence[WrittenFile]:
        """Write the rows of Parquet files into files of the table, rolled up again; they are not used yet."""
        if not paths:
            return []
        session, files = self._utc_session(), self._files()
        frames = RowFrames(session, schema)
        rows = frames.by_interval(files.read(session, frames.columns, paths))
        return files.write(rows, schema.datasource, COMPACT_ROWS)

    def _replace(
        self,
        name: str,
        old: Sequence[TableFile],
        new: Sequence[WrittenFile],
        schema: DataSchema,
        version: str | None = None,
    ) -> bool:
        """Let new files take the place of old ones; if another call was faster, delete them and return False."""

        def together(tx: Tx) -> object:
            # While a table is empty, a spec may change its columns.
            return changed_columns(schema, table_schema(tx, name)) or None

        paths = [each.path for each in new]
        columns = to_arrow_schema(table_columns(schema), timezone="UTC")
        # If this raises, the files may be those of the table: only the sweep may delete them.
        replaced = self._stored.replace(
            name, old, paths, columns=columns, by=partitioning(schema), version=version, together=together
        )
        if not replaced:
            self._files().delete(paths)
        return replaced

    def _published(self, schema: DataSchema, files: Sequence[TableFile]) -> DataFrame:
        columns = table_columns(schema)
        if not files:
            return self._spark.createDataFrame([], columns)
        return self._files().read(self._spark, columns, self._files().find(files))

    def _with_unpublished(
        self, name: str, schema: DataSchema, start_ms: int | None, end_ms: int | None
    ) -> DataFrame:
        """Return the published rows and those of the events behind them, as of one transaction."""
        directory = self._opened()
        hold = f"table-{new_id(directory.db.clock)}"

        def look(tx: Tx) -> tuple[str | None, list[tuple[SupervisorSpec, UnpublishedEvents]]]:
            location = find_pointer(tx, name)
            behind = [
                (spec, events)
                for spec in map(SupervisorSpec.parse, live_specs_of_table(tx, name))
                for events in unpublished_events(
                    tx,
                    spec.id,
                    window=message_times(spec.io, tx.now_ms),
                    bounds=ends_of(spec, read_streams(tx, spec.id)),
                )
            ]
            for number, (_, events) in enumerate(behind):
                hold_events(tx, f"{hold}-{number}", events.starts, tx.now_ms + HOLD_MS)
            return location, behind

        stored = self._stored  # first: what was published in the layout of before gets its pointer
        location, behind = directory.write(look)
        files = (
            [] if location is None else within(stored.readable(stored.at(name, location)), start_ms, end_ms)
        )
        parts = [self._published(schema, files)]
        for own, events in behind:
            reader = RangeReader(directory, events.streams)
            frames = RowFrames(self._utc_session(), own.schema)
            read = frames.read(reader.slices(events.starts, events.ends))
            typed = frames.typed(
                read,
                min_ms=events.min_ms,
                max_ms=events.max_ms,
                early_ms=own.io.early_message_rejection_ms or 0,
            )
            parts.append(frames.rolled_up(typed))
        return reduce(partial(DataFrame.unionByName, allowMissingColumns=True), parts)

    def _utc_session(self) -> SparkSession:
        """Return a session with the settings of tables; one for all calls, because each starts Python processes."""
        if self._utc is None:
            session = self._spark.newSession()
            for key, value in SESSION.items():
                session.conf.set(key, value)
            self._utc = session
        return self._utc

    def _opened(self) -> PlannerDirectory:
        if self._directory is None:
            self._directory = self._open.enter_context(PlannerDirectory(self._address))
        return self._directory


def _check_within(start_ms: int, end_ms: int, low: int, high: int) -> None:
    if start_ms < low or high < end_ms:
        interval = f"{_iso(start_ms)} to {_iso(end_ms)}"
        raise invalid_argument(
            "bounds",
            f"{_iso(low)} to {_iso(high)}",
            f"the interval {interval} reaches beyond; choose bounds around it, or None for no bound",
        )


def _iso(ms: int) -> str:
    known = min(max(ms, TIME_MIN_MS), TIME_END_MS - 1)
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=known)).isoformat()
