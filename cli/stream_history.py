"""`eventproc stream segments|segment|epochs|scales|size|compare`: the queries about a stream's history."""

from __future__ import annotations

from typing import Final

import attrs
import click

from eventproc import SegmentId, StreamCut
from eventproc.cli import session
from eventproc.cli.options import (
    Command,
    Settings,
    output_option,
    pass_settings,
    stream_argument,
    watch_option,
)
from eventproc.cli.output.tables import Row, show_one, show_rows
from eventproc.cli.watch import show_found
from eventproc.describe import Epoch, Segment
from eventproc.groups.position_texts import cut_at_position
from eventproc.runtime import Eventproc
from eventproc.store.model.ids import format_segment
from eventproc.streams import PastScale, SegmentDescription, Stream
from eventproc.streams.position_texts import parse_position, parse_segments, parse_time
from eventproc.streams.queries import PAGE_ENTRIES, Moment

SEGMENT_COLUMNS: Final = ("segment", "low", "high", "state", "head", "tail", "events", "sealed_epoch")
EPOCH_COLUMNS: Final = ("epoch", "created_ms", "splits", "merges", "segments")
SCALE_COLUMNS: Final = ("epoch", "created_ms", "splits", "merges", "segments", "sealed", "opened")

limit_option = click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=PAGE_ENTRIES,
    show_default=True,
    metavar="N",
    help="How many to list at most.",
)


@click.command(cls=Command)
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
@limit_option
@watch_option
@output_option()
@pass_settings
def segments(
    settings: Settings,
    name: str,
    at: str | None,
    epoch: int | None,
    sealed: bool,
    start: str | None,
    end: str | None,
    after: str | None,
    limit: int,
    output: str,
) -> None:
    """List the active segments, or those of another time, in the order of their key ranges.

    Sealed segments, and those between two cuts, are listed by age, page by page.

    Examples:
        eventproc stream segments shop/orders
        eventproc stream segments shop/orders --at 2026-11-20T12:30:00Z
        eventproc stream segments shop/orders --sealed --limit 100 --after 2.1
        eventproc stream segments shop/orders --from head --to 2026-11-20T12:30:00Z
    """
    between = start is not None or end is not None
    if (at is not None) + (epoch is not None) + sealed + between > 1:
        raise click.UsageError("give one of --at, --epoch, --sealed, and --from with --to")
    if after is not None and not (sealed or between):
        raise click.UsageError("--after needs --sealed or --from")
    last = None if after is None else parse_segments([after])[0]

    async def look(ep: Eventproc) -> list[SegmentDescription]:
        stream = await ep.stream(name)
        if sealed:
            return await stream.sealed_segments(after=last, limit=limit)
        if between:
            low, high = await _cut(stream, start or "head"), await _cut(stream, end or "tail")
            return await stream.segments_between(low, high, after=last, limit=limit)
        return await stream.segments(_moment(at or "tail"), epoch=epoch)

    show_found(
        settings, look, lambda found: show_rows([described(each) for each in found], SEGMENT_COLUMNS, output)
    )


@click.command(cls=Command)
@stream_argument
@click.argument("segment", metavar="ID")
@output_option()
@pass_settings
def segment(settings: Settings, name: str, segment: str, output: str) -> None:
    """Show a segment, active or sealed: its size, the segments that it replaced, and those that replaced it.

    Examples:
        eventproc stream segment shop/orders 0.0
    """
    (identifier,) = parse_segments([segment])

    async def look(ep: Eventproc) -> tuple[dict[str, object], list[str], dict[str, list[str]]]:
        stream = await ep.stream(name)
        after = await stream.successors(identifier)
        return (
            described(await stream.segment(identifier)),
            _texts(await stream.predecessors(identifier)),
            {format_segment(each): _texts(before) for each, before in after.items()},
        )

    found, before, after = session.run(settings, look)
    if output == "table":
        texts = [f"{each} (after {', '.join(sealed)})" for each, sealed in after.items()]
        show_one(found | {"predecessors": before, "successors": texts}, output)
    else:
        show_one(found | {"predecessors": before, "successors": after}, output)


@click.command(cls=Command)
@stream_argument
@click.option("--after", type=click.IntRange(min=0), metavar="N", help="The last epoch of the previous page.")
@limit_option
@output_option()
@pass_settings
def epochs(settings: Settings, name: str, after: int | None, limit: int, output: str) -> None:
    """List the epochs that are still stored, the oldest first.

    Examples:
        eventproc stream epochs shop/orders
        eventproc stream epochs shop/orders --limit 100 --after 99
    """

    async def look(ep: Eventproc) -> list[Epoch]:
        return await (await ep.stream(name)).epochs(after=after, limit=limit)

    found = session.run(settings, look)
    if output == "table":
        shown = [_epoch(epoch) | {"segments": [str(each) for each in epoch.segments]} for epoch in found]
        show_rows(shown, EPOCH_COLUMNS, output)
    else:
        show_rows([_epoch(epoch) for epoch in found], EPOCH_COLUMNS, output)


