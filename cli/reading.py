"""What `eventproc read` does: print the events of a stream, or of a reader group."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from itertools import islice
from typing import Final

import attrs
from anyio.lowlevel import checkpoint

from eventproc import Event, SegmentId
from eventproc.cli.options import Settings
from eventproc.cli.output.events import EventPrinter
from eventproc.cli.output.terminal import progress
from eventproc.groups import GroupReader
from eventproc.runtime import Eventproc
from eventproc.streams.position_texts import parse_position
from eventproc.topics import Group


@attrs.frozen
class ReadOptions:
    """What to read of a stream.

    event_max: largest number of events. segments, partitions: None for all.
    """

    name: str
    position: str
    event_max: int
    follow: bool
    segments: Sequence[SegmentId] | None
    partitions: tuple[int, ...] | None
    output: str


async def read_stream(ep: Eventproc, *, settings: Settings, wanted: ReadOptions) -> None:
    """Print the events of the stream."""
    stream = await ep.stream(wanted.name)
    start = parse_position(wanted.position, wanted.name, stream.stream_id)
    segments = wanted.segments
    if wanted.partitions is not None:
        segments = await (await ep.topic(wanted.name)).segments_of(wanted.partitions)
    until = None if wanted.follow else await stream.tail()
    hidden = wanted.follow or sys.stdout.isatty()
    total = None if settings.quiet or hidden or start != "head" else (await stream.describe()).events
    printed = 0
    printer = EventPrinter(wanted.output)
    with progress(settings, f"reading {wanted.name}", total, hidden=hidden) as advance:
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
    hidden = wanted.follow or sys.stdout.isatty()
    with progress(settings, f"reading as {wanted.group}", None, hidden=hidden) as advance:
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
