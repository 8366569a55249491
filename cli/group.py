"""`eventproc group`: make, reset, checkpoint and delete reader groups. What only looks is in `group_show`."""

from __future__ import annotations

from functools import partial

import attrs
import click

from eventproc.cli import session
from eventproc.cli.group_show import LOOKS, checkpoint_row, show_checkpoint
from eventproc.cli.places import parse_cuts, parse_group_start
from eventproc.cli.settings import (
    Noun,
    Number,
    Settings,
    dry_run_option,
    group_argument,
    note,
    output_option,
    pass_settings,
    timeout_option,
)
from eventproc.cli.show import Row, show_done, show_one, show_rows
from eventproc.groups import (
    GroupCheckpoint,
    GroupResetEnd,
    GroupStart,
    ResetPreview,
    TruncatedPolicy,
    preview_reset,
)
from eventproc.runtime import Eventproc

STREAM_COLUMNS = ("stream", "cut_before", "cut_after", "events_before", "events_after")


@click.group(cls=Noun)
def group() -> None:
    """Make, show, reset, checkpoint and delete reader groups."""


for _command in LOOKS:
    group.add_command(_command)


@group.command()
@group_argument
@click.option(
    "--stream", "streams", multiple=True, required=True, metavar="SCOPE/STREAM", help="May be repeated."
)
@click.option(
    "--from",
    "places",
    multiple=True,
    default=("head",),
    metavar="PLACE",
    help="Where it begins: head (unless given), tail, a time, or a cut; of several streams, a cut each.",
)
@click.option(
    "--to", "ends", multiple=True, metavar="CUT", help="Where it ends, from `stream cut`; may be repeated."
)
@click.option(
    "--lease",
    "lease_s",
    type=Number(),
    metavar="SECONDS",
    help="How long a reader may be silent before it counts as hung; unless given, only the dead are given up.",
)
@click.option(
    "--checkpoint-every",
    "checkpoint_s",
    type=Number(),
    metavar="SECONDS",
    help="Pause between checkpoints that nobody asks for.",
)
@click.option(
    "--on-truncated",
    type=click.Choice(["earliest", "latest", "error"]),
    default="earliest",
    show_default=True,
    help="Where to go on when what was not read is gone.",
)
@output_option()
@pass_settings
def create(
    settings: Settings,
    name: str,
    streams: tuple[str, ...],
    places: tuple[str, ...],
    ends: tuple[str, ...],
    lease_s: float | None,
    checkpoint_s: float | None,
    on_truncated: TruncatedPolicy,
    output: str,
) -> None:
    """Create a group of readers that share streams. An existing group with the same options is left as it is."""

    async def make(ep: Eventproc) -> str:
        known = {each: (await ep.stream(each)).stream_id for each in streams}
        made = await ep.create_reader_group(
            name,
            streams,
            start=parse_group_start(places, known),
            until=parse_cuts(ends, known) if ends else None,
            lease_ms=_ms(lease_s),
            checkpoint_ms=_ms(checkpoint_s),
            on_truncated=on_truncated,
        )
        return made.name

    full = session.run(settings, make)
    show_done(settings, {"done": "create", "target": full}, output, f"{full} exists")


def _ms(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)


