"""Commands that destroy data: `--dry-run`, `--yes`, and the question on a terminal.

The rule, for every command that may remove events, transactions, positions or dead letters permanently:

- `--dry-run` prints what would be destroyed and changes nothing, with or without `--yes`.
- `--yes` acts.
- Without either, the command names what will be lost and asks, if a person is at the terminal. Otherwise it refuses
  before it opens the directory.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import attrs
import click

from eventproc import DeleteScope, DeleteStream, Operation, TruncateStream
from eventproc.base.counts import counted
from eventproc.cli import session
from eventproc.cli.exit_codes import FAILED
from eventproc.cli.options import Settings
from eventproc.cli.output.tables import Row, show_done, show_one
from eventproc.cli.output.units import size_text
from eventproc.cli.submit import WaitOptions, submit_and_wait
from eventproc.describe import Request, RequestPreview
from eventproc.runtime import Eventproc

Look = Callable[[Eventproc], Awaitable[Row]]
"""Returns what a command would destroy. Raises what refuses the command."""

COUNTED: Final[Mapping[str, str]] = {
    "stream_count": "stream",
    "group_count": "group",
    "synchronizer_count": "synchronizer",
    "table_count": "key-value table",
    "transactions": "open transaction",
    "positions": "position",
    "checkpoints": "checkpoint",
    "letters": "dead letter",
    "keys": "state",
    "grants": "grant",
    "tokens": "token",
    "schedules": "schedule",
    "delayed": "delayed event",
    "events": "event",
}
"""The fields of a dry run that the question counts, in this order, each with its noun. Their size follows."""


SELDOM: Final = frozenset({"table_count", "delayed"})
"""The fields that the question leaves out if there are none."""

FREEING: Final = frozenset({TruncateStream.kind, DeleteStream.kind, DeleteScope.kind})
"""The requests whose events are freed in the background after they are done."""


class NotConfirmed(click.ClickException):
    """The person at the terminal did not confirm."""

    exit_code = FAILED


@attrs.frozen
class Consent:
    """The options `--yes` and `--dry-run` of a destructive command."""

    yes: bool
    dry_run: bool


def submit_destruction(
    settings: Settings,
    asked: Operation,
    consent: Consent,
    question: str,
    waiting: WaitOptions,
    done: str,
    output: str,
) -> None:
    """Submit a request that destroys data, as `submit_and_wait` does, if the options or the person consent.

    The request that a person confirmed is the one that is submitted: "tail" and a name mean what they meant when the
    question was asked.
    """
    chosen: RequestPreview | None = None

    async def look(ep: Eventproc) -> Row:
        nonlocal chosen
        chosen = await ep.requests.preview(asked)
        return chosen.losses()

    async def show(ep: Eventproc, request: Request) -> None:
        row: Row = {"done": request.kind, "target": request.target, "request_id": request.id}
        text = done
        if request.kind in FREEING and ep.path is not None:  # a server frees its space itself
            free_bytes = await ep.free_bytes()
            row = {**row, "free_bytes": free_bytes}
            now = f"`eventproc compact` does it now ({size_text(free_bytes)} are free)"
            text = f"{done}; the host frees its bytes, {now}"
        show_done(settings, row, output, text)

    if is_confirmed(settings, consent, question, look, output):
        submit_and_wait(settings, asked, waiting, show, output, confirmed=chosen)


def is_confirmed(settings: Settings, consent: Consent, question: str, look: Look, output: str) -> bool:
    """Return whether the command may act; with --dry-run print what `look` returns.

    question: what the command does to what, such as "Delete stream shop/orders".
    Raises NotConfirmed if the person says no, click.Abort after Ctrl-C, click.UsageError without a terminal.
    """
    if consent.dry_run:
        show_one(session.run(settings, look), output)
        return False
    if consent.yes:
        return True
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise click.UsageError(
            "confirmation needs a terminal; use --yes to act without it, or --dry-run to see what would be destroyed"
        )
    losses = losses_text(session.run(settings, look))
    if not _says_yes(f"{question}? This destroys {losses} permanently. [y/N] "):
        raise NotConfirmed("not confirmed; nothing was changed")
    return True


def losses_text(row: Row) -> str:
    """Return the losses that a dry run names, in words: "1 stream, 3 events, 170 B"."""
    found = {name: int(str(row[name])) for name in COUNTED if name in row}
    losses = [counted(each, COUNTED[name]) for name, each in found.items() if each or name not in SELDOM]
    if "bytes" in row:
        losses.append(size_text(int(str(row["bytes"]))))
    return ", ".join(losses)


def _says_yes(question: str) -> bool:
    with _ctrl_c_raises():
        while True:
            try:
                click.echo(question, nl=False, err=True)
                answer = sys.stdin.readline()
            except KeyboardInterrupt:
                click.echo(err=True)  # the shell's prompt begins on a line of its own
                raise click.Abort from None
            if not answer:  # Ctrl-D, or the terminal is gone
                click.echo(err=True)
                return False
            match answer.strip().lower():
                case "y" | "yes":
                    return True
                case "" | "n" | "no":
                    return False
                case _:
                    click.echo("Please answer y or n.", err=True)


@contextmanager
def _ctrl_c_raises() -> Iterator[None]:
    """Let Ctrl-C raise KeyboardInterrupt meanwhile; otherwise it ends the process immediately (`entry`)."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