@click.command(cls=Command)
@stream_argument
@click.option("--from", "since", metavar="TIME", help="From the epoch of this time on (ISO 8601, or ms).")
@click.option("--to", "until", metavar="TIME", help="Until this time (ISO 8601, or ms).")
@click.option("--after", type=click.IntRange(min=0), metavar="N", help="The last epoch of the previous page.")
@limit_option
@output_option()
@pass_settings
def scales(
    settings: Settings,
    name: str,
    since: str | None,
    until: str | None,
    after: int | None,
    limit: int,
    output: str,
) -> None:
    """List the scales of a stream: when each one was, and which segments it sealed and opened.

    Examples:
        eventproc stream scales shop/orders
        eventproc stream scales shop/orders --from 2026-11-20T00:00:00Z --to 2026-11-21T00:00:00Z
    """

    async def look(ep: Eventproc) -> list[PastScale]:
        from_ms, to_ms = (None if each is None else parse_time(each) for each in (since, until))
        return await (await ep.stream(name)).scales(from_ms, to_ms, after=after, limit=limit)

    rows: list[Row] = [
        attrs.asdict(each) | {"sealed": _texts(each.sealed), "opened": _texts(each.opened)}
        for each in session.run(settings, look)
    ]
    show_rows(rows, SCALE_COLUMNS, output)


@click.command(cls=Command)
@stream_argument
@click.option(
    "--from", "start", default="head", show_default=True, metavar="POSITION", help="A cut, head or a time."
)
@click.option(
    "--to", "end", default="tail", show_default=True, metavar="POSITION", help="A cut, tail or a time."
)
@output_option()
@pass_settings
def size(settings: Settings, name: str, start: str, end: str, output: str) -> None:
    """Show how many bytes and events lie between two positions, and before the first since the stream was created.

    Examples:
        eventproc stream size shop/orders
        eventproc stream size shop/orders --from 2026-11-20T12:30:00Z
    """

    async def look(ep: Eventproc) -> Row:
        stream = await ep.stream(name)
        low = parse_position(start, name, stream.stream_id)
        found = await stream.measure(low, parse_position(end, name, stream.stream_id))
        return {
            "name": name,
            "from": str(found.start),
            "to": str(found.end),
            "events": found.between.events,
            "bytes": found.between.bytes,
            "events_before": found.before.events,
            "bytes_before": found.before.bytes,
            "truncated_ms": found.truncated_ms,
        }

    show_one(session.run(settings, look), output)


@click.command(cls=Command)
@stream_argument
@click.argument("one", metavar="POSITION")
@click.argument("other", metavar="POSITION")
@output_option()
@pass_settings
def compare(settings: Settings, name: str, one: str, other: str, output: str) -> None:
    """Print how the first position relates to the second: before, equal_or_after, or overlaps.

    Examples:
        eventproc stream compare shop/orders 7:0.0=120 tail
    """

    async def look(ep: Eventproc) -> str:
        stream = await ep.stream(name)
        return (await stream.compare_cuts(await _cut(stream, one), await _cut(stream, other))).value

    order = session.run(settings, look)
    if output == "table":
        click.echo(order)
    else:
        show_one({"name": name, "order": order}, output)


COMMANDS: Final = (segments, segment, epochs, scales, size, compare)


def segment_row(segment: Segment) -> dict[str, object]:
    """Return the fields that every table of segments shows."""
    return {"segment": format_segment(segment.id), "low": segment.range.low, "high": segment.range.high}


def described(segment: SegmentDescription) -> dict[str, object]:
    """Return a row of a table of segments."""
    return {
        "segment": format_segment(segment.id),
        "low": segment.low,
        "high": segment.high,
        "state": "sealed" if segment.sealed else "active",
        "head": segment.head,
        "tail": segment.tail,
        "head_number": segment.head_number,
        "tail_number": segment.tail_number,
        "events": segment.tail_number - segment.head_number,
        "sealed_epoch": segment.sealed_epoch,
    }


def _epoch(epoch: Epoch) -> dict[str, object]:
    return {
        "epoch": epoch.number,
        "created_ms": epoch.created_ms,
        "splits": epoch.splits,
        "merges": epoch.merges,
        "request_id": epoch.request_id,
        "segments": [segment_row(segment) for segment in epoch.segments],
    }


def _texts(segments: tuple[SegmentId, ...]) -> list[str]:
    return [format_segment(each) for each in segments]


def _moment(text: str) -> Moment:
    match text:
        case "head" | "tail":
            return text
        case _:
            return parse_time(text)


async def _cut(stream: Stream, text: str) -> StreamCut:
    return await cut_at_position(stream, parse_position(text, stream.name, stream.stream_id))
