"""`eventproc group`: create, show, reset, checkpoint and delete reader groups."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, cast

import click

import eventproc
from eventproc.cli.options import (
    DurationParam,
    choice_options,
    duration_option,
    given_options,
    group_argument,
    milliseconds,
    page_options,
    reset_streams_option,
    start_options,
    timeout_option,
)
from eventproc.cli.output.tables import rows_of
from eventproc.cli.verbs import Noun, describe_each, find, stream_ids

if TYPE_CHECKING:
    from eventproc import GroupCheckpoint
    from eventproc.cli.output.tables import Row
    from eventproc.describe import GroupDescription, GroupPartition
    from eventproc.groups import DeletedPolicy, GroupResetEnd, GroupStart
    from eventproc.runtime import Eventproc

LAG_COLUMNS: Final = ("lag_events=events", "lag_bytes=bytes", "lag_ms=age_ms")
COLUMNS: Final = (
    *("name", "kind", "streams=streams.name", "readers=members", *LAG_COLUMNS, "progress_at_ms=moved_ms"),
)
SEGMENT_COLUMNS: Final = ("stream", "segment", "owner", *LAG_COLUMNS)
TABLES: Final = {
    "streams": ("stream=name", "lag_events=events", "cut"),
    "members": ("reader", "pid", "alive", "joined_at_ms=joined_ms", "segments=owned"),
    "segments": (*SEGMENT_COLUMNS, "offset", "number", "waiting", "progress_at_ms=moved_ms"),
}
"""The tables of `describe`: the field of each, and its columns."""

CHECKPOINT_COLUMNS: Final = ("name", "completed_at_ms=at_ms", "automatic", "cuts")
CONSUMER_COLUMNS: Final = ("consumer=reader", "pid", "alive", "joined_at_ms=joined_ms", "partitions")
PARTITION_COLUMNS: Final = (
    *("topic", "partition", "consumer", "committed", "first", "end", "lag", "events", "lag_ms"),
)
RESETS: Final = {
    "streams": ("stream", "cut_before", "cut_after", "events_before", "events_after"),
    "partitions": ("topic=stream", "partition", "committed", "number", "clamped"),
}
"""The tables of `reset`: the field of each, and its columns."""


class OptionalDuration(DurationParam):
    """A number of seconds, or "none", which is an infinite time."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number."""
        return math.inf if value == "none" else super().convert(value, param, ctx)


group_options: Final = choice_options(
    given_options,
    "options",
    duration_option(
        "--patience",
        "patience_ms",
        least=1,
        kind=OptionalDuration,
        help="How long a reader may be silent or slow; none, the default: only dead readers are removed.",
    ),
    duration_option(
        "--checkpoint-every",
        "checkpoint_ms",
        least=0.1,
        kind=OptionalDuration,
        help="Interval of automatic checkpoints; none, the default: there are none.",
    ),
    click.option(
        "--on-truncated",
        type=click.Choice(["earliest", "latest", "error"]),
        help="Where to continue if events were truncated before they were read; earliest by default.",
    ),
    click.option(
        "--retains",
        type=click.Choice(["progress", "manual", "nothing"]),
        help="What a stream with --until-consumed keeps for this group; progress by default.",
    ),
)
"""Decorator of commands that take `options`: those of a group that can be changed, but for its assignor."""


@click.group(cls=Noun)
def group() -> None:
    """Create, show, reset, checkpoint and delete reader groups.

    Examples:
        eventproc group create shop/billing --stream shop/orders
        eventproc read --group shop/billing --max 10
        eventproc group lag shop/billing
    """


@group.shows(COLUMNS, people=lambda row: {**row, "members": len(rows_of(row, "members"))})
@click.argument("scope", metavar="[SCOPE]", required=False)
@page_options("SCOPE/GROUP")
async def list_(ep: Eventproc, scope: str | None, page: dict[str, Any]) -> list[GroupDescription]:
    """List the groups of a scope, or of all scopes, with their progress, including those of processors.

    Examples:
        eventproc group list
        eventproc group list shop --output json
        eventproc group list shop --prefix mail --limit 100
    """
    return await describe_each(await ep.groups(scope, **page), ep.group)