@group.command()
@group_argument
@click.option(
    "--to",
    "places",
    multiple=True,
    metavar="PLACE",
    help="Where it begins anew: head, tail, a time, or a cut; of several streams, a cut each.",
)
@click.option("--checkpoint", metavar="NAME", help="Where all readers stood then, instead of --to.")
@click.option(
    "--stream",
    "streams",
    multiple=True,
    metavar="SCOPE/STREAM",
    help="Read these from now on, and no others.",
)
@click.option(
    "--until",
    "ends",
    multiple=True,
    metavar="CUT",
    help="Where it ends from now on, or never; as before unless given.",
)
@click.option("--execute/--dry-run", help="Do it; unless given, only say what would change.")
@output_option()
@pass_settings
def reset(
    settings: Settings,
    name: str,
    places: tuple[str, ...],
    checkpoint: str | None,
    streams: tuple[str, ...],
    ends: tuple[str, ...],
    execute: bool,
    output: str,
) -> None:
    """Let a group begin anew at another place; readers that are online go on there.

    Without --execute nothing changes: what would be left to read is shown, and where from.
    """
    if bool(places) == (checkpoint is not None):
        raise click.UsageError("say where to: --to PLACE, or --checkpoint NAME")

    async def act(ep: Eventproc) -> tuple[str, list[ResetPreview]]:
        found = await ep.reader_group(name)
        info = await found.info()
        names = streams or tuple(each.name for each in info.streams)
        start: GroupStart = "head"
        until: GroupResetEnd = None if ends == ("never",) else "same"
        if places or (ends and until):
            known = {each: (await ep.stream(each)).stream_id for each in names}
            start = parse_group_start(places, known) if places else start
            until = parse_cuts(ends, known) if ends and until else until
        preview = partial(
            preview_reset,
            group=found.name,
            start=start,
            checkpoint=checkpoint,
            streams=streams or None,
            until=until,
        )
        previews = await ep.db.read(preview)
        if execute:
            await found.reset(start, checkpoint=checkpoint, streams=streams or None, until=until)
        return found.name, previews

    full, previews = session.run(settings, act)
    rows = [_preview(each) for each in previews]
    if output == "table":
        show_rows(rows, STREAM_COLUMNS, output)
    else:
        verb = "done" if execute else "would"
        show_one({"dry_run": not execute, verb: "reset", "target": full, "streams": rows}, output)
    note(settings, f"reset {full}" if execute else "nothing was changed: --execute does it")


def _preview(found: ResetPreview) -> Row:
    before = found.cut_before
    return attrs.asdict(found, recurse=False) | {
        "cut_before": None if before is None else str(before),
        "cut_after": str(found.cut_after),
    }


@group.command()
@group_argument
@click.argument("checkpoint", metavar="[NAME]", required=False)
@timeout_option
@output_option()
@pass_settings
def checkpoint(settings: Settings, name: str, checkpoint: str | None, timeout: float, output: str) -> None:
    """Let every reader say where it stands, and print that once all have; without readers, at once.

    Where it is complete, the group can be reset to it, and its streams truncated at its cuts.
    """

    async def act(ep: Eventproc) -> GroupCheckpoint:
        found = await ep.reader_group(name)
        return await found.checkpoint(checkpoint, timeout_ms=round(timeout * 1000))

    show_checkpoint(checkpoint_row(session.run(settings, act)), output)


@group.command()
@group_argument
@click.argument("reader", metavar="READER")
@output_option()
@pass_settings
def offline(settings: Settings, name: str, reader: str, output: str) -> None:
    """Declare a reader dead: what it owned goes to others, at its last durable progress.

    For one that hangs; a process that died is noticed without it. One that lives is fenced, and joins again.
    """

    async def act(ep: Eventproc) -> None:
        await (await ep.reader_group(name)).reader_offline(reader)

    session.run(settings, act)
    row = {"done": "offline", "target": name, "reader": reader}
    show_done(settings, row, output, f"{reader} is offline in {name}")


@group.command()
@group_argument
@dry_run_option
@output_option()
@pass_settings
def delete(settings: Settings, name: str, dry_run: bool, output: str) -> None:
    """Remove a group and its progress; its readers are fenced. Its streams stay as they are."""

    async def act(ep: Eventproc) -> None:
        await (await ep.reader_group(name)).delete()

    async def look(ep: Eventproc) -> Row:
        found = await (await ep.reader_group(name)).describe()
        return {
            "dry_run": True,
            "would": "delete",
            "target": found.name,
            "already_done": False,
            "readers": len(found.members),
            "lag_events": found.events,
            "lag_bytes": found.bytes,
        }

    if dry_run:
        show_one(session.run(settings, look), output)
    else:
        session.run(settings, act)
        show_done(settings, {"done": "delete", "target": name}, output, f"deleted {name}")
