"""`eventproc dead-letter`: list, show, redrive and drop the events that processors gave up on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

import eventproc
from eventproc.base.counts import counted
from eventproc.cli.options import (
    TABLE,
    F,
    Settings,
    group_argument,
    limit_option,
    output_option,
    pass_settings,
)
from eventproc.cli.output.events import payload_field
from eventproc.cli.output.tables import Row, iso_time, printable, show_one
from eventproc.cli.verbs import Noun, rows_of_pages

if TYPE_CHECKING:
    from eventproc.processors.dead_letters.operations import DeadLetter, Ids
    from eventproc.runtime import Eventproc

COLUMNS: Final = ("id", "key", "origin", "attempts", "redriven", "failed", "error")

PAST: Final = {"redrive": "redriven", "drop": "dropped"}
"""The verbs as their notes say them."""

ERROR_CHARS_MAX: Final = 200
"""Characters of an error in a table; `show` prints the complete text."""


@click.group("dead-letter", cls=Noun)
def dead_letter() -> None:
    """List, show, redrive and drop the events that processors gave up on.

    Examples:
        eventproc dead-letter list shop/mailer
        eventproc dead-letter redrive shop/mailer --all
    """


def choice_options(command: F) -> F:
    """Decorator of commands on some dead letters or all of them: passed as `ids` and `everything`."""
    command = click.option("--all", "everything", is_flag=True, help="All pending dead letters.")(command)
    return click.argument("ids", metavar="[ID]...", nargs=-1)(command)


def _summary_for_people(row: Row) -> Row:
    return _for_people(row, error_chars=ERROR_CHARS_MAX)


@dead_letter.shows(COLUMNS, people=_summary_for_people)
@group_argument
@limit_option(100, "Largest number of letters; the oldest are listed.")
@click.option("--after", metavar="ID", help="List the letters after this one.")
async def list_(ep: Eventproc, name: str, limit: int, after: str | None) -> list[Row]:
    """List the pending dead letters of a group, in the order of their ids.

    Examples:
        eventproc dead-letter list shop/mailer
        eventproc dead-letter list shop/mailer --limit 20 --after 0.0:7
    """
    return await rows_of_pages(ep.dead_letters(name).list, _summary, "id", after=after, limit=limit)


@dead_letter.command()
@group_argument
@click.argument("letter", metavar="ID")
@output_option()
@pass_settings
def show(settings: Settings, name: str, letter: str, output: str) -> None:
    """Show a dead letter: the event, its origin, and the error.

    Examples:
        eventproc dead-letter show shop/mailer 0.0:7
    """
    from eventproc.cli import session

    found = session.run(settings, lambda ep: ep.dead_letters(name).get(letter))
    row = {**_summary(found), "headers": dict(found.headers), **payload_field(found.payload)}
    if output != TABLE:
        show_one(row, output)
        return
    shown = dict(_for_people(row))
    frames = str(shown.pop("traceback") or "").splitlines()
    show_one(shown, output)
    for line in frames:
        click.echo(printable(line))


def _changed(row: Row) -> str:
    """Return the note of a change, with the letters that were gone before it."""
    ids, count = row["ids"], row["letters"]
    assert isinstance(ids, tuple) and isinstance(count, int)
    missing = len(set(ids)) - count
    gone = f"; {missing} had been redriven or dropped before" if ids and missing else ""
    return f"{PAST[str(row['done'])]}: {counted(count, 'dead letter')} of {row['name']}{gone}"


async def _losses(ep: Eventproc, name: str, ids: tuple[str, ...], everything: bool) -> Row:
    found = await ep.dead_letters(name).count(_chosen(ids, everything))
    return {"already_done": found.letters == 0, "letters": found.letters, "bytes": found.size_bytes}


@dead_letter.does(_changed, losses=_losses)
@group_argument
@choice_options
async def redrive(ep: Eventproc, name: str, ids: tuple[str, ...], everything: bool) -> Row:
    """Let the processor handle events again, in no particular order relative to its waiting events.

    Examples:
        eventproc dead-letter redrive shop/mailer 0.0:7
        eventproc dead-letter redrive shop/mailer --all --dry-run
    """
    return {"letters": await ep.dead_letters(name).redrive(_chosen(ids, everything))}


@dead_letter.does(_changed, consent="Drop dead letters of {name}", losses=_losses)
@group_argument
@choice_options
async def drop(ep: Eventproc, name: str, ids: tuple[str, ...], everything: bool) -> Row:
    """Delete dead letters permanently.

    Examples:
        eventproc dead-letter drop shop/mailer 0.0:7
        eventproc dead-letter drop shop/mailer --all --dry-run
    """
    return {"letters": await ep.dead_letters(name).drop(_chosen(ids, everything))}


def _chosen(ids: tuple[str, ...], everything: bool) -> Ids:
    if everything == bool(ids):
        raise click.UsageError("name the dead letters by their ids, or use --all")
    return "all" if everything else ids


def _summary(found: DeadLetter) -> dict[str, object]:
    """Return the fields of a letter, without its payload and headers."""
    row = eventproc.to_dict(found) | {"bytes": len(found.payload)}
    return {name: value for name, value in row.items() if name not in ("payload", "headers")}


def _for_people(row: Row, *, error_chars: int | None = None) -> Row:
    """Return a letter's row for a terminal: one line per field, with control characters escaped."""
    shown = {
        name: printable(value) if isinstance(value, str) and name != "traceback" else value
        for name, value in row.items()
    }
    if row["origin_stream"] is not None:
        shown["origin"] = f"{shown['origin_stream']} {shown['origin_segment']}@{row['origin_offset']}"
    for name, of in (("failed", "failed_ms"), ("appended", "origin_timestamp")):
        when = shown.pop(of)
        shown[name] = iso_time(when) if isinstance(when, int) else None
    if isinstance(headers := row.get("headers"), dict):
        shown["headers"] = [printable(f"{name}={value}") for name, value in headers.items()]
    if isinstance(error := shown["error"], str) and error_chars is not None:
        kind = str(shown["error_type"] or "").rpartition(".")[2]
        error = f"{kind}: {error}" if kind else error
        shown["error"] = error if len(error) <= error_chars else f"{error[:error_chars]}…"
    return shown