def _with_streams(row: Row) -> Row:
    """Return a group's row with the position and the lag in each of its streams."""
    segments, cuts = rows_of(row, "segments"), cast("Row", row["cuts"])
    return {name: value for name, value in row.items() if name not in ("cuts", "assignment")} | {
        "streams": [
            {
                "name": each["name"],
                "events": sum(
                    cast("int", part["events"]) for part in segments if part["stream"] == each["name"]
                ),
                "cut": cuts.get(str(each["name"])),
            }
            for each in rows_of(row, "streams")
        ]
    }


@group.shows(tables=TABLES, people=_with_streams)
@group_argument
async def describe(ep: Eventproc, name: str) -> GroupDescription:
    """Show a group: its options, lag, position, readers, and its segments with their owners.

    Examples:
        eventproc group describe shop/billing
    """
    return await (await ep.group(name)).describe()


def _with_total(row: Row) -> list[Row]:
    return [*rows_of(row, "segments"), {**row, "stream": "total"}]


@group.shows(SEGMENT_COLUMNS, people=_with_total)
@group_argument
async def lag(ep: Eventproc, name: str) -> GroupDescription:
    """Show the lag of a group, by segment and in total: events, bytes, and the age of the oldest event.

    Examples:
        eventproc group lag shop/billing
    """
    return await (await ep.group(name)).describe()


def _with_cut_texts(row: Row) -> Row:
    """Return the cuts of a checkpoint as texts."""
    cuts = cast("Row", row["cuts"])
    return {**row, "cuts": [f"{stream} {cut}" for stream, cut in sorted(cuts.items())]}


@group.shows(CHECKPOINT_COLUMNS, people=_with_cut_texts, watch=False)
@group_argument
async def checkpoints(ep: Eventproc, name: str) -> list[GroupCheckpoint]:
    """List the completed checkpoints that are still stored, the oldest first.

    Examples:
        eventproc group checkpoints shop/billing
    """
    return await (await ep.group(name)).checkpoints()


def _members_only(row: Row) -> Row:
    partitions = cast("Mapping[str, list[tuple[str, int]]]", row["assignment"])
    return {
        **{field: row[field] for field in ("name", "phase")},
        "members": [
            {**each, "partitions": [f"{topic}:{number}" for topic, number in partitions[str(each["reader"])]]}
            for each in rows_of(row, "members")
        ],
    }


@group.shows(tables={"members": CONSUMER_COLUMNS}, people=_members_only)
@group_argument
async def members(ep: Eventproc, name: str) -> GroupDescription:
    """Show the state of a group, and its consumers with the partitions that each one owns.

    Examples:
        eventproc group members shop/billing
    """
    return await (await ep.group(name)).describe()


@group.shows(PARTITION_COLUMNS)
@group_argument
async def partitions(ep: Eventproc, name: str) -> list[GroupPartition]:
    """Show the committed event number of each partition of a group, and how many events the group is behind.

    A lag without a value means that no number was committed yet.

    Examples:
        eventproc group partitions shop/billing
    """
    return list(await (await ep.group(name)).partitions())


@group.does("created group {target}", existing="group {target} exists already")
@group_argument
@start_options("A stream to read")
@click.option(
    "--to", "ends", multiple=True, metavar="CUT", help="Where it ends, from `stream cut`; may be repeated."
)
@group_options
@click.option(
    "--on-deleted",
    type=click.Choice(["error", "drop"]),
    default="error",
    show_default=True,
    help="If a stream is deleted: fail, or go on with the others.",
)
@click.option(
    "--assignor",
    type=click.Choice(["equal", "range", "round_robin", "lag"]),
    default="equal",
    show_default=True,
    help="Who decides which reader owns which segment.",
)
async def create(
    ep: Eventproc,
    name: str,
    streams: tuple[str, ...],
    positions: tuple[str, ...],
    ends: tuple[str, ...],
    options: dict[str, Any],
    on_deleted: DeletedPolicy,
    assignor: str,
) -> Row:
    """Create a group of readers or consumers. An existing group with the same options is left as it is.

    Examples:
        eventproc group create shop/billing --stream shop/orders
        eventproc group create shop/audit --stream shop/orders --stream shop/refunds --from tail --patience 30
    """
    from eventproc.groups import group_name
    from eventproc.groups.position_texts import parse_cuts, parse_group_start

    full, ids = group_name(name, streams), await stream_ids(ep, streams)
    known = await find(ep.group(full))
    await ep.create_group(
        full,
        streams,
        start=parse_group_start(positions, ids),
        until=parse_cuts(ends, ids) if ends else None,
        on_deleted=on_deleted,
        assignor=assignor,
        **options,
    )
    return {"target": full, "created": known is None}


