"""`eventproc top`: a store at a glance, again and again on a terminal."""

from __future__ import annotations

import sys
from functools import partial
from typing import Final

import click

from eventproc.cli.options import (
    TABLE,
    WATCH_S,
    Command,
    Settings,
    output_option,
    pass_settings,
    watch_option,
)

TABLES: Final = {
    "streams": ("name", "state", "events_per_second", "events", "bytes=size_bytes", "epoch"),
    "groups": (
        *("group", "kind", "paused", "members", "events", "bytes", "age_ms", "dead_letters"),
        *("call_median_ms=calls.median_ms", "call_p99_ms=calls.p99_ms", "commit_age_ms"),
    ),
}
"""The tables of an overview: the field of each, and its columns."""


@click.command(cls=Command)
@output_option()
@watch_option
@pass_settings
def top(settings: Settings, output: str) -> None:
    """Show the busiest streams, and the groups that are most behind.

    A terminal shows them again every two seconds, until Ctrl-C.

    Examples:
        eventproc top
        eventproc top --watch 10
        eventproc top --output json
    """
    from eventproc.cli.output.tables import show_result
    from eventproc.cli.watch import show_found

    if settings.watch_s is None and output == TABLE and sys.stdout.isatty():
        settings.watch_s = WATCH_S

    show_found(settings, lambda ep: ep.overview(), partial(show_result, output=output, tables=TABLES))
