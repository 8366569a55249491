"""`eventproc table`: the tables that ingestion supervisors publish."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from eventproc.cli.options import Settings, destructive, output_option, page_options, pass_settings
from eventproc.cli.output.tables import Row, described, show_done, show_rows
from eventproc.cli.verbs import Noun

if TYPE_CHECKING:
    from eventproc.describe import DroppedFiles, TableDescription, TableInfo
    from eventproc.runtime import Eventproc
    from eventproc.spark import AttachedEventproc

F = TypeVar("F", bound=Callable[..., Any])

TIMES: Final = "A time in ms since 1970 or such as 2026-11-20T12:30:00Z."

COLUMNS: Final = ("name", "intervals", "files", "rows", "bytes", "first_ms", "last_ms", "metadata")
TABLES: Final = {
    "columns": ("name", "type"),
    "intervals_by_start": ("start_ms", "end_ms", "files", "rows", "bytes"),
}
"""The tables of `describe`: the field of each, and its columns."""

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
@page_options("TABLE")
def list_(ep: Eventproc, page: dict[str, Any]) -> Awaitable[list[TableInfo]]:
    """List the tables with their published files and rows.

    Examples:
        eventproc table list
        eventproc table list --output json
    """
    return ep.tables(**page)


@table.shows(tables=TABLES)
@click.argument("name")
@bounds_options
def describe(ep: Eventproc, name: str, start: str | None, end: str | None) -> Awaitable[TableDescription]:
    """Show a table, its columns, and its published files by interval.

    Examples:
        eventproc table describe clicks
        eventproc table describe clicks --start 2026-11-20 --output json
    """
    return ep.describe_table(name, start=start, end=end)


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

    with _attached(settings, lambda ep: ep.tables(limit=1)) as ep, explained(sql):
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
    with _attached(settings, lambda ep: ep.describe_table(name, start=start, end=end)) as ep:
        done = ep.compact_table(name, start=start, end=end)
    text = f"compacted {done.files_before} files of {name} into {done.files_after}"
    show_done(settings, {"done": "compact", "target": name, **described(done)}, output, text)


async def _losses(ep: Eventproc, name: str, start: str | None, end: str | None) -> Row:
    """Return what a change of the intervals within bounds would remove."""
    return described(await ep.drop_table(name, start=start, end=end, dry_run=True))


@table.command()
@click.argument("name")
@click.argument("sql")
@click.option("--start", metavar="TIME", help=f"Beginning of the first interval. {TIMES}")
@click.option("--end", metavar="TIME", help=f"End of the last interval. {TIMES}")
@destructive
@output_option()
@pass_settings
def overwrite(
    settings: Settings,
    name: str,
    sql: str,
    start: str | None,
    end: str | None,
    yes: bool,
    dry_run: bool,
    output: str,
) -> None:
    """Put the rows of a query in the place of all rows of a table between two times, in one transaction.

    The query is Spark SQL over the tables, as for `query`; its columns are those of the table. The times are borders of
    the table's intervals; without one, there is no bound. What supervisors publish meanwhile stays. Needs the extra
    `spark`.

    Examples:
        eventproc table overwrite clicks "SELECT * FROM clicks WHERE ms > 0" --start 2026-11-20 --end 2026-11-21
    """
    from eventproc.cli.destruction import Consent, is_confirmed
    from eventproc.ingestion.intervals import ms_of_bounds

    async def look(ep: Eventproc) -> Row:
        return {"dry_run": True, "would": "overwrite", "target": name, **await _losses(ep, name, start, end)}

    start_ms, end_ms = ms_of_bounds(start, end)
    if is_confirmed(settings, Consent(yes, dry_run), f"Overwrite rows of table {name}", look, output):
        from eventproc.spark.sql_errors import explained

        with _attached(settings, lambda ep: ep.table_version(name)) as ep, explained(sql):
            version = ep.table_version(name)
            rows = _queried(ep, sql, versions={name: version})
            for comparison, ms in ((">=", start_ms), ("<", end_ms)):
                rows = rows if ms is None else rows.where(f"__time {comparison} timestamp_millis({ms})")
            done = ep.overwrite_table(name, rows, start=start, end=end, version=version)
        text = f"overwrote {done.rows_before} rows of {name} with {done.rows_after}"
        show_done(settings, {"done": "overwrite", "target": name, **described(done)}, output, text)


@table.does("dropped {files} files of {name}", consent="Drop rows of table {name}", losses=_losses)
@click.argument("name")
@bounds_options
def drop(ep: Eventproc, name: str, start: str | None, end: str | None) -> Awaitable[DroppedFiles]:
    """Remove the rows of a table; with bounds, of the intervals that lie between them.

    The files are deleted a day later. The events are not ingested again: the offsets stay as they are.

    Examples:
        eventproc table drop clicks --dry-run
        eventproc table drop clicks --end 2026-01-01 --yes
    """
    return ep.drop_table(name, start=start, end=end)


def _queried(
    ep: AttachedEventproc, sql: str, *, realtime: bool = False, versions: Mapping[str, str] | None = None
) -> Any:
    """Return the DataFrame of a query over the tables. versions: of tables that are read as they were."""
    for each in ep.tables():
        rows = ep.table(each.name, realtime=realtime, version=(versions or {}).get(each.name))
        rows.createOrReplaceTempView(f"`{each.name}`")
    return ep.spark.sql(sql)


def _plain(row: dict[str, Any]) -> Row:
    return {
        name: value if value is None or isinstance(value, (bool, int, float, str)) else str(value)
        for name, value in row.items()
    }


@contextmanager
def _attached(
    settings: Settings, look: Callable[[Eventproc], Awaitable[object]]
) -> Iterator[AttachedEventproc]:
    """Give the store attached to a session of Spark, which ends with the block unless it was there before.

    look: raises what refuses the command, before Spark starts, which takes seconds.
    """
    import eventproc.spark
    from eventproc.cli import session
    from eventproc.spark.sessions import borrowed_session

    session.run(settings, look)
    address = session.address_of(settings)
    with (
        borrowed_session({"spark.sql.session.timeZone": "UTC"}) as spark,
        eventproc.spark.attach(spark, address, create=False, host=False) as ep,
    ):
        yield ep
