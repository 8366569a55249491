"""Run a command on an open directory: the event loop, signals, and the library's log on stderr."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import click

from eventproc.cli.exit_codes import WRONG_STATE
from eventproc.cli.options import Settings
from eventproc.cli.server_log import event_prefix
from eventproc.cli.signals import SignalScope, run_with_signals
from eventproc.errors import NotFound, StoreUnusable
from eventproc.runtime import Eventproc, open as open_directory
from eventproc.store.tasks import first_leaf

T = TypeVar("T")


class OtherDurability(click.ClickException):
    """The existing directory has another durability than the requested one."""

    exit_code = WRONG_STATE


def run(
    settings: Settings,
    action: Callable[[Eventproc], Awaitable[T]],
    *,
    host: bool = False,
    has_log: bool = False,
) -> T:
    """Open the existing directory and return what `action` returns.

    host: whether this process may become the host and run requests meanwhile.
    has_log: whether the command has set up the log itself.
    Raises Signalled if a signal ended the action.
    """
    if not has_log:
        _prepare_logging(settings)
    return run_with_signals(partial(_run, directory_of(settings), action, host))


async def _run(
    directory: Path, action: Callable[[Eventproc], Awaitable[T]], host: bool, signal_scope: SignalScope
) -> T:
    async with open_directory(directory, create=False, host=host) as ep:
        try:
            return await signal_scope.run(action(ep))
        except (NotFound, BaseExceptionGroup) as why:
            if isinstance(missing := first_leaf(why), NotFound):
                from eventproc.cli.suggestions import add_suggestions

                await add_suggestions(ep.db, missing)
            raise


def create_directory(settings: Settings, durability: str | None, chunks: str | None = None) -> bool:
    """Create the directory, or open the existing one; return whether it was created.

    chunks: the folder of its chunk files. Raises OtherDurability, and InvalidArgument for the folder.
    """
    _prepare_logging(settings)
    directory = directory_of(settings)

    async def _make(_: SignalScope) -> bool:
        found = (directory / "eventproc.db").exists()
        try:
            async with open_directory(directory, durability=durability, host=False, chunks=chunks):
                return not found
        except StoreUnusable:
            if durability is None or not found:
                raise
        async with open_directory(
            directory, host=False
        ) as ep:  # raises again if the durability was not the reason
            if str(ep.durability) == durability:
                return False
            raise OtherDurability(
                f"{directory} exists already with durability {str(ep.durability)!r}, which cannot be changed; "
                "leave --durability out, or choose a new or empty directory"
            )

    return run_with_signals(_make)


def directory_of(settings: Settings) -> Path:
    """Return the absolute path of the directory that a command works on: the current one unless given.

    Absolute, so that a message names it wherever it is read, and so that `-C memory` means a directory of that name.
    """
    directory = settings.directory or "."
    try:
        return Path(directory).absolute()
    except FileNotFoundError as why:
        reason = "the current directory was deleted; name a directory with -C DIR or EVENTPROC_DIR"
        raise StoreUnusable(path=directory, reason=reason) from why


class _OneLineFormatter(logging.Formatter):
    """Formats log records in one line, except for tracebacks of the user's code; with --debug also all others."""

    def __init__(self, *, debug: bool) -> None:
        super().__init__("eventproc: %(message)s")
        self._debug = debug

    def format(self, record: logging.LogRecord) -> str:
        if self._debug or record.exc_info is None or record.exc_text is not None:
            return super().format(record)
        why = record.exc_info[1]
        return f"eventproc: {record.getMessage()} ({type(why).__name__}: {why})"

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # the standard library's name
        """Prefix what a handler logs with its processor and event, which are fields of the record."""
        return f"eventproc: {event_prefix(record)}{record.message}"


class _OncePerPlace(logging.Filter):
    """Lets one warning of each line of code pass: a person in front of a command needs the reason once."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: set[tuple[str, int]] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        place = (record.pathname, record.lineno)
        if record.levelno > logging.WARNING or place not in self._seen:
            self._seen.add(place)
            return True
        return False


def _prepare_logging(settings: Settings) -> None:
    quiet = logging.ERROR if settings.quiet else logging.WARNING
    handler = logging.StreamHandler()
    handler.setFormatter(_OneLineFormatter(debug=settings.debug))
    if not settings.debug:
        handler.addFilter(_OncePerPlace())
    logging.basicConfig(level=logging.INFO if settings.debug else quiet, handlers=[handler], force=True)
    if settings.debug:  # of eventproc only: the database's driver logs each statement
        logging.getLogger("eventproc").setLevel(logging.DEBUG)
