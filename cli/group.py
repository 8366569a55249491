"""`eventproc group`: create, show, reset, checkpoint and delete reader groups."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from eventproc.cli.options import (
    TABLE,
    DurationParam,
    Settings,
    dry_run_option,
    group_argument,
    note,
    output_option,
    page_options,
    pass_settings,
    timeout_option,
    watch_option,
)
from eventproc.cli.output.tables import Row, described, rows_of, show_one, show_rows
from eventproc.cli.verbs import Noun

if TYPE_CHECKING:
    from eventproc.groups import (
        DeletedPolicy,
        GroupCheckpoint,
        GroupDescription,
        GroupInfo,
        GroupResetEnd,
        GroupStart,
        MemberDescription,
        RetainedPart,
        SegmentLag,
        TruncatedPolicy,
    )
    from eventproc.runtime import Eventproc
    from eventproc.store.database import Peers, Tx
    from eventproc.store.model.cuts import StreamCut
    from eventproc.store.model.list_pages import ListPage
    from eventproc.topics import Group

COLUMNS: Final = ("name", "kind", "streams", "readers", "lag_events", "lag_bytes", "lag_ms", "progress_at_ms")
READER_COLUMNS: Final = ("reader", "pid", "alive", "joined_at_ms", "segments")
STREAM_LAG_COLUMNS: Final = ("stream", "lag_events", "cut")
SEGMENT_COLUMNS: Final = ("stream", "segment", "owner", "lag_events", "lag_bytes", "lag_ms")
STATE_COLUMNS: Final = (*SEGMENT_COLUMNS, "offset", "number", "waiting", "progress_at_ms")
TABLES: Final = {"streams": STREAM_LAG_COLUMNS, "members": READER_COLUMNS, "segments": STATE_COLUMNS}
"""The tables of `describe`: the field of each, and its columns."""

CHECKPOINT_COLUMNS: Final = ("name", "completed_at_ms", "automatic", "cuts")
RESET_COLUMNS: Final = ("stream", "cut_before", "cut_after", "events_before", "events_after")
CONSUMER_COLUMNS: Final = ("consumer", "pid", "alive", "joined_at_ms", "partitions")
OFFSET_COLUMNS: Final = (
    "topic",
    "partition",
    "consumer",
    "committed",
    "begin",
    "end",
    "lag",
    "events",
    "lag_ms",
)

RETAINED: Final[Mapping[str, RetainedPart | None]] = {
    "progress": "progress",
    "manual": "manual",
    "nothing": None,
}
"""The values of `--retains`, and the option of a group that each one means."""


class OptionalDuration(DurationParam):
    """A number of seconds, or "none", which is an infinite time."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number."""
        return math.inf if value == "none" else super().convert(value, param, ctx)


@click.group(cls=Noun)
def group() -> None:
    """Create, show, reset, checkpoint and delete reader groups.

    Examples:
        eventproc group create shop/billing --stream shop/orders
        eventproc read --group shop/billing --max 10
        eventproc group lag shop/billing
    """


@group.shows(COLUMNS)
@click.argument("scope", metavar="[SCOPE]", required=False)
@page_options("SCOPE/GROUP")
async def list_(ep: Eventproc, scope: str | None, page: ListPage) -> list[Row]:
    """List the groups of a scope, or of all scopes, with their progress, including those of processors.

    Examples:
        eventproc group list
        eventproc group list shop --output json
        eventproc group list shop --prefix mail --limit 100
    """
    from eventproc.groups import describe_group, list_groups
    from eventproc.store.model.names import check_scope_name

    def look(tx: Tx) -> list[GroupDescription]:
        if scope is not None:
            check_scope_name(scope)
        return [describe_group(tx, each.name) for each in list_groups(tx, scope, page)]

    return [_summary(each) for each in await ep.db.read(look)]