def _hint(row: Row) -> str:
    if "partitions" in row:
        clamped = any(each["clamped"] for each in rows_of(row, "partitions"))
        return (
            "some numbers lay outside their partition, and were moved to its nearest end" if clamped else ""
        )
    skipped = sum(_skipped(each) for each in rows_of(row, "streams"))
    return f"this skips {skipped} unread events; a reset to the cut before returns to them" if skipped else ""


def _skipped(row: Row) -> int:
    before, after = row.get("events_before"), row.get("events_after")
    return max(before - after, 0) if isinstance(before, int) and isinstance(after, int) else 0


@group.previews(RESETS, "{target} is reset", hint=_hint)
@group_argument
@click.option(
    "--to",
    "positions",
    multiple=True,
    metavar="POSITION",
    help="The new position: head, tail, a time or a cut; with several streams, one cut for each.",
)
@click.option("--checkpoint", metavar="NAME", help="Reset to the cuts of this checkpoint, instead of --to.")
@reset_streams_option
@click.option(
    "--until",
    "ends",
    multiple=True,
    metavar="CUT",
    help="The new end: a cut for each stream, or never; unchanged unless given.",
)
@click.option(
    "--number", type=int, metavar="NUMBER", help="The next event to read in each partition, by its number."
)
@click.option(
    "--shift", type=int, metavar="NUMBER", help="Move each partition by so many events; negative: back."
)
@duration_option("--duration", "duration_s", help="Move to the first event that is not older.")
@click.option(
    "--partition",
    "partitions",
    multiple=True,
    metavar="SCOPE/TOPIC:NUMBER",
    help="Move only this partition; may be repeated.",
)
async def reset(
    ep: Eventproc,
    name: str,
    positions: tuple[str, ...],
    checkpoint: str | None,
    streams: tuple[str, ...],
    ends: tuple[str, ...],
    number: int | None,
    shift: int | None,
    duration_s: float | None,
    partitions: tuple[str, ...],
    dry_run: bool,
) -> Row:
    """Move a group to another position. Its online readers continue there.

    No event is lost, so the command does not ask. A reset forward skips events that the group has not read: they stay
    in the stream, and the command prints the former position, to which another reset returns. With --until another
    end, the group's checkpoints are dropped.

    With --number, --shift, --duration or --partition it moves event numbers of partitions, and the group must have no
    consumer online.

    Examples:
        eventproc group reset shop/billing --to head --dry-run
        eventproc group reset shop/billing --checkpoint nightly
        eventproc group reset shop/billing --shift -100 --partition shop/clicks:3
    """
    from eventproc.groups.position_texts import parse_cuts, parse_group_start

    if partitions or (number, shift, duration_s) != (None, None, None):
        from eventproc.streams.position_texts import parse_moment
        from eventproc.topics.partition import parse_partition

        if checkpoint is not None or streams or ends:
            raise click.UsageError(
                "--checkpoint, --stream and --until do not go with the options of partitions"
            )
        if (
            sum(each is not None for each in (positions or None, number, shift, duration_s)) != 1
            or positions[1:]
        ):
            raise click.UsageError("use exactly one of --to POSITION, --number, --shift and --duration")
        moved = await (await ep.group(name)).reset_partitions(
            parse_moment(positions[0]) if positions else None,
            duration_ms=milliseconds(duration_s),
            number=number,
            shift=shift,
            partitions=list(map(parse_partition, partitions)) or None,
            dry_run=dry_run,
        )
        return {"partitions": moved}
    if bool(positions) == (checkpoint is not None):
        raise click.UsageError("the new position is missing: use either --to POSITION or --checkpoint NAME")
    group = await ep.group(name)
    before = await group.describe()
    ids = await stream_ids(ep, streams or [each.name for each in before.streams] if positions or ends else ())
    start: GroupStart = parse_group_start(positions, ids) if positions else "head"
    until: GroupResetEnd = "same" if not ends else None if ends == ("never",) else parse_cuts(ends, ids)
    found = await group.reset(
        start, checkpoint=checkpoint, streams=streams or None, until=until, dry_run=dry_run
    )
    read = {each.stream for each in found}
    left = [
        {
            "stream": stream,
            "cut_before": str(cut),
            "events_before": sum(each.events for each in before.segments if each.stream == stream),
        }
        for stream, cut in before.cuts.items()
        if stream not in read
    ]
    return {"streams": [*found, *left]}


