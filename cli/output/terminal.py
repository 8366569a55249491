"""What only a terminal shows: folded tables, a live table and progress bars.

rich is imported inside the functions, because it is needed on a terminal only and takes long to import.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, TextIO, TypeAlias

from eventproc.cli.options import Settings

if TYPE_CHECKING:
    from rich.table import Table

Advance: TypeAlias = Callable[[int, str], None]
"""Called with the amount of finished work, and a text to show beside the bar."""


def print_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table that is folded to the terminal's width."""
    from rich.console import Console

    Console().print(_table(headings, rows))


@contextmanager
def live_table(headings: Sequence[str]) -> Iterator[Callable[[Sequence[Sequence[str]]], None]]:
    """Show a table on stderr. Yield a function that replaces its rows. Log lines and output appear above the table."""
    from rich.console import Console
    from rich.live import Live

    console = Console(stderr=True)
    live = Live(
        _table(headings, []), console=console, auto_refresh=False, redirect_stdout=sys.stdout.isatty()
    )
    with live as shown, _logged_to(sys.stderr):
        console.show_cursor(True)  # a second signal ends the process without restoring the cursor
        yield lambda rows: shown.update(_table(headings, rows), refresh=True)


@contextmanager
def _logged_to(stream: TextIO) -> Iterator[None]:
    """Send the log to this stream for now: it is the one that knows of the table."""
    handlers = [each for each in logging.root.handlers if type(each) is logging.StreamHandler]
    before = [each.setStream(stream) for each in handlers]
    try:
        yield
    finally:
        for each, old in zip(handlers, before, strict=True):
            if old is not None:
                each.setStream(old)


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def progress(settings: Settings, label: str, total: int | None) -> AbstractContextManager[Advance]:
    """Show a progress bar on stderr if it is a terminal. Yield the function that advances the bar.

    total: amount of work, in the unit that the caller advances by. None if it is not known.
    """
    if settings.quiet or not sys.stderr.isatty():
        return nullcontext(_ignore)
    return _progress_bar(label, total)


def _ignore(completed: int, beside: str) -> None:
    """Show nothing."""


@contextmanager
def _progress_bar(label: str, total: int | None) -> Iterator[Advance]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[beside]}"),
        TimeRemainingColumn(),
    )
    # Output that goes to the same terminal is printed above the bar; other output is left alone.
    with Progress(
        *columns, console=Console(stderr=True), transient=True, redirect_stdout=sys.stdout.isatty()
    ) as bar:
        task = bar.add_task(label, total=total, beside="")
        yield lambda completed, beside: bar.update(task, completed=completed, beside=beside)
