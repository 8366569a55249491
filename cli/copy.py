"""`eventproc copy`: copy a store between a directory and a server."""

from __future__ import annotations

from functools import partial
from typing import Final

import click

import eventproc
from eventproc.cli.options import Command, Settings, StoreParam, output_option, pass_settings
from eventproc.cli.output.tables import described, show_done
from eventproc.cli.output.terminal import progress

PERCENT: Final = 100
"""Length of the bar. How many bytes there are is known when the source is open."""


@click.command(cls=Command)
@click.argument("source", metavar="SOURCE", type=StoreParam())
@click.argument("target", metavar="TARGET", type=StoreParam())
@click.option("--abort-open", is_flag=True, help="Abort the open transactions in the copy.")
@click.option("--leave-sql-tables", is_flag=True, help="Leave out the tables that SQL of users has created.")
@output_option()
@pass_settings
def copy(
    settings: Settings, source: str, target: str, abort_open: bool, leave_sql_tables: bool, output: str
) -> None:
    """Copy the store SOURCE into the new or empty store TARGET, and compare both.

    Each is a directory or postgresql://USER@HOST/DATABASE?schema=NAME. The copy has everything, and readers and groups
    continue in it where they were. End all processes that use SOURCE, which stays as it is. TARGET does not open until
    the copy is complete; if it is interrupted, the same command continues it.

    Exit codes: 1 the copy differs, 2 files or tables cannot be copied, 4 TARGET is not empty, or SOURCE has open
    transactions, 6 one of them is in use or cannot be used.

    Examples:
        eventproc copy data postgresql://app@db/streams
        eventproc copy postgresql://app@db/streams data --abort-open
    """
    from eventproc.cli import session

    with progress(settings, "copying", PERCENT) as bar:

        def advance(done: int, total: int) -> None:
            bar(PERCENT * done // max(total, 1), f"{done >> 20} of {total >> 20} MiB")

        made = session.run_alone(
            settings,
            partial(
                eventproc.copy,
                session.absolute_address(source),
                session.absolute_address(target),
                abort_open=abort_open,
                leave_sql_tables=leave_sql_tables,
                advance=advance,
            ),
        )
    text = f"{made.target} is a complete copy: {made.events} events in {made.streams} streams"
    if made.left_tables:
        text += f"; left out: {', '.join(made.left_tables)}"
    show_done(settings, {"done": "copy", **described(made)}, output, text)
