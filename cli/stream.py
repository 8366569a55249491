"""`eventproc stream`: create, show, scale, truncate, offload, seal and delete streams."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, Final

import click

import eventproc
from eventproc.cli.completion import SEGMENT
from eventproc.cli.options import Settings, duration_option, limit_option, note, page_options, stream_argument
from eventproc.cli.output.tables import Row, rows_of, show_rows
from eventproc.cli.stream_configs import (
    DAY_MS,
    RETENTION_OPTIONS,
    SCALING_OPTIONS,
    GivenConfig,
    config_options,
)
from eventproc.cli.verbs import Noun, find

if TYPE_CHECKING:
    from eventproc import Operation, StreamCut
    from eventproc.cli.submit import MakeOperation
    from eventproc.cluster import OffloadTask
    from eventproc.describe import Epoch, MeasuredPart, Request, StreamInfo
    from eventproc.runtime import Eventproc
    from eventproc.streams import PastScale, SegmentDescription, Stream, StreamDescription
    from eventproc.streams.offload import OffloadResult

COLUMNS: Final = (
    *("name", "state", "events", "bytes=size_bytes", "events_per_second", "scaling=config.scaling.kind"),
    *("segments_min=config.scaling.segments_min", "epoch", "created_ms"),
)
SEGMENT_COLUMNS: Final = (*("segment=id", "low", "high", "sealed", "head", "tail", "events", "sealed_epoch"),)
EPOCH_COLUMNS: Final = ("epoch=number", "created_ms", "splits", "merges", "segments")
SCALE_COLUMNS: Final = ("epoch", "created_ms", "splits", "merges", "segments", "sealed", "opened")
TABLES: Final = {
    "segments": SEGMENT_COLUMNS[:-1],
    "scaling.segments": ("segment", "verdict", "rates", "reason"),
}
"""The tables of `describe`: the field of each, and its columns."""


@click.group(cls=Noun)
def stream() -> None:
    """Create, show, scale, truncate, offload, seal and delete streams.

    Examples:
        eventproc stream create shop/orders --segments 4
        eventproc stream list shop
        eventproc stream describe shop/orders
    """


@stream.shows(COLUMNS)
@click.argument("scope", metavar="[SCOPE]", required=False)
@click.option("--tag", metavar="TAG", help="Only streams with this tag.")
@page_options("SCOPE/STREAM")
def list_(
    ep: Eventproc, scope: str | None, tag: str | None, page: dict[str, Any]
) -> Awaitable[list[StreamInfo]]:
    """List the streams of a scope, or of all scopes, with the events and bytes that can be read.

    Topics are among them; their SCALING is partitions.

    EVENTS/S (events_per_second in JSON) is the rate of writing in the last minute. In a segment that got more than 32
    appends in that minute, it is the rate of about the newest 32.

    Examples:
        eventproc stream list
        eventproc stream list shop --output json
        eventproc stream list shop --tag billing --limit 100
    """
    return ep.streams(scope, tag=tag, **page)


@stream.shows(tables=TABLES)
@stream_argument
async def describe(ep: Eventproc, name: str) -> StreamDescription:
    """Show a stream's state, sizes, ends and segments.

    If a policy scales the stream, this also shows the rates that it sees, and why it acts or does not.

    Examples:
        eventproc stream describe shop/orders
        eventproc stream describe shop/orders --output json
    """
    return await (await ep.stream(name)).describe()


@stream.shows(SEGMENT_COLUMNS)
@stream_argument
@click.option(
    "--at", metavar="TIME", help="Those of head, of tail (default), or of a time (ISO 8601, or ms)."
)
@click.option("--epoch", type=click.IntRange(min=0), metavar="N", help="Those of an epoch.")
@click.option("--sealed", is_flag=True, help="Those that are sealed, with their final sizes.")
@click.option(
    "--from", "start", metavar="POSITION", help="Those between two cuts: the earlier; head, a cut or a time."
)
@click.option("--to", "end", metavar="POSITION", help="Those between two cuts: the later; tail unless given.")
@click.option("--after", metavar="ID", help="The last segment of the previous page, with --sealed or --from.")
@limit_option(1_000)
async def segments(
    ep: Eventproc,
    name: str,
    at: str | None,
    epoch: int | None,
    sealed: bool,
    start: str | None,
    end: str | None,
    after: str | None,
    limit: int,
) -> list[SegmentDescription]:
    """List the active segments, or those of another time, in the order of their key ranges.

    Sealed segments, and those between two cuts, are listed by age, page by page.

    Examples:
        eventproc stream segments shop/orders
        eventproc stream segments shop/orders --at 2026-11-20T12:30:00Z
        eventproc stream segments shop/orders --sealed --limit 100 --after 2.1
        eventproc stream segments shop/orders --from head --to 2026-11-20T12:30:00Z
    """
    from eventproc.streams.position_texts import parse_moment, parse_segments

    between = start is not None or end is not None
    if (at is not None) + (epoch is not None) + sealed + between > 1:
        raise click.UsageError("give one of --at, --epoch, --sealed, and --from with --to")
    if after is not None and not (sealed or between):
        raise click.UsageError("--after needs --sealed or --from")
    last = None if after is None else parse_segments([after])[0]
    stream = await ep.stream(name)
    if sealed:
        return await stream.sealed_segments(after=last, limit=limit)
    if between:
        low, high = await _cut(stream, start or "head"), await _cut(stream, end or "tail")
        return await stream.segments_between(low, high, after=last, limit=limit)
    return await stream.segments(parse_moment(at or "tail"), epoch=epoch)


def _with_former_segments(row: Row) -> Row:
    """Return the successors as texts, each with the segments that it replaced."""
    after = row["successors"]
    assert isinstance(after, dict)
    return {**row, "successors": [f"{each} (after {', '.join(sealed)})" for each, sealed in after.items()]}


@stream.shows(people=_with_former_segments, watch=False)
@stream_argument
@click.argument("segment", metavar="ID", type=SEGMENT)
async def segment(ep: Eventproc, name: str, segment: str) -> Row:
    """Show a segment, active or sealed: its size, the segments that it replaced, and those that replaced it.

    Examples:
        eventproc stream segment shop/orders 0.0
    """
    from eventproc.streams.position_texts import parse_segments

    (identifier,) = parse_segments([segment])
    stream = await ep.stream(name)
    after = await stream.successors(identifier)
    return {
        **eventproc.to_dict(await stream.segment(identifier)),
        "predecessors": list(map(str, await stream.predecessors(identifier))),
        "successors": {str(each): list(map(str, sealed)) for each, sealed in after.items()},
    }


def _with_ranges(row: Row) -> Row:
    """Return the segments of an epoch as texts."""
    segments: Any = rows_of(row, "segments")
    return {**row, "segments": ["{id} [{range[low]}-{range[high]})".format(**each) for each in segments]}


@stream.shows(EPOCH_COLUMNS, people=_with_ranges, watch=False)
@stream_argument
@click.option("--after", type=click.IntRange(min=0), metavar="N", help="The last epoch of the previous page.")
@limit_option(1_000)
async def epochs(ep: Eventproc, name: str, after: int | None, limit: int) -> list[Epoch]:
    """List the epochs that are still stored, the oldest first.

    Examples:
        eventproc stream epochs shop/orders
        eventproc stream epochs shop/orders --limit 100 --after 99
    """
    return await (await ep.stream(name)).epochs(after=after, limit=limit)


@stream.shows(SCALE_COLUMNS, watch=False)
@stream_argument
@click.option("--from", "since", metavar="TIME", help="From the epoch of this time on (ISO 8601, or ms).")
@click.option("--to", "until", metavar="TIME", help="Until this time (ISO 8601, or ms).")
@click.option("--after", type=click.IntRange(min=0), metavar="N", help="The last epoch of the previous page.")
@limit_option(1_000)
async def scales(
    ep: Eventproc, name: str, since: str | None, until: str | None, after: int | None, limit: int
) -> list[PastScale]:
    """List the scales of a stream: when each one was, and which segments it sealed and opened.

    Examples:
        eventproc stream scales shop/orders
        eventproc stream scales shop/orders --from 2026-11-20T00:00:00Z --to 2026-11-21T00:00:00Z
    """
    return await (await ep.stream(name)).scales(*_times(since, until), after=after, limit=limit)


@stream.does("drew {name} into {file}")
@stream_argument
@click.argument("file", type=click.Path(dir_okay=False))
@click.option("--from", "since", metavar="TIME", help="From this time on (ISO 8601, or ms).")
@click.option("--to", "until", metavar="TIME", help="Until this time (ISO 8601, or ms).")
async def plot(ep: Eventproc, name: str, file: str, since: str | None, until: str | None) -> None:
    """Draw a stream: time to the right, keys upwards, segments as rectangles, and where its groups are.

    FILE is the picture, .svg; a browser shows the numbers of what the mouse is over. An existing one is replaced.

    Examples:
        eventproc stream plot shop/orders orders.svg
        eventproc stream plot shop/orders today.svg --from 2026-11-20T00:00:00Z
    """
    from anyio import Path

    from eventproc.errors import InvalidArgument

    if not file.lower().endswith(".svg"):
        raise InvalidArgument(what="file", value=file, reason="it must end with .svg")
    picture = await (await ep.stream(name)).plot(*_times(since, until))
    await Path(file).write_text(picture.svg())


@stream.shows(watch=False)
@stream_argument
@click.option(
    "--from", "start", default="head", show_default=True, metavar="POSITION", help="A cut, head or a time."
)
@click.option(
    "--to", "end", default="tail", show_default=True, metavar="POSITION", help="A cut, tail or a time."
)
async def size(ep: Eventproc, name: str, start: str, end: str) -> MeasuredPart:
    """Show how many bytes and events lie between two positions, and before the first since the stream was created.

    Examples:
        eventproc stream size shop/orders
        eventproc stream size shop/orders --from 2026-11-20T12:30:00Z
    """
    from eventproc.streams.position_texts import parse_position

    stream = await ep.stream(name)
    low = parse_position(start, name, stream.stream_id)
    return await stream.measure(low, parse_position(end, name, stream.stream_id))


@stream.shows(people=lambda row: str(row["order"]), watch=False)
@stream_argument
@click.argument("one", metavar="POSITION")
@click.argument("other", metavar="POSITION")
async def compare(ep: Eventproc, name: str, one: str, other: str) -> Row:
    """Print how the first position relates to the second: before, equal_or_after, or overlaps.

    Examples:
        eventproc stream compare shop/orders 7:0.0=120 tail
    """
    stream = await ep.stream(name)
    order = await stream.compare_cuts(await _cut(stream, one), await _cut(stream, other))
    return {"name": name, "order": order.value}


@stream.shows(people=lambda row: str(row["cut"]), watch=False)
@stream_argument
@click.option(
    "--at",
    default="tail",
    show_default=True,
    metavar="POSITION",
    help="head, tail, or a time (ISO 8601, or ms).",
)
async def cut(ep: Eventproc, name: str, at: str) -> Row:
    """Print a cut, for `truncate --cut` and `read --from`.

    Examples:
        eventproc stream cut shop/orders
        eventproc stream cut shop/orders --at 2026-11-20T12:30:00Z
    """
    return {"name": name, "cut": str(await _cut(await ep.stream(name), at))}


@stream.submits("created stream {name}", existing="stream {name} exists already", versioned=False)
@stream_argument
@config_options(
    *SCALING_OPTIONS,
    *RETENTION_OPTIONS,
    click.option(
        "--tag", "tags", multiple=True, metavar="TAG", help="A label for `stream list --tag`; repeatable."
    ),
)
def create(name: str, change: GivenConfig) -> MakeOperation:
    """Create a stream. An existing stream with the same configuration is left as it is.

    --output json says in the field "created" whether the stream is new.

    Examples:
        eventproc stream create shop/orders
        eventproc stream create shop/orders --segments 4
        eventproc stream create shop/orders --keep-days 7
        eventproc stream create shop/orders --events-per-second 1000 --segments-max 16
        eventproc stream create shop/orders --until-consumed --keep-days-min 1
    """

    async def make(ep: Eventproc) -> Operation:
        found = await find(ep.stream(name))
        config = eventproc.StreamConfig() if found is None else found.config
        return eventproc.CreateStream(name, change.applied_to(config))

    return make


@stream.submits("{name} is updated")
@stream_argument
@config_options(
    *SCALING_OPTIONS,
    *RETENTION_OPTIONS,
    click.option(
        "--tag", "tags", multiple=True, metavar="TAG", help="A tag, instead of all present ones; repeatable."
    ),
    click.option("--no-tags", is_flag=True, help="Remove all tags."),
)
def update(name: str, change: GivenConfig) -> Operation:
    """Change the configuration. A new number of segments takes effect immediately, with equal key ranges.

    A policy that goes by a rate leaves the segments as they are, unless there are fewer than --segments. --segments
    without a rate ends such a policy. Events beyond a new limit of age or size are truncated, or moved into files,
    within about a minute.

    Examples:
        eventproc stream update shop/orders --segments 8
        eventproc stream update shop/orders --keep-days 7 --keep-bytes 1000000000
        eventproc stream update shop/orders --offload-days 1
        eventproc stream update shop/orders --bytes-per-second 1000000
    """
    if not change.fields:
        raise click.UsageError(
            "say what to change: --segments, --keep-days, --offload-days, --keep-all, --no-offload, --tag ..."
        )
    return eventproc.UpdateStream(
        name, eventproc.PRESENT, change.config, change.keeps_segments, change.fields
    )


@stream.submits("truncated {name}", consent="Truncate stream {name}")
@stream_argument
@click.option(
    "--cut", required=True, metavar="CUT", help="The new head: a cut from `stream cut`, head, tail or a time."
)
def truncate(name: str, cut: str) -> Operation:
    """Move the head of a stream to a cut. The events before it are deleted.

    Examples:
        eventproc stream truncate shop/orders --cut 2026-11-20T12:30:00Z --dry-run
        eventproc stream truncate shop/orders --cut tail
    """
    return eventproc.TruncateTo(name, eventproc.PRESENT, cut)


@stream.works("moved {events} of {name}")
@stream_argument
@duration_option(
    "--older-than",
    "days",
    metavar="DAYS",
    default=0.0,
    help="Offload only events that were written longer ago.",
)
async def offload(ep: Eventproc, name: str, days: float, background: bool) -> OffloadTask | OffloadResult:
    """Move old events of a stream from the database into files. They are read as before.

    Examples:
        eventproc stream offload shop/orders --older-than 7
        eventproc stream offload shop/orders --background
    """
    found, age_ms = await ep.stream(name), round(days * DAY_MS)
    if background:
        return eventproc.OffloadTask(found.name, age_ms)
    return await found.offload(older_than_ms=age_ms)


@stream.submits("sealed {name}", consent="Seal stream {name} for ever")
@stream_argument
def seal(name: str) -> Operation:
    """Seal a stream for ever: its open transactions are aborted, and nothing can be written. It can still be read.

    Examples:
        eventproc stream seal shop/orders --dry-run
        eventproc stream seal shop/orders
    """
    return eventproc.SealStream(name, eventproc.PRESENT)


@stream.submits("deleted {name}", consent="Delete stream {name}")
@stream_argument
def delete(name: str) -> Operation:
    """Delete a sealed stream with its events and transactions.

    Examples:
        eventproc stream delete shop/orders --dry-run
        eventproc stream delete shop/orders
    """
    return eventproc.DeleteStream(name, eventproc.PRESENT)


async def _show_opened(ep: Eventproc, done: Request, *, settings: Settings, output: str) -> None:
    """Print the segments that a scale opened."""
    from eventproc.streams.operations import opened_segments

    note(settings, f"scaled {done.target}")
    opened = await opened_segments(ep.db, done)
    show_rows(
        list(map(eventproc.to_dict, opened)), ["segment=id", "low=range.low", "high=range.high"], output
    )


@stream.submits(_show_opened)
@stream_argument
@click.argument("segment", metavar="ID", type=SEGMENT)
@click.option("--into", type=int, default=2, show_default=True, metavar="N", help="Number of equal parts.")
def split(name: str, segment: str, into: int) -> Operation:
    """Split an active segment into equal parts, and print the new segments.

    Examples:
        eventproc stream split shop/orders 0.0
        eventproc stream split shop/orders 0.0 --into 4
    """
    return eventproc.SplitSegment(name, eventproc.PRESENT, segment, into)


@stream.submits(_show_opened)
@stream_argument
@click.argument("segments", metavar="ID ID...", type=SEGMENT, nargs=-1, required=True)
def merge(name: str, segments: tuple[str, ...]) -> Operation:
    """Merge active segments with adjacent key ranges, and print the new segment.

    Examples:
        eventproc stream merge shop/orders 0.0 1.0
    """
    from eventproc.streams.position_texts import parse_segments

    return eventproc.MergeNeighbours(name, eventproc.PRESENT, parse_segments(segments))


@stream.submits(_show_opened)
@stream_argument
@click.option(
    "--seal", "sealed", type=SEGMENT, required=True, metavar="IDS", help="The segments to seal: 0.0,1.0"
)
@click.option(
    "--ranges", required=True, metavar="RANGES", help="The key ranges of the new segments: 0-0.5,0.5-1"
)
def scale(name: str, sealed: str, ranges: str) -> Operation:
    """Seal segments, and open new ones over exactly the same key space; print the new ones.

    Examples:
        eventproc stream scale shop/orders --seal 0.0,1.0 --ranges 0-0.3,0.3-1
    """
    from eventproc.streams.position_texts import parse_ranges, parse_segments

    seal = parse_segments([sealed])
    return eventproc.ScaleStream(name, eventproc.PRESENT, seal, parse_ranges(ranges))


def _times(since: str | None, until: str | None) -> tuple[int | None, int | None]:
    from eventproc.streams.position_texts import parse_time

    return None if since is None else parse_time(since), None if until is None else parse_time(until)


async def _cut(stream: Stream, text: str) -> StreamCut:
    from eventproc.groups.position_texts import cut_at_position
    from eventproc.streams.position_texts import parse_position

    return await cut_at_position(stream, parse_position(text, stream.name, stream.stream_id))