@group.shows(tables=TABLES)
@group_argument
async def describe(ep: Eventproc, name: str) -> Row:
    """Show a group: its options, lag, position, readers, and its segments with their owners.

    Examples:
        eventproc group describe shop/billing
    """
    group = await ep.group(name)
    described = await group.describe()
    cuts = {} if described.replaced else await group.cuts()
    return _described(described, await group.info(), cuts, ep.db.peers)


def _described(found: GroupDescription, info: GroupInfo, cuts: dict[str, StreamCut], peers: Peers) -> Row:
    options = info.options
    return {
        **_summary(found),
        "generation": found.generation,
        "created_ms": found.created_ms,
        "patience_ms": options.patience_ms,
        "checkpoint_every_ms": options.checkpoint_ms,
        "on_truncated": options.on_truncated,
        "on_deleted": options.on_deleted,
        "assignor": found.assignor,
        "retains": options.retains or "nothing",
        "phase": found.phase,
        "checkpoints_started": list(found.checkpoints_started),
        "members": [_reader(each, peers) for each in found.members],
        "streams": [_stream(each.name, found, cuts) for each in found.streams],
        "segments": _segments(found),
    }


@group.command()
@group_argument
@watch_option
@output_option()
@pass_settings
def lag(settings: Settings, name: str, output: str) -> None:
    """Show the lag of a group, by segment and in total: events, bytes, and the age of the oldest event.

    Examples:
        eventproc group lag shop/billing
    """
    from eventproc.cli.watch import show_found

    async def look(ep: Eventproc) -> GroupDescription:
        return await (await ep.group(name)).describe()

    def show(found: GroupDescription) -> None:
        segments = _segments(found)
        total = {"name": found.name, **_lag(found.events, found.bytes, found.age_ms)}
        if output == TABLE:
            show_rows([*segments, {**total, "stream": "total"}], SEGMENT_COLUMNS, output)
        else:
            show_one({**total, "segments": segments}, output)

    show_found(settings, look, show)


def _with_cut_texts(row: Row) -> Row:
    """Return the cuts of a checkpoint as texts."""
    return {**row, "cuts": [f"{each['stream']} {each['cut']}" for each in rows_of(row, "cuts")]}


@group.shows(CHECKPOINT_COLUMNS, people=_with_cut_texts, watch=False)
@group_argument
async def checkpoints(ep: Eventproc, name: str) -> list[Row]:
    """List the completed checkpoints that are still stored, the oldest first.

    Examples:
        eventproc group checkpoints shop/billing
    """
    return [_checkpoint(each) for each in await (await ep.group(name)).checkpoints()]


@group.shows(tables={"members": CONSUMER_COLUMNS})
@group_argument
async def members(ep: Eventproc, name: str) -> Row:
    """Show the state of a group, and its consumers with the partitions that each one owns.

    Examples:
        eventproc group members shop/billing
    """
    from eventproc.topics import TopicPartition

    found = await (await ep.group(name)).describe()
    rows: list[Row] = [
        {
            "consumer": each.reader,
            "pid": ep.db.peers.pid_of(each.instance),
            "alive": ep.db.peers.is_alive(each.instance),
            "joined_at_ms": each.joined_ms,
            "partitions": [str(TopicPartition(*where)) for where in found.assignment[each.reader]],
        }
        for each in found.members
    ]
    return {"name": found.name, "phase": found.phase, "members": rows}


@group.shows(tables={"partitions": OFFSET_COLUMNS})
@group_argument
async def offsets(ep: Eventproc, name: str) -> Row:
    """Show the offsets of a group by partition, as event numbers, and how many events each is behind.

    A lag without a value means that no offset was committed yet.

    Examples:
        eventproc group offsets shop/billing
    """
    return {
        "name": name,
        "partitions": [described(each) for each in await (await ep.group(name)).offsets()],
    }


