"""Exit codes, and the error line: what failed, on which object, why, and what to do.

0  done
1  failed: for instance a bad row in the middle of a file; the rows before it are written
2  wrong usage: a value that no state would accept, such as a bad name, range or number, or a malformed cut
3  not found
4  refused in the present state: a sealed stream; a cut of another or a deleted stream, or one inside an event
5  timed out; the request goes on
6  the directory is missing or cannot be used now, such as on a full or failing disk, or while a lock is held; or its
   server cannot be reached
128 + n  ended by signal n
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Final

import click

from eventproc.cli.standard_streams import OutputLost

if TYPE_CHECKING:
    from eventproc.errors import EventprocError

OK: Final = 0
FAILED: Final = 1
USAGE: Final = 2
NOT_FOUND: Final = 3
WRONG_STATE: Final = 4
TIMED_OUT: Final = 5
UNUSABLE: Final = 6
SIGNALLED: Final = 128
"""Plus the number of the signal, as in shells: 130 after Ctrl-C, 141 when the reader of a pipe has closed it."""


class Signalled(Exception):
    """A signal ended the command.

    number: of the signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


_UNUSABLE_DISK: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO})


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
        (errors.Pending, TIMED_OUT),
        ((errors.StoreMissing, errors.StoreUnusable), UNUSABLE),
        ((errors.LockHeld, errors.DirectoryInUse, errors.DiskFull, errors.Unreachable), UNUSABLE),
        (errors.Rejected, WRONG_STATE),
    ]
    return next((code for kind, code in table if isinstance(why, kind)), FAILED)


def error_line(why: BaseException) -> str:
    """Return the line that explains the error on stderr."""
    if isinstance(why, click.UsageError) and why.ctx is not None:
        message = why.format_message().replace("valid integer range", "valid integer")  # a word of click
        text = f"{message} (see `{why.ctx.command_path} --help`)"
    elif isinstance(why, click.ClickException):
        text = why.format_message()
    elif isinstance(why, OutputLost):
        text = str(why)
    elif isinstance(why, OSError):
        where = f": {why.filename}" if why.filename else ""
        text = f"{why.strerror or why}{where}"
    elif _misses_a_table(why):
        text = f"the database lacks a table or column of this version: {why}; `eventproc doctor` lists what is missing"
    else:
        from eventproc import errors

        if isinstance(why, errors.EventprocError):
            text = "; ".join([_at_a_shell(why), *getattr(why, "__notes__", ())])
        else:
            notes = getattr(why, "__notes__", ("this is a bug; --debug shows the traceback",))
            text = "; ".join([f"{type(why).__name__}: {why}", *notes])
    return f"eventproc: {_for_people(text)}"


def _at_a_shell(why: EventprocError) -> str:
    """Return the text of an error, with a command as its remedy instead of a call."""
    from eventproc.errors import ScopeNotEmpty, StreamReplaced

    if isinstance(why, StreamReplaced):
        created = (
            ""
            if why.current_id is None
            else " and created again; run the command again to use the new stream"
        )
        return f"stream {why.stream!r} was deleted meanwhile{created}"
    if isinstance(why, ScopeNotEmpty):
        remedy = f"delete them first, or all of them with `eventproc scope delete {why.scope} --recursive`"
        return f"scope {why.scope!r} has {why.contents}; {remedy}"
    return str(why)


def _for_people(text: str) -> str:
    """Return the text in one line, with control characters, such as those from a file, escaped."""
    one = " ".join(text.split())
    return one if one.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in one)


def _misses_a_table(why: BaseException) -> bool:
    # Compared by name, because only the store's driver may import sqlite3.
    return type(why).__module__ == "sqlite3" and str(why).startswith(("no such table", "no such column"))


def pending_request(why: BaseException) -> str | None:
    """Return the id of the request whose wait timed out. The request goes on."""
    if isinstance(why, (click.ClickException, OSError)):
        return None
    from eventproc.errors import StillPending

    return why.request_id if isinstance(why, StillPending) else None
