"""`eventproc cluster`: the instances that have the directory open, the host, and the owners of the buckets."""

from __future__ import annotations

from typing import Final

import click

from eventproc.cli.options import TABLE, CommandGroup, Settings, output_option, pass_settings, watch_option
from eventproc.cli.output.tables import described, show_rows, show_with_tables
from eventproc.cli.watch import show_found
from eventproc.cluster import ClusterDescription, ClusterInstance

COLUMNS: Final = ("id", "pid", "opened_ms", "is_host", "buckets")
SERVER_COLUMNS: Final = ("instance", "controller", "segment_store", "containers")


@click.group(cls=CommandGroup)
def cluster() -> None:
    """List the instances that have the directory open, and what they share.

    Examples:
        eventproc cluster list
    """


@cluster.command("list")
@watch_option
@output_option()
@pass_settings
def list_(settings: Settings, output: str) -> None:
    """List the instances that are alive, the oldest first. This command is one of them.

    Examples:
        eventproc cluster list
        eventproc cluster list --watch
    """

    def show(found: list[ClusterInstance]) -> None:
        show_rows([described(each) for each in found], COLUMNS, output)

    show_found(settings, lambda ep: ep.cluster.list(), show)


@cluster.command()
@watch_option
@output_option()
@pass_settings
def describe(settings: Settings, output: str) -> None:
    """Show the host, how often it changed, and what the instances share: the periodic work, the tasks, and the segments
    that servers of Pravega's clients own.

    Examples:
        eventproc cluster describe --output json
    """

    def show(found: ClusterDescription) -> None:
        row = dict(described(found))
        if output == TABLE:  # people see the buckets of each instance
            del row["buckets"]
        show_with_tables(row, [("instances", COLUMNS), ("servers", SERVER_COLUMNS)], output)

    show_found(settings, lambda ep: ep.cluster.describe(), show)