@group.does("created group {target}", existing="group {target} exists already")
@group_argument
@click.option(
    "--stream",
    "streams",
    multiple=True,
    required=True,
    metavar="SCOPE/STREAM",
    help="A stream to read; may be repeated.",
)
@click.option(
    "--from",
    "positions",
    multiple=True,
    default=("head",),
    metavar="POSITION",
    help="Where it begins: head (default), tail, a time or a cut; with several streams, one cut for each.",
)
@click.option(
    "--to", "ends", multiple=True, metavar="CUT", help="Where it ends, from `stream cut`; may be repeated."
)
@click.option(
    "--patience",
    "patience_s",
    type=DurationParam(),
    metavar="SECONDS",
    help="How long a reader may be silent or slow; unless given, only dead readers are removed.",
)
@click.option(
    "--checkpoint-every",
    "checkpoint_s",
    type=DurationParam(),
    metavar="SECONDS",
    help="Interval of automatic checkpoints; unless given, there are none.",
)
@click.option(
    "--on-truncated",
    type=click.Choice(["earliest", "latest", "error"]),
    default="earliest",
    show_default=True,
    help="Where to continue if events were truncated before they were read.",
)
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
@click.option(
    "--retains",
    type=click.Choice(["progress", "manual", "nothing"]),
    default="progress",
    show_default=True,
    help="What a stream with --until-consumed keeps for this group.",
)
async def create(
    ep: Eventproc,
    name: str,
    streams: tuple[str, ...],
    positions: tuple[str, ...],
    ends: tuple[str, ...],
    patience_s: float | None,
    checkpoint_s: float | None,
    on_truncated: TruncatedPolicy,
    on_deleted: DeletedPolicy,
    assignor: str,
    retains: str,
) -> Row:
    """Create a group of readers or consumers. An existing group with the same options is left as it is.

    Examples:
        eventproc group create shop/billing --stream shop/orders
        eventproc group create shop/audit --stream shop/orders --stream shop/refunds --from tail --patience 30
    """
    from eventproc.errors import NotFound
    from eventproc.groups import group_name
    from eventproc.groups.position_texts import parse_cuts, parse_group_start

    full = group_name(name, streams)
    known = {each: (await ep.stream(each)).stream_id for each in streams}
    try:
        await ep.group(full)
    except NotFound:
        created = True
    else:
        created = False
    await ep.create_group(
        full,
        streams,
        start=parse_group_start(positions, known),
        until=parse_cuts(ends, known) if ends else None,
        patience_ms=_ms(patience_s),
        checkpoint_ms=_ms(checkpoint_s),
        on_truncated=on_truncated,
        on_deleted=on_deleted,
        assignor=assignor,
        retains=RETAINED[retains],
    )
    return {"target": full, "created": created}


def _ms(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)


