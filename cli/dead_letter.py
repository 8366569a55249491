"""`eventproc dead-letter`: list, show, redrive and drop the events that processors gave up on."""

from __future__ import annotations

import base64
from functools import partial
from typing import Final

import click

from eventproc.cli import session
from eventproc.cli.destruction import Consent, destructive, is_confirmed
from eventproc.cli.options import (
    CommandGroup,
    F,
    Settings,
    dry_run_option,
    group_argument,
    output_option,
    pass_settings,
    watch_option,
)
from eventproc.cli.output.tables import Row, iso_time, printable, show_done, show_one, show_rows
from eventproc.cli.watch import show_found
from eventproc.processors.dead_letters.operations import DeadLetter, Ids
from eventproc.runtime import Eventproc
from eventproc.store.model.counts import counted

COLUMNS: Final = ("id", "key", "origin", "attempts", "redriven", "failed", "error")

ERROR_CHARS_MAX: Final = 200
"""Characters of an error in a table; `show` prints the complete text."""


@click.group("dead-letter", cls=CommandGroup)
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


@dead_letter.command("list")
@group_argument
@click.option(
    "--limit",
    type=int,
    default=100,
    show_default=True,
    metavar="N",
    help="Largest number of letters; the oldest are listed.",
)
@click.option("--after", metavar="ID", help="List the letters after this one.")
@watch_option
@output_option()
@pass_settings
def list_(settings: Settings, name: str, limit: int, after: str | None, output: str) -> None:
    """List the pending dead letters of a group, in the order of their ids.

    Examples:
        eventproc dead-letter list shop/mailer
        eventproc dead-letter list shop/mailer --limit 20 --after 0.0:7
    """

    async def look(ep: Eventproc) -> list[Row]:
        letters, rows, last = ep.dead_letters(name), list[Row](), after
        # In pages, which are bounded in bytes; the payloads are not kept.
        while page := await letters.list(limit=limit - len(rows), after=last):
            rows += [_summary(each) for each in page]
            last = page[-1].id
            if len(rows) >= limit:
                break
        return rows

    def show(rows: list[Row]) -> None:
        if output == "table":
            rows = [_for_people(row, error_chars=ERROR_CHARS_MAX) for row in rows]
        show_rows(rows, COLUMNS, output)

    show_found(settings, look, show)


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
    found = session.run(settings, lambda ep: ep.dead_letters(name).get(letter))
    row = {**_summary(found), "headers": dict(found.headers)}
    try:
        row["payload"] = found.payload.decode()
    except UnicodeDecodeError:
        row["payload_base64"] = base64.b64encode(found.payload).decode()
    if output != "table":
        show_one(row, output)
        return
    shown = dict(_for_people(row))
    frames = str(shown.pop("traceback") or "").splitlines()
    show_one(shown, output)
    for line in frames:
        click.echo(printable(line))


@dead_letter.command()
@group_argument
@choice_options
@dry_run_option
@output_option()
@pass_settings
def redrive(
    settings: Settings, name: str, ids: tuple[str, ...], everything: bool, dry_run: bool, output: str
) -> None:
    """Let the processor handle events again, in no particular order relative to its waiting events.

    Examples:
        eventproc dead-letter redrive shop/mailer 0.0:7
        eventproc dead-letter redrive shop/mailer --all --dry-run
    """
    wanted = _chosen(ids, everything)
    if dry_run:
        show_one(session.run(settings, partial(_would, "redrive", name, wanted)), output)
    else:
        count = session.run(settings, lambda ep: ep.dead_letters(name).redrive(wanted))
        row = {"done": "redrive", "target": name, "letters": count}
        show_done(
            settings,
            row,
            output,
            f"redriven: {counted(count, 'dead letter')} of {name}{_gone(wanted, count)}",
        )


@dead_letter.command()
@group_argument
@choice_options
@destructive
@output_option()
@pass_settings
def drop(
    settings: Settings,
    name: str,
    ids: tuple[str, ...],
    everything: bool,
    yes: bool,
    dry_run: bool,
    output: str,
) -> None:
    """Delete dead letters permanently.

    Examples:
        eventproc dead-letter drop shop/mailer 0.0:7
        eventproc dead-letter drop shop/mailer --all --dry-run
    """
    wanted = _chosen(ids, everything)
    question = f"Drop dead letters of {name}"
    look = partial(_would, "drop", name, wanted)
    if is_confirmed(settings, Consent(yes, dry_run), question, look, output):
        count = session.run(settings, lambda ep: ep.dead_letters(name).drop(wanted))
        row = {"done": "drop", "target": name, "letters": count}
        show_done(
            settings, row, output, f"dropped: {counted(count, 'dead letter')} of {name}{_gone(wanted, count)}"
        )


def _chosen(ids: tuple[str, ...], everything: bool) -> Ids:
    if everything == bool(ids):
        raise click.UsageError("name the dead letters by their ids, or use --all")
    return "all" if everything else ids


def _gone(ids: Ids, count: int) -> str:
    missing = 0 if ids == "all" else len(set(ids)) - count
    return f"; {missing} had been redriven or dropped before" if missing else ""


async def _would(verb: str, name: str, ids: Ids, ep: Eventproc) -> Row:
    found = await ep.dead_letters(name).count(ids)
    return {
        "dry_run": True,
        "would": verb,
        "target": name,
        "already_done": found.letters == 0,
        "letters": found.letters,
        "bytes": found.size_bytes,
    }


def _summary(found: DeadLetter) -> dict[str, object]:
    """Return the fields of a letter, without its payload and headers."""
    return {
        "id": found.id,
        "stream": found.stream,
        "key": found.key,
        "event_time": found.event_time,
        "bytes": len(found.payload),
        "timestamp": found.timestamp,
        "origin_stream": found.origin_stream,
        "origin_segment": found.origin_segment,
        "origin_offset": found.origin_offset,
        "origin_number": found.origin_number,
        "origin_timestamp": found.origin_timestamp,
        "processor": found.processor,
        "attempts": found.attempts,
        "redriven": found.redriven,
        "failed_at_ms": found.failed_ms,
        "error_type": found.error_type,
        "error": found.error,
        "traceback": found.traceback,
    }


def _for_people(row: Row, *, error_chars: int | None = None) -> Row:
    """Return a letter's row for a terminal: one line per field, with control characters escaped."""
    shown = {
        name: printable(value) if isinstance(value, str) and name != "traceback" else value
        for name, value in row.items()
    }
    if row["origin_stream"] is not None:
        shown["origin"] = f"{shown['origin_stream']} {shown['origin_segment']}@{row['origin_offset']}"
    for name, of in (("failed", "failed_at_ms"), ("appended", "origin_timestamp")):
        when = shown.pop(of)
        shown[name] = iso_time(when) if isinstance(when, int) else None
    if isinstance(headers := row.get("headers"), dict):
        shown["headers"] = [printable(f"{name}={value}") for name, value in headers.items()]
    if isinstance(error := shown["error"], str) and error_chars is not None:
        kind = str(shown["error_type"] or "").rpartition(".")[2]
        error = f"{kind}: {error}" if kind else error
        shown["error"] = error if len(error) <= error_chars else f"{error[:error_chars]}…"
    return shown
