"""`eventproc cluster`: the instances that have the directory open, the host, and the owners of the buckets."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Final

import click

from eventproc.cli.verbs import Noun

if TYPE_CHECKING:
    from eventproc.cli.output.tables import Row
    from eventproc.cluster import ClusterDescription, ClusterInstance
    from eventproc.runtime import Eventproc

COLUMNS: Final = ("id", "pid", "opened_ms", "is_host", "buckets")
SERVER_COLUMNS: Final = ("instance", "controller", "segment_store", "containers")


@click.group(cls=Noun)
def cluster() -> None:
    """List the instances that have the directory open, and what they share.

    Examples:
        eventproc cluster list
    """


@cluster.shows(COLUMNS)
def list_(ep: Eventproc) -> Awaitable[list[ClusterInstance]]:
    """List the instances that are alive, the oldest first. This command is one of them.

    Examples:
        eventproc cluster list
        eventproc cluster list --watch
    """
    return ep.cluster.list()


def _without_buckets(row: Row) -> Row:
    """Leave out the owner of each bucket: people see the buckets of each instance."""
    return {name: value for name, value in row.items() if name != "buckets"}


@cluster.shows(tables={"instances": COLUMNS, "servers": SERVER_COLUMNS}, people=_without_buckets)
def describe(ep: Eventproc) -> Awaitable[ClusterDescription]:
    """Show the host, how often it changed, and what the instances share: the periodic work, the tasks, and the segments
    that servers of Pravega's clients own.

    Examples:
        eventproc cluster describe --output json
    """
    return ep.cluster.describe()
