"""`eventproc read`: print the events of a stream, or of a reader group that this process joins.

In a group, an event is finished when its line was written completely to a pipe that was still open. Ctrl-C, SIGTERM
and a broken pipe end the command between two events: the progress over the printed events is made durable, and the
others are read again, by this reader or another one.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from itertools import islice
from typing import Final

import attrs
import click
from anyio.lowlevel import checkpoint

from eventproc import Event, SegmentId
from eventproc.cli import session
from eventproc.cli.options import Command, Settings, output_option, pass_settings
from eventproc.cli.output.events import EventPrinter
from eventproc.cli.output.terminal import progress
from eventproc.groups import GroupReader
from eventproc.runtime import Eventproc
from eventproc.streams.position_texts import parse_position, parse_segments
from eventproc.topics import Group

ENDLESS: Final = 2**63 - 1


@attrs.frozen
class ReadOptions:
    """What to read of a stream.

    event_max: largest number of events. segments, partitions: None for all.
    """

    name: str
    position: str
    event_max: int
    follow: bool
    segments: tuple[SegmentId, ...] | None
    partitions: tuple[int, ...] | None
    output: str


@click.command(cls=Command)
@click.argument("name", metavar="[SCOPE/STREAM]", required=False)
@click.option("--group", metavar="SCOPE/GROUP", help="Read as a reader of this group.")
@click.option("--reader", metavar="ID", help="With --group: the reader's id; a new reader unless given.")
@click.option(
    "--from",
    "position",
    show_default="head",
    metavar="POSITION",
    help="head, tail, a cut from `stream cut`, or a time (ISO 8601, or ms).",
)
@click.option("--max", "event_max", type=click.IntRange(1, ENDLESS), metavar="N", help="Stop after N events.")
@click.option("--follow", is_flag=True, help="Wait for new events until the stream is sealed.")
@click.option(
    "--segment", "segments", multiple=True, metavar="ID", help="Only this segment; may be repeated."
)
@click.option(
    "--partition", "partitions", multiple=True, type=int, metavar="P", help="Only this one; may be repeated."
)
@output_option(default="jsonl")
@pass_settings
def read(
    settings: Settings,
    name: str | None,
    group: str | None,
    reader: str | None,
    position: str | None,
    event_max: int | None,
    follow: bool,
    segments: tuple[str, ...],
    partitions: tuple[int, ...],
    output: str,
) -> None:
    """Print the events of a stream, or of a reader group. Events of a key come in their order.

    Without --follow the command ends at the stream's present tail. A JSON line has scope, stream, segment, offset,
    number, key, timestamp, event_time, headers, and payload, or payload_base64 if the payload is not UTF-8.

    With --group the group's other readers do not get what is printed here: an event is finished once it is printed,
    and is not read again. Use --max to take some. Events already written to a pipe count as finished, even if its
    reader never read them.

    Examples:
        eventproc read shop/orders
        eventproc read shop/orders --from 2026-11-20T12:30:00Z --max 100
        eventproc read shop/clicks --partition 3
        eventproc read --group shop/billing --follow
    """
    if follow and output == "json":
        raise click.UsageError("--follow has no end, which a JSON array needs: use --output jsonl")
    event_max = event_max or ENDLESS
    if group is not None:
        if name is not None or position is not None or segments or partitions:
            raise click.UsageError(
                "the group determines the streams and positions: leave SCOPE/STREAM, --from, --segment and "
                "--partition out"
            )
        wanted_of_group = GroupReadOptions(group, reader, event_max, follow, output)
        session.run(settings, partial(read_group, settings=settings, wanted=wanted_of_group))
        return
    if name is None or reader is not None:
        raise click.UsageError(
            "name what to read: SCOPE/STREAM, or --group SCOPE/GROUP, with --reader ID if wanted"
        )
    if segments and partitions:
        raise click.UsageError("a partition is a segment: give --segment or --partition, not both")
    chosen = parse_segments(segments) if segments else None
    wanted = ReadOptions(name, position or "head", event_max, follow, chosen, partitions or None, output)
    session.run(settings, partial(_read, settings=settings, wanted=wanted))


async def _read(ep: Eventproc, *, settings: Settings, wanted: ReadOptions) -> None:
    stream = await ep.stream(wanted.name)
    start = parse_position(wanted.position, wanted.name, stream.stream_id)
    segments = wanted.segments
    if wanted.partitions is not None:
        segments = await (await ep.topic(wanted.name)).segments_of(wanted.partitions)
    until = None if wanted.follow else await stream.tail()
    # On a terminal that shows the events, a bar would be in their way.
    quiet = settings.quiet or wanted.follow or sys.stdout.isatty()
    bar = Settings()
    bar.quiet = quiet
    total = None if quiet or start != "head" else (await stream.describe()).events
    printed = 0
    printer = EventPrinter(wanted.output)
    with progress(bar, f"reading {wanted.name}", total) as advance:
        async with (
            stream.reader(start, segments=segments) as reader,
            aclosing(reader.batches(until=until)) as batches,
        ):
            async for batch in batches:
                events = islice(batch, wanted.event_max - printed)
                printed += printer.print(events)
                advance(printed, f"{printed:,} read")
                if printed >= wanted.event_max:
                    break
        printer.close()


EVENTS_PER_CHECKPOINT: Final = 100
"""Events between two scheduling points, at which a signal or a change of the group takes effect. Each costs 30 us.
Higher: a signal waits for that many lines."""


@attrs.frozen
class GroupReadOptions:
    """What to read as a reader of a group.

    event_max: largest number of events. follow: read until all streams are sealed, else up to their present tails.
    """

    group: str
    reader: str | None
    event_max: int
    follow: bool
    output: str


async def read_group(ep: Eventproc, *, settings: Settings, wanted: GroupReadOptions) -> None:
    """Print the events of the segments that the group assigns to this reader."""
    group = await ep.group(wanted.group)
    names = [each.name for each in (await group.info()).streams]
    printer = EventPrinter(wanted.output, name_streams=len(names) > 1)
    bar = Settings()
    # On a terminal that shows the events, a bar would be in their way.
    bar.quiet = settings.quiet or wanted.follow or sys.stdout.isatty()
    with progress(bar, f"reading as {wanted.group}", None) as advance:
        async with _reader(group, wanted) as reader:
            events = aiter(reader) if wanted.follow else await _up_to_now(ep, names, reader)
            printed = 0
            async with aclosing(events):
                async for event in events:
                    if printed % EVENTS_PER_CHECKPOINT == 0:
                        await checkpoint()  # if cancelled here, this event is not finished
                        advance(printed, f"{printed:,} read")
                    printed += printer.print([event])
                    if printed >= wanted.event_max:
                        break
            printer.close()


def _reader(group: Group, wanted: GroupReadOptions) -> GroupReader:
    return group.reader(f"shell-{os.getpid()}" if wanted.reader is None else wanted.reader)


async def _up_to_now(ep: Eventproc, names: list[str], reader: GroupReader) -> AsyncGenerator[Event, None]:
    """Return the events before the present tails of the streams."""
    return reader.until([await (await ep.stream(name)).tail() for name in names])
