"""Show what a command found, once, or with --watch again and again until Ctrl-C.

A terminal shows the newest result in place of the one before. Elsewhere each result follows the one before: tables
after an empty line, and JSON as one line for each result. Each result costs one read of the directory.
"""

from __future__ import annotations

import io
import json
import shutil
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import redirect_stdout
from typing import Final, TypeVar

import anyio
import click

from eventproc.cli import session
from eventproc.cli.exit_codes import Signalled
from eventproc.cli.options import TABLE, Settings
from eventproc.cli.output.tables import iso_time
from eventproc.cli.output.terminal import is_plain
from eventproc.runtime import Eventproc

T = TypeVar("T")

HOME: Final = "\x1b[H"
CLEAR_LINE: Final = "\x1b[K"
CLEAR_BELOW: Final = "\x1b[J"
CLEAR: Final = f"{HOME}\x1b[2J"


def show_found(
    settings: Settings, look: Callable[[Eventproc], Awaitable[T]], show: Callable[[T], None]
) -> None:
    """Print by `show` what `look` returns; with --watch repeatedly, until Ctrl-C, which is success then."""
    seconds = settings.watch_s
    if seconds is None:
        show(session.run(settings, look))
        return

    async def watch(ep: Eventproc) -> None:
        results = _Results(settings, seconds)
        while True:
            results.show(ep.db.clock.wall_ms(), _printed(show, await look(ep)))
            await anyio.sleep(seconds)

    try:
        session.run(settings, watch)
    except Signalled as why:
        if why.number != signal.SIGINT:
            raise


class _Screen(io.StringIO):
    """Collects what is printed, in the form that standard output would get."""

    def __init__(self) -> None:
        super().__init__()
        self._is_terminal = sys.stdout.isatty()

    def isatty(self) -> bool:
        return self._is_terminal


def _printed(show: Callable[[T], None], found: T) -> str:
    screen = _Screen()
    with redirect_stdout(screen):
        show(found)
    return screen.getvalue()


class _Results:
    """Prints one result after the other."""

    def __init__(self, settings: Settings, seconds: float) -> None:
        self._output = settings.output
        self._redraws = settings.output == TABLE and sys.stdout.isatty() and not is_plain()
        self._interval = "" if settings.quiet else f"every {seconds:g} s, Ctrl-C ends"
        self._first = True

    def show(self, now_ms: int, text: str) -> None:
        """Print a result that was read at `now_ms`."""
        if self._redraws:
            click.echo(self._frame(now_ms, text), nl=False)
        elif self._output == "json":
            click.echo(_one_line(text))
        else:
            click.echo(text if self._first or self._output != TABLE else f"\n{text}", nl=False)
        sys.stdout.flush()
        self._first = False

    def _frame(self, now_ms: int, text: str) -> str:
        lines = text.splitlines()
        if self._interval:
            lines = [f"{iso_time(now_ms)}  {self._interval}", "", *lines]
        room = max(shutil.get_terminal_size().lines - 1, 1)
        if len(lines) > room:
            lines = [*lines[: room - 1], f"({len(lines) - room + 1} lines more; enlarge the terminal)"]
        begin = CLEAR if self._first else HOME
        return begin + "".join(f"{line}{CLEAR_LINE}\n" for line in lines) + CLEAR_BELOW


def _one_line(document: str) -> str:
    """Return a JSON document as one line with one object."""
    found = json.loads(document)
    return json.dumps(found if isinstance(found, dict) else {"rows": found}, ensure_ascii=False)
