"""`eventproc query`: the Spark queries whose drivers have the directory attached, with their progress."""

from __future__ import annotations

from typing import Final

import attrs
import click

from eventproc.cli.options import CommandGroup, Settings, output_option, pass_settings, watch_option
from eventproc.cli.output.tables import Row, show_rows
from eventproc.cli.watch import show_found
from eventproc.runtime import Eventproc
from eventproc.spark import QueryDescription
from eventproc.spark.queries import describe_queries

COLUMNS: Final = (
    "name",
    "id",
    "state",
    "pid",
    "batch",
    "rows_per_second",
    "lag_events",
    "lag_bytes",
    "published_at_ms",
    "error",
)


@click.group(cls=CommandGroup)
def query() -> None:
    """List the Spark queries that drivers with this directory attached have published.

    Examples:
        eventproc query list
    """


@query.command("list")
@watch_option
@output_option()
@pass_settings
def list_(settings: Settings, output: str) -> None:
    """List the queries that published a status within the last week, with their progress, the newest first.

    Examples:
        eventproc query list
        eventproc query list --output json
    """

    async def look(ep: Eventproc) -> list[QueryDescription]:
        path = ep.path
        assert path is not None, "a directory has a path"
        return await ep.db.read(lambda tx: describe_queries(tx, path))

    def show(found: list[QueryDescription]) -> None:
        show_rows([_row(each) for each in found], COLUMNS, output)

    show_found(settings, look, show)


def _row(found: QueryDescription) -> Row:
    query = found.query
    return {
        "name": query.name,
        "id": query.id,
        "run_id": query.run_id,
        "state": found.state.value,
        "pid": found.pid,
        "started_at_ms": query.started_ms,
        "published_at_ms": query.published_ms,
        "batch": query.batch,
        "input_rows": query.input_rows,
        "rows_per_second": query.rows_per_second,
        "lag_events": found.events,
        "lag_bytes": found.bytes,
        "streams": [attrs.asdict(each) for each in found.streams],
        "error": query.error,
    }
