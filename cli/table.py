"""What only a terminal shows: tables and progress bars. The only importer of rich, itself imported late."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text


def print_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table that folds to the terminal's width."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    Console().print(table)


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
