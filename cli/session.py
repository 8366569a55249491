"""Run a command on an open directory: the event loop, signals, and the library's log on stderr."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import click

from eventproc.base.tasks import first_leaf
from eventproc.cli.exit_codes import WRONG_STATE
from eventproc.cli.options import Settings
from eventproc.cli.server_log import event_prefix
from eventproc.cli.signals import SignalScope, run_with_signals
from eventproc.errors import NotFound, NotSupported, StoreMissing, StoreUnusable
from eventproc.runtime import Eventproc, open as open_store, store_address

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
    return run_with_signals(partial(_run, address_of(settings), action, host))


def run_alone(settings: Settings, action: Callable[[], Awaitable[T]]) -> T:
    """Return what `action` returns, which opens what it needs. Raises Signalled if a signal ended the action."""
    _prepare_logging(settings)
    return run_with_signals(lambda signal_scope: signal_scope.run(action()))


async def _run(
    address: str, action: Callable[[Eventproc], Awaitable[T]], host: bool, signal_scope: SignalScope
) -> T:
    async with open_store(address, create=False, host=host) as ep:
        try:
            return await signal_scope.run(action(ep))
        except (NotFound, BaseExceptionGroup) as why:
            if isinstance(missing := first_leaf(why), NotFound):
                from eventproc.cli.suggestions import add_suggestions

                await add_suggestions(ep, missing)
            raise


def create_store(settings: Settings, durability: str | None, chunks: str | None) -> bool:
    """Create the store, or open the existing one; return whether it was created.

    chunks: the folder of its chunk files. Raises OtherDurability, and InvalidArgument for the folder.
    """
    _prepare_logging(settings)
    address = address_of(settings)

    async def _make(_: SignalScope) -> bool:
        try:
            async with open_store(address, create=False, host=False) as ep:
                found = str(ep.durability)
                if durability not in (None, found):
                    raise OtherDurability(
                        f"{ep.db.name} exists already with durability {found!r}, which cannot be changed; "
                        "leave --durability out, or choose another place"
                    )
            if chunks is None:
                return False
        # An unusable one is refused below, with the remedy for a new one.
        except (StoreMissing, StoreUnusable):
            found = None
        async with open_store(address, durability=durability, host=False, chunks=chunks):
            return found is None

    return run_with_signals(_make)


def is_url(address: str) -> bool:
    """Return whether a store lies on a server. The path of a directory has no two slashes in a row."""
    return "://" in address


def address_of(settings: Settings) -> str:
    """Return the URL of the store that a command works on, or the absolute path of its directory."""
    return absolute_address(settings.directory or ".")


def directory_of(settings: Settings) -> Path:
    """Return the absolute path of the directory that a command works on. Raises NotSupported for a URL."""
    address = address_of(settings)
    if is_url(address):
        what = f"`{click.get_current_context().command_path}` on a store that is no directory"
        raise NotSupported(what=what, remedy="name a directory with -C DIR or EVENTPROC_DIR")
    return Path(address)


def shown(address: str) -> str:
    """Return an address for people: a directory as it was given, or a URL without the password and options."""
    return str(store_address(address)) if is_url(address) else address


def use_address(settings: Settings, address: str) -> None:
    """Work on the store of the argument. Raises UsageError if -C or EVENTPROC_DIR names another one."""
    before = settings.directory
    if before is not None and absolute_address(before) != absolute_address(address):
        raise click.UsageError(
            f"two different directories are given: {shown(address)} as the argument, and {shown(before)} by -C or "
            "EVENTPROC_DIR; leave one of them out"
        )
    settings.directory = address


def absolute_address(address: str) -> str:
    """Return a path as an absolute one, so that a message names it wherever it is read; `-C memory` is a directory."""
    try:
        return address if is_url(address) else str(Path(address).absolute())
    except FileNotFoundError as why:
        reason = "the current directory was deleted; name a directory with -C DIR or EVENTPROC_DIR"
        raise StoreUnusable(path=address, reason=reason) from why


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
