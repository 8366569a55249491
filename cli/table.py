"""`eventproc table`: the tables that ingestion supervisors publish."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import click

from eventproc.cli.options import Settings, destructive, output_option, pass_settings
from eventproc.cli.output.tables import Row, described, show_done, show_rows
from eventproc.cli.verbs import Noun

if TYPE_CHECKING:
    from eventproc.runtime import Eventproc
    from eventproc.spark import AttachedEventproc
    from eventproc.store.ingestion.iceberg import StoreTables
    from eventproc.store.model.ingestion import TableFile, TableSummary

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

Bounds: TypeAlias = tuple[int | None, int | None]
"""Start and end in ms since 1970; None: unbounded."""

TIMES: Final = "A time in ms since 1970 or such as 2026-11-20T12:30:00Z."

COLUMNS: Final = ("name", "intervals", "files", "rows", "bytes", "first_ms", "last_ms", "metadata")
INTERVAL_COLUMNS: Final = ("start_ms", "end_ms", "files", "rows", "bytes")
QUERY_ROWS: Final = 1_000
"""Rows of a query that are shown unless the command says otherwise: a mistake must not fill the terminal."""


@click.group(cls=Noun)
def table() -> None:
    """List, query, compact, overwrite and drop the tables that ingestion supervisors publish.

    Examples:
        eventproc table list
        eventproc table query "SELECT DISTINCT page FROM clicks"
    """


def bounds_options(command: F) -> F:
    """Decorator of commands that take `start` and `end`, texts of times."""
    command = click.option("--end", metavar="TIME", help=f"Only rows before it. {TIMES}")(command)
    return click.option("--start", metavar="TIME", help=f"Only rows from it on. {TIMES}")(command)


@table.shows(COLUMNS)
async def list_(ep: Eventproc) -> list[Row]:
    """List the tables with their published files and rows.

    Examples:
        eventproc table list
        eventproc table list --output json
    """
    from eventproc.store.ingestion.pointers import has_tables
    from eventproc.store.ingestion.table_access import on_tables

    if not await ep.db.read(has_tables):
        return []  # also of a store that has no place for them
    return [_row(each) for each in await on_tables(ep.db, lambda tables: tables.summaries())]


@table.shows(tables={"intervals_by_start": INTERVAL_COLUMNS})
@click.argument("name")
@bounds_options
async def describe(ep: Eventproc, name: str, start: str | None, end: str | None) -> Row:
    """Show a table, and its published files by interval.

    Examples:
        eventproc table describe clicks
        eventproc table describe clicks --start 2026-11-20 --output json
    """
    return await _on_table(ep, name, partial(_described, name=name, bounds=_bounds(start, end)))


@table.command()
@click.argument("sql")
@click.option("--realtime", is_flag=True, help="Include the events that are not published yet.")
@click.option("--limit", type=click.IntRange(1), default=QUERY_ROWS, show_default=True, help="Rows to show.")
@output_option()
@pass_settings
def query(settings: Settings, sql: str, realtime: bool, limit: int, output: str) -> None:
    """Run a query of Spark SQL over the tables, in a session of its own.

    Each table is a view of its name; the time of a row is its column __time. Rows with equal times and dimensions may
    occur several times, so aggregate. Starting Spark takes about 5 s. Needs the extra `spark`.

    Examples:
        eventproc table query "SELECT DISTINCT page FROM clicks"
        eventproc table query "SELECT * FROM clicks ORDER BY __time DESC" --realtime --limit 10 --output json
    """
    from eventproc.spark.sql_errors import explained

    with _attached(settings) as ep, explained(sql):
        found = _queried(ep, sql, realtime=realtime).limit(limit)
        rows = [_plain(row.asDict(recursive=True)) for row in found.collect()]
        show_rows(rows, found.columns, output)


@table.command()
@click.argument("name")
@bounds_options
@output_option()
@pass_settings
def compact(settings: Settings, name: str, start: str | None, end: str | None, output: str) -> None:
    """Rewrite the intervals of a table that lie in several files into as few as possible.

    Supervisors may publish, and queries may run, meanwhile. Needs the extra `spark`.

    Examples:
        eventproc table compact clicks
        eventproc table compact clicks --end 2026-11-20
    """
    start_ms, end_ms = _bounds(start, end)
    with _attached(settings) as ep:
        done = ep.compact_table(name, start=start_ms, end=end_ms)
    text = f"compacted {done.files_before} files of {name} into {done.files_after}"
    show_done(settings, {"done": "compact", "target": name, **described(done)}, output, text)


async def _losses(ep: Eventproc, name: str, start: str | None, end: str | None) -> Row:
    """Return what a change of the intervals within bounds would remove."""
    is_lost = await _within(ep, name, _bounds(start, end))

    def count(tables: StoreTables) -> Row:
        table = tables.find(name)
        found = [each for each in tables.files_of(table) if is_lost(each)] if table is not None else []
        sizes = {"rows": sum(each.rows for each in found), "bytes": sum(each.bytes for each in found)}
        return {"files": len(found), **sizes}

    return await _on_table(ep, name, count)


@table.command()
@click.argument("name")
@click.argument("sql")
@click.option("--start", required=True, metavar="TIME", help=f"Beginning of the first interval. {TIMES}")
@click.option("--end", required=True, metavar="TIME", help=f"End of the last interval. {TIMES}")
@destructive
@output_option()
@pass_settings
def overwrite(
    settings: Settings, name: str, sql: str, start: str, end: str, yes: bool, dry_run: bool, output: str
) -> None:
    """Put the rows of a query in the place of all rows of a table between two times, in one transaction.

    The query is Spark SQL over the tables, as for `query`; its columns are those of the table. The times are borders of
    the table's intervals. What supervisors publish meanwhile stays. Needs the extra `spark`.

    Examples:
        eventproc table overwrite clicks "SELECT * FROM clicks WHERE ms > 0" --start 2026-11-20 --end 2026-11-21
    """
    from eventproc.cli.destruction import Consent, is_confirmed
    from eventproc.streams.position_texts import parse_time

    async def look(ep: Eventproc) -> Row:
        return {"dry_run": True, "would": "overwrite", "target": name, **await _losses(ep, name, start, end)}

    start_ms, end_ms = parse_time(start), parse_time(end)
    if is_confirmed(settings, Consent(yes, dry_run), f"Overwrite rows of table {name}", look, output):
        from eventproc.spark.sql_errors import explained

        with _attached(settings) as ep, explained(sql):
            version = ep.table_version(name)
            rows = _queried(ep, sql, versions={name: version})
            within = rows.where(
                f"__time >= timestamp_millis({start_ms}) AND __time < timestamp_millis({end_ms})"
            )
            done = ep.overwrite_table(name, within, start=start_ms, end=end_ms, version=version)
        text = f"overwrote {done.rows_before} rows of {name} with {done.rows_after}"
        show_done(settings, {"done": "overwrite", "target": name, **described(done)}, output, text)


@table.does("dropped {files} files of {name}", consent="Drop rows of table {name}", losses=_losses)
@click.argument("name")
@bounds_options
async def drop(ep: Eventproc, name: str, start: str | None, end: str | None) -> Row:
    """Remove the rows of a table; with bounds, of the intervals that lie between them.

    The files are deleted a day later. The events are not ingested again: the offsets stay as they are.

    Examples:
        eventproc table drop clicks --dry-run
        eventproc table drop clicks --end 2026-01-01 --yes
    """
    bounds = _bounds(start, end)
    is_gone = await _within(ep, name, bounds)
    if bounds == (None, None):
        return {"files": await _on_table(ep, name, lambda tables: tables.remove(name))}
    return {"files": await _on_table(ep, name, lambda tables: tables.drop(name, is_gone))}


async def _within(ep: Eventproc, name: str, bounds: Bounds) -> Callable[[TableFile], bool]:
    """Return what tells whether the intervals of a file lie between bounds. Raises NotFound."""
    from eventproc.ingestion.intervals import lies_within
    from eventproc.ingestion.table_schema import table_schema

    if bounds == (None, None):
        return lambda _: True
    granularity = (await ep.db.read(partial(table_schema, name=name))).segment_granularity
    return lambda file: lies_within(file, granularity, *bounds)


async def _on_table(ep: Eventproc, name: str, work: Callable[[StoreTables], T]) -> T:
    """Run `work` if the table exists. Raises NotFound."""
    from eventproc.ingestion.table_schema import table_schema
    from eventproc.store.ingestion.pointers import find_pointer
    from eventproc.store.ingestion.table_access import on_tables

    if await ep.db.read(partial(find_pointer, name=name)) is None:
        await ep.db.read(partial(table_schema, name=name))
    return await on_tables(ep.db, work)


def _queried(
    ep: AttachedEventproc, sql: str, *, realtime: bool = False, versions: Mapping[str, str] | None = None
) -> Any:
    """Return the DataFrame of a query over the tables. versions: of tables that are read as they were."""
    for each in ep.tables():
        rows = ep.table(each.name, realtime=realtime, version=(versions or {}).get(each.name))
        rows.createOrReplaceTempView(f"`{each.name}`")
    return ep.spark.sql(sql)


def _bounds(start: str | None, end: str | None) -> Bounds:
    from eventproc.streams.position_texts import parse_time

    return (None if start is None else parse_time(start), None if end is None else parse_time(end))


def _row(found: TableSummary) -> Row:
    row = dict(described(found))
    return {**row, "first_ms": row.pop("min_ms"), "last_ms": row.pop("max_ms")}


def _described(tables: StoreTables, *, name: str, bounds: Bounds) -> Row:
    from eventproc.store.ingestion.table_state import within
    from eventproc.store.model.ingestion import TableSummary

    intervals: dict[int, Row] = {}
    found = tables.find(name)
    used = [] if found is None else tables.files_of(found)
    location = None if found is None else found.metadata_location
    for file in within(used, *bounds):
        first = {"start_ms": file.start_ms, "end_ms": file.end_ms, "files": 0, "rows": 0, "bytes": 0}
        before = intervals.get(file.start_ms, first)
        intervals[file.start_ms] = {
            **before,
            "files": int(str(before["files"])) + 1,
            "rows": int(str(before["rows"])) + file.rows,
            "bytes": int(str(before["bytes"])) + file.bytes,
        }
    return {**_row(TableSummary.of(name, used, location)), "intervals_by_start": list(intervals.values())}


def _plain(row: dict[str, Any]) -> Row:
    return {
        name: value if value is None or isinstance(value, (bool, int, float, str)) else str(value)
        for name, value in row.items()
    }


@contextmanager
def _attached(settings: Settings) -> Iterator[AttachedEventproc]:
    """Give the store attached to a session of Spark, which ends with the block unless it was there before."""
    import eventproc.spark
    from eventproc.cli import session
    from eventproc.spark.sessions import borrowed_session

    address = session.address_of(settings)
    with (
        borrowed_session({"spark.sql.session.timeZone": "UTC"}) as spark,
        eventproc.spark.attach(spark, address, create=False, host=False) as ep,
    ):
        yield ep
