"""`eventproc read`: the events of a stream."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable, Iterable
from contextlib import aclosing
from functools import partial
from itertools import islice
from typing import Final

import attrs
import click

from eventproc.cli import session
from eventproc.cli.places import parse_place, parse_segments
from eventproc.cli.progress import progress
from eventproc.cli.settings import Command, Settings, output_option, pass_settings, stream_argument
from eventproc.cli.show import iso_time
from eventproc.runtime import Eventproc
from eventproc.store.model.ids import SegmentId, format_segment
from eventproc.store.segments import Event

ENDLESS: Final = 2**63 - 1

LINES_MAX: Final = 1000
"""Events printed at once; a batch of small events is hundreds of times larger as text than as bytes."""


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
@stream_argument
@click.option(
    "--from",
    "place",
    default="head",
    show_default=True,
    metavar="PLACE",
    help="head, tail, a cut from `stream cut`, or a time (ISO 8601, or ms).",
)
@click.option("--max", "event_max", type=click.IntRange(min=1), metavar="N", help="Stop after N events.")
@click.option("--follow", is_flag=True, help="Wait for more, until the stream is sealed.")
@click.option(
    "--segment", "segments", multiple=True, metavar="ID", help="Only this segment; may be repeated."
)
@output_option(default="jsonl")
@pass_settings
def read(
    settings: Settings,
    name: str,
    place: str,
    event_max: int | None,
    follow: bool,
    segments: tuple[str, ...],
    output: str,
) -> None:
    """Print the events of a stream, those of a key in their order.

    Without --follow it ends at the stream's present tail. A JSON line has scope, stream, segment, offset,
    number, key, timestamp, event_time, headers, and payload, or payload_base64 when it is not UTF-8.
    """
    if follow and output == "json":
        raise click.UsageError("--follow has no end, which a JSON array needs: use --output jsonl")
    wanted = Wanted(
        name, place, event_max or ENDLESS, follow, parse_segments(segments) if segments else None, output
    )
    session.run(settings, partial(_read, settings=settings, wanted=wanted))


async def _read(ep: Eventproc, *, settings: Settings, wanted: Wanted) -> None:
    stream = await ep.stream(wanted.name)
    start = parse_place(wanted.place, wanted.name)
    until = None if wanted.follow else await stream.tail()
    # A bar beside events on the same terminal would only be in their way.
    quiet = settings.quiet or wanted.follow or sys.stdout.isatty()
    bar = Settings()
    bar.quiet = quiet
    total = None if quiet or start != "head" else (await stream.describe()).events
    printed = 0
    printer = _Printer(wanted.name, wanted.output)
    with progress(bar, f"reading {wanted.name}", total) as advance:
        async with (
            stream.reader(start, segments=wanted.segments) as reader,
            aclosing(reader.batches(until=until)) as batches,
        ):
            async for batch in batches:
                events = islice(batch, wanted.event_max - printed)
                printed += printer.print(events)
                advance(printed, f"{printed:,} read")
                if printed >= wanted.event_max:
                    break
        printer.close()


class _Printer:
    """Prints events in one of the three forms, a batch at a time."""

    def __init__(self, name: str, output: str) -> None:
        scope, _, stream = name.partition("/")
        self._names = {"scope": scope, "stream": stream}
        self._output = output
        self._first = True
        self._segments: dict[SegmentId, str] = {}
        self._form: Callable[[Event], str] = _line_for_people if output == "table" else self._object
        self._encode = json.JSONEncoder(ensure_ascii=False).encode

    def print(self, events: Iterable[Event]) -> int:
        """Print the events, and return their number."""
        rest, count = iter(events), 0
        while found := self._print_some(islice(rest, LINES_MAX)):
            count += found
        return count

    def _print_some(self, events: Iterable[Event]) -> int:
        lines = [self._form(event) for event in events]
        if self._output == "json" and lines:
            # One array over all batches, valid as soon as it is closed.
            _put(("[\n" if self._first else ",\n") + ",\n".join(lines))
        elif lines:
            _put("\n".join(lines) + "\n")
        self._first = self._first and not lines
        return len(lines)

    def close(self) -> None:
        """End what was begun."""
        if self._output == "json":
            _put("[]\n" if self._first else "\n]\n")

    def _object(self, event: Event) -> str:
        segment = self._segments.get(event.segment)
        if segment is None:
            segment = self._segments[event.segment] = format_segment(event.segment)
        row = {
            **self._names,
            "segment": segment,
            "offset": event.offset,
            "number": event.number,
            "key": event.key,
            "timestamp": event.timestamp,
            "event_time": event.event_time,
            "headers": dict(event.headers),
        }
        try:
            row["payload"] = event.payload.decode()
        except UnicodeDecodeError:
            row["payload_base64"] = base64.b64encode(event.payload).decode()
        return self._encode(row)


def _line_for_people(event: Event) -> str:
    """One line whatever is in the event: what a terminal would obey is escaped."""
    try:
        payload = event.payload.decode()
    except UnicodeDecodeError:
        payload = f"base64:{base64.b64encode(event.payload).decode()}"
    key = "-" if event.key is None else event.key
    cells = [iso_time(event.timestamp), f"{format_segment(event.segment)}@{event.offset}", key, payload]
    return "  ".join(cell if cell.isprintable() else repr(cell)[1:-1] for cell in cells)


def _put(text: str) -> None:
    # Bytes, whatever the locale; half of a surrogate pair, in a header, becomes its JSON escape.
    stdout, rest = sys.stdout.buffer, memoryview(text.encode("utf-8", "backslashreplace"))
    while rest:  # an unbuffered one (PYTHONUNBUFFERED) may take less than all
        rest = rest[stdout.write(rest) :]
    stdout.flush()
