"""Tables for people, and what only a terminal shows: layouts for its width, a live table and progress bars.

rich is imported inside the functions, because it is needed on a terminal only and takes long to import.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, TextIO, TypeAlias

import click

from eventproc.cli.options import Settings

if TYPE_CHECKING:
    from rich.text import Text

    from eventproc.cli.output.layout import Column

Advance: TypeAlias = Callable[[int, str], None]
"""Called with the amount of finished work, and a text to show beside the bar."""


def is_plain() -> bool:
    """Return whether the terminal cannot show styles, bars or tables that change (TERM=dumb, or no TERM)."""
    return os.environ.get("TERM", "dumb") in ("", "dumb", "unknown")


def print_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table: on a terminal laid out for its width, elsewhere in full width."""
    if sys.stdout.isatty():
        print_columns(_columns(headings, rows))
        return
    widths = [max(map(len, each)) for each in zip(headings, *rows, strict=True)]
    for line in (headings, *rows):
        click.echo("  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip())


def _columns(
    headings: Sequence[str], rows: Sequence[Sequence[str]], importance: Sequence[str] = ()
) -> list[Column]:
    from eventproc.cli.output.layout import Column

    cells = list(zip(*rows, strict=True)) or [()] * len(headings)
    order = {heading: rank for rank, heading in enumerate(importance)}
    return [
        Column(heading, each, order.get(heading, len(order)))
        for heading, each in zip(headings, cells, strict=True)
    ]


def print_columns(columns: Sequence[Column]) -> None:
    """Print a table on a terminal, and below it the columns for which the terminal is too narrow."""
    from eventproc.cli.output.layout import lay_out, wrap

    width = terminal_width()
    table = lay_out(columns, width)
    styled = not is_plain() and not os.environ.get("NO_COLOR")
    for line in table.heading:
        click.echo(click.style(line, bold=True) if styled else line)
    for line in table.body:
        click.echo(line)
    if table.left_out:
        names = ", ".join(table.left_out)
        for line in wrap(f"(too narrow for: {names}; --output json has all)", width):
            click.echo(line)


def print_fields(fields: Sequence[tuple[str, str]]) -> None:
    """Print a line for each label and its text. A terminal shows a text that is too long for the line below itself."""
    left = max(len(label) for label, _ in fields)
    if not sys.stdout.isatty():
        for label, text in fields:
            click.echo(f"{label:<{left}}  {text}".rstrip())
        return
    from eventproc.cli.output.layout import longest_word, wrap

    width = terminal_width()
    for label, text in fields:
        if longest_word(text) > width - left - 2:
            click.echo(label)
            lines = [f"  {line}" for line in wrap(text, width - 2)]
        else:
            first, *more = wrap(text, width - left - 2)
            lines = [f"{label:<{left}}  {first}".rstrip(), *(f"{'':<{left}}  {line}" for line in more)]
        for line in lines:
            click.echo(line)


def terminal_width() -> int:
    """Return the width of the terminal in cells; COLUMNS takes precedence."""
    return shutil.get_terminal_size().columns


@contextmanager
def live_table(
    headings: Sequence[str], importance: Sequence[str] = ()
) -> Iterator[Callable[[Sequence[Sequence[str]]], None]]:
    """Show a table on stderr. Yield a function that replaces its rows. Log lines and output appear above the table.

    importance: the headings that a narrow terminal leaves out, the first one first.
    """
    from rich.console import Console
    from rich.live import Live

    console = Console(stderr=True)

    def table(rows: Sequence[Sequence[str]]) -> Text:
        return _live_text(headings, importance, rows, console.width)

    live = Live(table([]), console=console, auto_refresh=False, redirect_stdout=sys.stdout.isatty())
    with live as shown, _logged_to(sys.stderr):
        console.show_cursor(True)  # a second signal ends the process without restoring the cursor
        yield lambda rows: shown.update(table(rows), refresh=True)


def _live_text(
    headings: Sequence[str], importance: Sequence[str], rows: Sequence[Sequence[str]], width: int
) -> Text:
    from rich.text import Text

    from eventproc.cli.output.layout import lay_out

    found = lay_out(_columns(headings, rows, importance), width)
    text = Text("\n".join(found.heading), style="bold", no_wrap=True, overflow="ignore")
    return text.append("".join(f"\n{line}" for line in found.body), style="not bold")


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


def progress(
    settings: Settings, label: str, total: int | None, *, hidden: bool = False
) -> AbstractContextManager[Advance]:
    """Show a progress bar on stderr if it is a terminal. Yield the function that advances the bar.

    There is no bar on a terminal that cannot redraw a line.
    total: amount of work, in the unit that the caller advances by. None if it is not known.
    hidden: show no bar, because it would be in the way of what a person types or reads there.
    """
    if settings.quiet or hidden or is_plain() or not sys.stderr.isatty():
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