@group.command()
@group_argument
@click.option(
    "--to",
    "positions",
    multiple=True,
    metavar="POSITION",
    help="The new position: head, tail, a time or a cut; with several streams, one cut for each.",
)
@click.option("--checkpoint", metavar="NAME", help="Reset to the cuts of this checkpoint, instead of --to.")
@click.option(
    "--stream",
    "streams",
    multiple=True,
    metavar="SCOPE/STREAM",
    help="Replaces the streams of the group; may be repeated.",
)
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
@click.option(
    "--duration",
    "duration_s",
    type=DurationParam(),
    metavar="SECONDS",
    help="Move to the first event that is not older.",
)
@click.option(
    "--partition",
    "partitions",
    multiple=True,
    metavar="SCOPE/TOPIC:NUMBER",
    help="Move only this partition; may be repeated.",
)
@dry_run_option
@output_option()
@pass_settings
def reset(
    settings: Settings,
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
    output: str,
) -> None:
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
    from eventproc.cli import session
    from eventproc.cli.group_offsets import OffsetMove, move_offsets
    from eventproc.groups.position_texts import parse_cuts, parse_group_start

    move = OffsetMove(
        positions=positions, number=number, shift=shift, duration_s=duration_s, partitions=partitions
    )
    if move.is_wanted:
        if checkpoint is not None or streams or ends:
            raise click.UsageError(
                "--checkpoint, --stream and --until do not go with the options of partitions"
            )
        move_offsets(settings, name, move, dry_run=dry_run, output=output)
        return
    if bool(positions) == (checkpoint is not None):
        raise click.UsageError("the new position is missing: use either --to POSITION or --checkpoint NAME")

    async def act(ep: Eventproc) -> tuple[str, list[Row]]:
        found = await ep.group(name)
        info = await found.info()
        names = streams or tuple(each.name for each in info.streams)
        start: GroupStart = "head"
        until: GroupResetEnd = None if ends == ("never",) else "same"
        if positions or (ends and until):
            known = {each: (await ep.stream(each)).stream_id for each in names}
            start = parse_group_start(positions, known) if positions else start
            until = parse_cuts(ends, known) if ends and until else until
        before = await _positions(found)
        previews = await found.reset(
            start, checkpoint=checkpoint, streams=streams or None, until=until, dry_run=dry_run
        )
        read = {each.stream for each in previews}
        left = [row for row in before if row["stream"] not in read]
        return found.name, [*map(described, previews), *left]

    full, rows = session.run(settings, act)
    if output == TABLE:
        show_rows(rows, RESET_COLUMNS, output)
    else:
        verb = "would" if dry_run else "done"
        show_one({"dry_run": dry_run, verb: "reset", "target": full, "streams": rows}, output)
    note(settings, f"nothing was changed; without --dry-run, {full} is reset" if dry_run else f"reset {full}")
    if skipped := sum(_skipped(row) for row in rows):
        note(settings, f"this skips {skipped} unread events; a reset to the cut before returns to them")


async def _positions(found: Group) -> list[Row]:
    """Return the position in each stream: those that the group does not read after a reset are shown, too."""
    described = await found.describe()
    cuts = {} if described.replaced else await found.cuts()
    return [
        {
            "stream": stream,
            "cut_before": str(cut),
            "events_before": sum(each.events for each in described.segments if each.stream == stream),
        }
        for stream, cut in cuts.items()
    ]


def _skipped(row: Row) -> int:
    before, after = row.get("events_before"), row.get("events_after")
    return max(before - after, 0) if isinstance(before, int) and isinstance(after, int) else 0


@group.does("updated group {name}")
@group_argument
@click.option(
    "--patience",
    type=OptionalDuration(),
    metavar="SECONDS",
    help="How long a reader may be silent or slow; none: only dead readers are removed.",
)
@click.option(
    "--checkpoint-every",
    "checkpoint",
    type=OptionalDuration(),
    metavar="SECONDS",
    help="Interval of automatic checkpoints; none: there are none.",
)
@click.option(
    "--on-truncated",
    type=click.Choice(["earliest", "latest", "error"]),
    help="Where to continue if events were truncated before they were read.",
)
@click.option("--assignor", metavar="NAME", help="Who decides which reader owns which segment.")
@click.option(
    "--retains",
    type=click.Choice(["progress", "manual", "nothing"]),
    help="What a stream with --until-consumed keeps for this group.",
)
async def update(
    ep: Eventproc,
    name: str,
    patience: float | None,
    checkpoint: float | None,
    on_truncated: TruncatedPolicy | None,
    assignor: str | None,
    retains: str | None,
) -> Row:
    """Change options of a group of readers or consumers, which stay online. The other options stay as they are.

    Examples:
        eventproc group update shop/billing --patience 30
        eventproc group update shop/billing --patience none --assignor range
    """
    times = {"patience_ms": patience, "checkpoint_ms": checkpoint}
    chosen = {"on_truncated": on_truncated, "assignor": assignor}
    changes: dict[str, Any] = {key: _optional_ms(each) for key, each in times.items() if each is not None}
    changes |= {key: each for key, each in chosen.items() if each is not None}
    if retains is not None:
        changes["retains"] = RETAINED[retains]
    if not changes:
        raise click.UsageError(
            "say what to change: --patience, --checkpoint-every, --on-truncated, --assignor or --retains"
        )
    options = await (await ep.group(name)).update(**changes)
    return {"options": described(options)}