@group.does("updated group {name}")
@group_argument
@group_options
@click.option("--assignor", metavar="NAME", help="Who decides which reader owns which segment.")
async def update(ep: Eventproc, name: str, options: dict[str, Any], assignor: str | None) -> Row:
    """Change options of a group of readers or consumers, which stay online. The other options stay as they are.

    Examples:
        eventproc group update shop/billing --patience 30
        eventproc group update shop/billing --patience none --assignor range
    """
    changes: dict[str, Any] = options if assignor is None else {**options, "assignor": assignor}
    if not changes:
        raise click.UsageError(
            "say what to change: --patience, --checkpoint-every, --on-truncated, --assignor or --retains"
        )
    return {"options": eventproc.to_dict(await (await ep.group(name)).update(**changes))}


@group.shows(watch=False)
@group_argument
@click.argument("checkpoint", metavar="[NAME]", required=False)
@timeout_option
async def checkpoint(ep: Eventproc, name: str, checkpoint: str | None, timeout: float) -> GroupCheckpoint:
    """Create a checkpoint, and print it when every reader has reported its position; without readers immediately.

    A group can be reset to a completed checkpoint, and its streams can be truncated at the checkpoint's cuts.

    Examples:
        eventproc group checkpoint shop/billing
        eventproc group checkpoint shop/billing nightly --timeout 30
    """
    found = await ep.group(name)
    return await found.checkpoint(checkpoint, timeout_ms=milliseconds(timeout) or 0)


@group.does("{reader} is offline in {name}")
@group_argument
@click.argument("reader", metavar="READER")
async def offline(ep: Eventproc, name: str, reader: str) -> None:
    """Remove a reader from its group. Other readers continue its segments from its last durable position.

    Use it for a reader that hangs; the death of a process is detected without it. A reader that is still alive is
    fenced, and may join again.

    Examples:
        eventproc group offline shop/billing worker-1
    """
    from eventproc.errors import NotFound
    from eventproc.groups.names import check_reader

    check_reader(reader)
    group = await ep.group(name)
    if reader not in [each.reader for each in (await group.describe()).members]:
        raise NotFound(kind=f"reader of {name}", name=reader)
    await group.reader_offline(reader)


async def _losses(ep: Eventproc, name: str) -> Row:
    group = await ep.group(name)
    found = await group.describe()
    return {
        "readers": len(found.members),
        "positions": len(found.segments),
        "checkpoints": 0 if found.replaced else len(await group.checkpoints()),
        "lag_events": found.events,
        "lag_bytes": found.bytes,
    }


@group.does("deleted {name}", consent="Delete group {name}", losses=_losses)
@group_argument
async def delete(ep: Eventproc, name: str) -> None:
    """Delete a group with its positions and checkpoints. Its readers are fenced; its streams stay unchanged.

    Examples:
        eventproc group delete shop/billing --dry-run
        eventproc group delete shop/billing
    """
    await (await ep.group(name)).delete()
