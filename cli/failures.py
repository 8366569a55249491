"""Exit codes, and the one line that says what happened, to which object, and what to do.

A value that no state would accept is wrong usage (2): a bad name, range, number, or a cut that cannot be
read. What is well formed and does not fit the present state is refused (4): a cut of another or a deleted
stream, or inside an event; a sealed stream. A directory that cannot be used now, for a full disk or a lock
that somebody holds too, is 6. A bad row in the middle of a file failed (1): what came before it is written.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Final

import click

from eventproc.cli.stdio import OutputLost

if TYPE_CHECKING:
    from eventproc.store.model.errors import EventprocError

OK: Final = 0
FAILED: Final = 1
USAGE: Final = 2
NOT_FOUND: Final = 3
WRONG_STATE: Final = 4
TIMED_OUT: Final = 5
UNUSABLE: Final = 6
SIGNALLED: Final = 128
"""Plus the number of the signal, as shells say it: 130 after Ctrl-C, 141 when the reader of a pipe went away."""


class Signalled(Exception):
    """A signal ended the command. number: which."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


_UNUSABLE_DISK: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})


def innermost(why: BaseException) -> BaseException:
    """Return the error that a background task raised, out of the groups that task groups wrap it in."""
    while isinstance(why, BaseExceptionGroup):
        why = why.exceptions[0]
    return why


def exit_code(why: BaseException) -> int:
    """Return the exit code of a command that raised `why`."""
    if isinstance(why, click.ClickException):
        return why.exit_code
    if isinstance(why, OutputLost):
        return FAILED
    if isinstance(why, OSError):
        return UNUSABLE if why.errno in _UNUSABLE_DISK else FAILED
    if _misses_a_table(why):
        return UNUSABLE
    from eventproc import errors

    table: list[tuple[type[BaseException] | tuple[type[BaseException], ...], int]] = [
        ((errors.InvalidArgument, errors.NotSupported), USAGE),
        (errors.NotFound, NOT_FOUND),
        ((errors.StillPending, errors.CheckpointPending, errors.TransactionPending), TIMED_OUT),
        ((errors.StoreMissing, errors.StoreUnusable), UNUSABLE),
        ((errors.LockHeld, errors.DirectoryInUse, errors.DiskFull), UNUSABLE),
        (errors.Rejected, WRONG_STATE),
    ]
    return next((code for kind, code in table if isinstance(why, kind)), FAILED)


def line(why: BaseException) -> str:
    """Return the one line that says what happened."""
    if isinstance(why, click.UsageError) and why.ctx is not None:
        text = f"{why.format_message()} (see `{why.ctx.command_path} --help`)"
    elif isinstance(why, click.ClickException):
        text = why.format_message()
    elif isinstance(why, OutputLost):
        text = str(why)
    elif isinstance(why, OSError):
        where = f": {why.filename}" if why.filename else ""
        text = f"{why.strerror or why}{where}"
    elif _misses_a_table(why):
        text = (
            f"the database is not as this version makes it: {why}; `eventproc doctor` names what is missing"
        )
    else:
        from eventproc.store.model import errors

        if isinstance(why, errors.EventprocError):
            text = "; ".join([_at_a_shell(why), *getattr(why, "__notes__", ())])
        else:
            text = f"{type(why).__name__}: {why}; this is a bug, see it with --debug"
    return f"eventproc: {_for_people(text)}"


def _at_a_shell(why: EventprocError) -> str:
    """Return the text of an error, its remedy being a command and not a call."""
    from eventproc.store.model.errors import ScopeNotEmpty, StreamReplaced

    if isinstance(why, StreamReplaced):
        anew = "" if why.current_id is None else ", and made anew: run the command again to use the new one"
        return f"{why.stream} was deleted meanwhile{anew}"
    if isinstance(why, ScopeNotEmpty):
        held = f"{why.streams} streams and {why.groups} groups"
        remedy = f"delete them first, or all together with `eventproc scope delete {why.scope} --recursive`"
        return f"scope {why.scope!r} has {held}; {remedy}"
    return str(why)


def _for_people(text: str) -> str:
    """Return one line; what came out of a file, and a terminal would obey, is escaped."""
    one = " ".join(text.split())
    return one if one.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in one)


def _misses_a_table(why: BaseException) -> bool:
    # By names: SQLite may be imported by the store's driver only. Our own statements fit our own tables.
    return type(why).__module__ == "sqlite3" and str(why).startswith(("no such table", "no such column"))


def pending_request(why: BaseException) -> str | None:
    """Return the id of the request that a wait was given up for, which goes on."""
    if isinstance(why, (click.ClickException, OSError)):
        return None
    from eventproc.store.model.errors import StillPending

    return why.request_id if isinstance(why, StillPending) else None
