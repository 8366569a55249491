"""`eventproc read`: the events of a stream."""

from __future__ import annotations

import sys
from contextlib import aclosing
from functools import partial
from itertools import islice
from typing import Final

import attrs
import click

from eventproc.cli import session
from eventproc.cli.group_read import WantedOfGroup, read_group
from eventproc.cli.places import parse_place, parse_segments
from eventproc.cli.printer import Printer
from eventproc.cli.progress import progress
from eventproc.cli.settings import Command, Settings, output_option, pass_settings
from eventproc.runtime import Eventproc
from eventproc.store.model.ids import SegmentId

ENDLESS: Final = 2**63 - 1


@attrs.frozen
class Wanted:
    """What to read. event_max: how many; segments: all unless given."""

    name: str
    place: str
    event_max: int
    follow: bool
    segments: tuple[SegmentId, ...] | None
    output: str


@click.command(cls=Command)
@click.argument("name", metavar="[SCOPE/STREAM]", required=False)
@click.option("--group", metavar="SCOPE/GROUP", help="Read as a group, beside its other readers.")
@click.option("--reader", metavar="ID", help="With --group: who is reading; a new one unless given.")
@click.option(
    "--from",
    "place",
    show_default="head",
    metavar="PLACE",
    help="head, tail, a cut from `stream cut`, or a time (ISO 8601, or ms).",
)
@click.option("--max", "event_max", type=click.IntRange(1, ENDLESS), metavar="N", help="Stop after N events.")
@click.option("--follow", is_flag=True, help="Wait for more, until the stream is sealed.")
@click.option(
    "--segment", "segments", multiple=True, metavar="ID", help="Only this segment; may be repeated."
)
@output_option(default="jsonl")
@pass_settings
def read(
    settings: Settings,
    name: str | None,
    group: str | None,
    reader: str | None,
    place: str | None,
    event_max: int | None,
    follow: bool,
    segments: tuple[str, ...],
    output: str,
) -> None:
    """Print the events of a stream, those of a key in their order; or those of a group.

    Without --follow it ends at the stream's present tail. A JSON line has scope, stream, segment, offset,
    number, key, timestamp, event_time, headers, and payload, or payload_base64 when it is not UTF-8.

    With --group the group's other readers do not get what is printed here: an event is finished once it is printed,
    and is not read again. Use --max to take some: what a pipe had in it when its reader left was printed.
    """
    if follow and output == "json":
        raise click.UsageError("--follow has no end, which a JSON array needs: use --output jsonl")
    event_max = event_max or ENDLESS
    if group is not None:
        if name is not None or place is not None or segments:
            raise click.UsageError(
                "a group says what is read, and where from: --group is all there is to say"
            )
        wanted_of_group = WantedOfGroup(group, reader, event_max, follow, output)
        session.run(settings, partial(read_group, settings=settings, wanted=wanted_of_group))
        return
    if name is None or reader is not None:
        raise click.UsageError(
            "say what to read: SCOPE/STREAM, or --group SCOPE/GROUP, perhaps as --reader ID"
        )
    chosen = parse_segments(segments) if segments else None
    wanted = Wanted(name, place or "head", event_max, follow, chosen, output)
    session.run(settings, partial(_read, settings=settings, wanted=wanted))


async def _read(ep: Eventproc, *, settings: Settings, wanted: Wanted) -> None:
    stream = await ep.stream(wanted.name)
    start = parse_place(wanted.place, wanted.name, stream.stream_id)
    until = None if wanted.follow else await stream.tail()
    # A bar beside events on the same terminal would only be in their way.
    quiet = settings.quiet or wanted.follow or sys.stdout.isatty()
    bar = Settings()
    bar.quiet = quiet
    total = None if quiet or start != "head" else (await stream.describe()).events
    printed = 0
    printer = Printer(wanted.output)
    with progress(bar, f"reading {wanted.name}", total) as advance:
        async with (
            stream.reader(start, segments=wanted.segments) as reader,
            aclosing(reader.batches(until=until)) as batches,
        ):
            async for batch in batches:
                events = islice(batch, wanted.event_max - printed)
                printed += printer.print(wanted.name, events)
                advance(printed, f"{printed:,} read")
                if printed >= wanted.event_max:
                    break
        printer.close()