def _optional_ms(seconds: float) -> int | None:
    return None if math.isinf(seconds) else round(seconds * 1000)


@group.shows(tables={"cuts": ("stream", "cut")}, watch=False)
@group_argument
@click.argument("checkpoint", metavar="[NAME]", required=False)
@timeout_option
async def checkpoint(ep: Eventproc, name: str, checkpoint: str | None, timeout: float) -> Row:
    """Create a checkpoint, and print it when every reader has reported its position; without readers immediately.

    A group can be reset to a completed checkpoint, and its streams can be truncated at the checkpoint's cuts.

    Examples:
        eventproc group checkpoint shop/billing
        eventproc group checkpoint shop/billing nightly --timeout 30
    """
    found = await ep.group(name)
    return _checkpoint(await found.checkpoint(checkpoint, timeout_ms=round(timeout * 1000)))


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
    from eventproc.groups.names import check_reader
    from eventproc.store.model.errors import NotFound

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


def _checkpoint(found: GroupCheckpoint) -> dict[str, object]:
    """Return the fields that are shown of a completed checkpoint."""
    return {
        "name": found.name,
        "completed_at_ms": found.at_ms,
        "automatic": found.automatic,
        "cuts": [{"stream": stream, "cut": str(cut)} for stream, cut in sorted(found.cuts.items())],
    }


def segment_row(lag: SegmentLag) -> dict[str, object]:
    """Return the fields that are shown of a segment of a reader group or a processor."""
    from eventproc.store.model.ids import format_segment

    return {
        "stream": lag.stream,
        "segment": format_segment(lag.segment),
        "owner": lag.owner,
        "owner_epoch": lag.owner_epoch,
        "offset": lag.offset,
        "number": lag.number,
        **_lag(lag.events, lag.bytes, lag.age_ms),
        "sealed": lag.sealed,
        "reached": lag.reached,
        "waiting": [format_segment(each) for each in lag.waiting],
        "progress_at_ms": lag.moved_ms,
    }


def _summary(found: GroupDescription) -> dict[str, object]:
    moved = [each.moved_ms for each in found.segments if each.moved_ms is not None]
    return {
        "name": found.name,
        "kind": found.kind,
        "streams": [each.name for each in found.streams],
        "replaced": list(found.replaced),
        "paused": found.paused,
        "readers": len(found.members),
        **_lag(found.events, found.bytes, found.age_ms),
        "lost_events": found.lost_events,
        "progress_at_ms": max(moved, default=None),
    }


def _lag(events: int, size_bytes: int, age_ms: int | None) -> dict[str, object]:
    return {"lag_events": events, "lag_bytes": size_bytes, "lag_ms": age_ms}


def _reader(member: MemberDescription, peers: Peers) -> dict[str, object]:
    return {
        "reader": member.reader,
        "pid": peers.pid_of(member.instance),
        "alive": peers.is_alive(member.instance),
        "joined_at_ms": member.joined_ms,
        "segments": member.owned,
    }


def _stream(name: str, found: GroupDescription, cuts: dict[str, StreamCut]) -> dict[str, object]:
    own = [each for each in found.segments if each.stream == name]
    ages = [each.age_ms for each in own if each.age_ms is not None]
    return {
        "stream": name,
        "replaced": name in found.replaced,
        "cut": str(cuts[name]) if name in cuts else None,
        **_lag(sum(each.events for each in own), sum(each.bytes for each in own), max(ages, default=None)),
    }


def _segments(found: GroupDescription) -> list[Row]:
    return [segment_row(each) | {"target": each.target} for each in found.segments]
