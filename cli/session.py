"""From a command to an open directory and back: the event loop, and what the library logs."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import click

from eventproc.cli.failures import WRONG_STATE
from eventproc.cli.settings import Settings
from eventproc.cli.signals import Ending, run_to_end
from eventproc.runtime import Eventproc
from eventproc.runtime import open as open_directory
from eventproc.store.model.errors import StoreUnusable

T = TypeVar("T")


class OtherDurability(click.ClickException):
    """The directory that is there has another durability than was asked for."""

    exit_code = WRONG_STATE


def run(
    settings: Settings,
    action: Callable[[Eventproc], Awaitable[T]],
    *,
    host: bool = False,
    serving: bool = False,
) -> T:
    """Open the directory, which must exist, and return what `action` of it returns.

    host: whether this process may run requests while it is here; else it only reads and writes.
    serving: it stays for long, and its log shows every warning, not only the first of a kind.
    Raises Signalled when a signal ended it.
    """
    _prepare_logging(settings, serving=serving)
    return run_to_end(partial(_run, directory_of(settings), action, host))


async def _run(directory: Path, action: Callable[[Eventproc], Awaitable[T]], host: bool, ending: Ending) -> T:
    async with open_directory(directory, create=False, host=host) as ep:
        return await ending.of(action(ep))


def make(settings: Settings, durability: str | None) -> bool:
    """Make the directory, or open the one that is there; return whether it was made. Raises OtherDurability."""
    _prepare_logging(settings)
    directory = directory_of(settings)

    async def _make(_: Ending) -> bool:
        found = (directory / "eventproc.db").exists()
        try:
            async with open_directory(directory, durability=durability, host=False):
                return not found
        except StoreUnusable:
            if durability is None or not found:
                raise
        async with open_directory(directory, host=False) as ep:  # or the same is wrong again
            if str(ep.durability) == durability:
                return False
            raise OtherDurability(
                f"{directory} is there already, with durability {str(ep.durability)!r}, which stays as it is; "
                "leave --durability out, or choose a new or empty directory"
            )

    return run_to_end(_make)


def directory_of(settings: Settings) -> Path:
    """Return the absolute path of the directory that a command works on: the current one unless given.

    Absolute, so that a message names it wherever it is read, and so that `-C memory` means a directory of that name.
    """
    directory = settings.directory or "."
    try:
        return Path(directory).absolute()
    except FileNotFoundError as why:
        reason = "the current folder is gone; say which directory is meant, with -C DIR or EVENTPROC_DIR"
        raise StoreUnusable(path=directory, reason=reason) from why


class _OneLine(logging.Formatter):
    """Log records for people: no traceback unless asked for."""

    def __init__(self, *, debug: bool) -> None:
        super().__init__("eventproc: %(message)s")
        self._debug = debug

    def format(self, record: logging.LogRecord) -> str:
        if self._debug or record.exc_info is None:
            return super().format(record)
        why = record.exc_info[1]
        return f"eventproc: {record.getMessage()} ({type(why).__name__}: {why})"

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # the standard library's name
        """Put before a record about one event which processor and event it is about; its fields say that."""
        fields = vars(record)
        if not {"processor", "stream", "segment", "number", "key"} <= fields.keys():
            return super().formatMessage(record)
        key = "" if fields["key"] is None else f" (key {fields['key']!r})"
        event = f"{fields['stream']} {fields['segment']} event {fields['number']}{key}"
        return f"eventproc: {fields['processor']}: {event}: {record.message}"


class _Once(logging.Filter):
    """Lets one warning pass of each place that warns: who waits in front of a command was told the reason."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: set[tuple[str, int]] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        place = (record.pathname, record.lineno)
        if record.levelno > logging.WARNING or place not in self._seen:
            self._seen.add(place)
            return True
        return False


def _prepare_logging(settings: Settings, *, serving: bool = False) -> None:
    quiet = logging.ERROR if settings.quiet else logging.WARNING
    handler = logging.StreamHandler()
    handler.setFormatter(_OneLine(debug=settings.debug))
    if not (settings.debug or serving):
        handler.addFilter(_Once())
    logging.basicConfig(level=logging.INFO if settings.debug else quiet, handlers=[handler], force=True)
