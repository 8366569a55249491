"""What only a terminal shows: tables and progress bars. The only importer of rich, itself imported late."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text


def print_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table that folds to the terminal's width."""
    Console().print(_table(headings, rows))


@contextmanager
def live_table(headings: Sequence[str]) -> Iterator[Callable[[Sequence[Sequence[str]]], None]]:
    """Show a table on stderr; call what it yields with its rows. What is logged or printed meanwhile goes above it."""
    console = Console(stderr=True)
    with (
        Live(
            _table(headings, []), console=console, auto_refresh=False, redirect_stdout=sys.stdout.isatty()
        ) as shown,
        _logged_to(sys.stderr),
    ):
        console.show_cursor(True)  # a second signal ends the process here and now
        yield lambda rows: shown.update(_table(headings, rows), refresh=True)


@contextmanager
def _logged_to(stream: TextIO) -> Iterator[None]:
    """Let what is logged to a stream go to this one, which knows of the table."""
    handlers = [each for each in logging.root.handlers if type(each) is logging.StreamHandler]
    before = [each.setStream(stream) for each in handlers]
    try:
        yield
    finally:
        for each, old in zip(handlers, before, strict=True):
            if old is not None:
                each.setStream(old)


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    return table


@contextmanager
def progress_bar(label: str, total: int | None) -> Iterator[Callable[[int, str], None]]:
    """Show a bar on stderr; call what it yields with how far it is, of `total`, and a text beside it."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[beside]}"),
        TimeRemainingColumn(),
    )
    # Lines that go to the same terminal are printed above the bar; those that go elsewhere are left alone.
    with Progress(
        *columns, console=Console(stderr=True), transient=True, redirect_stdout=sys.stdout.isatty()
    ) as bar:
        task = bar.add_task(label, total=total, beside="")
        yield lambda completed, beside: bar.update(task, completed=completed, beside=beside)
