"""The tables that supervisors publish, of an open directory, by name. Queries and rewritings need Spark: `attach`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from eventproc.store.database import Database
from eventproc.store.model.argument_checks import check_str

if TYPE_CHECKING:
    from eventproc.ingestion.intervals import RowTime
    from eventproc.store.ingestion.iceberg import StoreTables
    from eventproc.store.model.ingestion import DroppedFiles, TableDescription, TableFile

T = TypeVar("T")


class TableSystem:
    """The part of `Eventproc` that lists, describes and drops tables. It needs the extra `tables`, without Spark."""

    _db: Database

    async def describe_table(
        self, name: str, *, start: RowTime | None = None, end: RowTime | None = None
    ) -> TableDescription:
        """Return a table: its columns, version, size, and its published files by partition.

        Args:
            name: the table: the `datasource` of a spec.
            start: only files with rows from this time on: a datetime, a text in ISO 8601, or ms since 1970.
                None (default): from the first one on.
            end: only files with rows before this time. None (default): to the last one.

        Raises:
            NotFound: no supervisor ever wrote to a table of that name.
            InvalidArgument: `start` or `end` is not a time.
            NotSupported: the extra `tables` is not installed, this store has no place for files, or another engine
                made the table elsewhere.

        Cost:
            Reads the metadata of the table.
        """
        from eventproc.ingestion.intervals import ms_of_bounds

        bounds = ms_of_bounds(start, end)
        return await self._on_table(name, lambda tables: tables.describe(name, *bounds))

    async def table_version(self, name: str) -> str:
        """Return the version of a table, for `table` and `overwrite_table` of a store that is attached to Spark.

        Args:
            name: the table.

        Raises:
            NotFound: no supervisor ever wrote to a table of that name.
            NotSupported: as `describe_table`.

        Cost:
            One file.
        """
        return await self._on_table(name, lambda tables: tables.version(name))

    async def drop_table(
        self,
        name: str,
        *,
        start: RowTime | None = None,
        end: RowTime | None = None,
        dry_run: bool = False,
    ) -> DroppedFiles:
        """Remove the rows of a table; with bounds, of the intervals that lie within them.

        The files are deleted a day later. The events are not ingested again: the offsets stay as they are.
        A table that is written again has the columns of all specs that ever wrote to it; a spec may change their types
        as long as the table is empty.

        Args:
            name: the table.
            start: keep intervals that begin before this time. None (default): none of them.
            end: keep intervals that end after this time. None (default): none of them.
            dry_run: only return what would be removed. Default: False.

        Returns:
            The files that are removed, with their rows.

        Raises:
            NotFound: no supervisor ever wrote to a table of that name.
            InvalidArgument: `start` or `end` is not a time.
            NotSupported: as `describe_table`.
            TableBusy: other calls changed the table, faster each time. Try again.
        """
        from eventproc.ingestion.intervals import lies_within, ms_of_bounds
        from eventproc.ingestion.table_schema import table_schema
        from eventproc.store.model.ingestion import DroppedFiles

        bounds = ms_of_bounds(start, end)
        is_whole = bounds == (None, None)
        granularity = None
        if not is_whole:
            schema = await self._db.read(partial(table_schema, name=check_str("table", name)))
            granularity = schema.segment_granularity

        def is_gone(file: TableFile) -> bool:
            return granularity is None or lies_within(file, granularity, *bounds)

        def drop(tables: StoreTables) -> DroppedFiles:
            if is_whole and not dry_run:
                return DroppedFiles.of(tables.remove(name))
            return DroppedFiles.of(tables.drop(name, is_gone, dry_run=dry_run))

        return await self._on_table(name, drop)

    async def _on_table(self, name: str, work: Callable[[StoreTables], T]) -> T:
        from eventproc.ingestion.table_schema import verify_table
        from eventproc.store.ingestion.table_access import on_tables

        await self._db.read(partial(verify_table, name=check_str("table", name)))
        return await on_tables(self._db, work)
