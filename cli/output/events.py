"""Print events in one of three forms: one JSON object per line, one JSON array, or one line of text per event."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING, Final

import attrs

from eventproc import Event, SegmentId
from eventproc.cli.output.tables import iso_time, printable

if TYPE_CHECKING:
    from eventproc.cli.output.tables import Row
    from eventproc.describe import DelayedEvent, JobDescription

EVENTS_MAX: Final = 1000
"""Events printed in one write. A batch of small events is hundreds of times larger as text than as stored bytes."""


def payload_field(payload: bytes, text: str = "payload", other: str = "payload_base64") -> dict[str, str]:
    """Return the field that shows a payload: its text, or base64 if it is not UTF-8. text, other: their names."""
    try:
        return {text: payload.decode()}
    except UnicodeDecodeError:
        return {other: base64.b64encode(payload).decode()}


def row_of(found: DelayedEvent[bytes] | JobDescription, *, whole: bool) -> Row:
    """Return the row of an event that is more than its payload: with the size of that; if `whole`, with it."""
    row = {**attrs.asdict(found, filter=attrs.filters.exclude("payload")), "bytes": len(found.payload)}
    return {**row, **payload_field(found.payload)} if whole else row


class EventPrinter:
    """Prints events in batches. When `print` returns, the operating system has the text."""

    def __init__(self, output: str, *, name_streams: bool = False) -> None:
        """name_streams: whether each line for people names the event's stream. JSON always does."""
        self._output = output
        self._name_streams = name_streams
        self._first = True
        self._segments: dict[SegmentId, str] = {}
        self._encode = json.JSONEncoder(ensure_ascii=False).encode

    def print(self, events: Iterable[Event]) -> int:
        """Print events, and return their number."""
        rest, count = iter(events), 0
        while found := self._print_some(islice(rest, EVENTS_MAX)):
            count += found
        return count

    def _print_some(self, events: Iterable[Event]) -> int:
        form = self._line_for_people if self._output == "table" else self._object
        lines = [form(event) for event in events]
        if self._output == "json" and lines:
            # One array over all batches; `close` makes it valid.
            put_text(("[\n" if self._first else ",\n") + ",\n".join(lines))
        elif lines:
            put_text("\n".join(lines) + "\n")
        self._first = self._first and not lines
        return len(lines)

    def close(self) -> None:
        """Close the JSON array."""
        if self._output == "json":
            put_text("[]\n" if self._first else "\n]\n")

    def _object(self, event: Event) -> str:
        segment = self._segments.get(event.segment)
        if segment is None:
            segment = self._segments[event.segment] = str(event.segment)
        scope, _, name = event.stream.partition("/")
        row = {
            "scope": scope,
            "stream": name,
            "segment": segment,
            "offset": event.offset,
            "number": event.number,
            "key": event.key,
            "timestamp": event.timestamp,
            "event_time": event.event_time,
            "headers": dict(event.headers),
        }
        if event.id is not None:
            row["id"] = event.id
        return self._encode({**row, **payload_field(event.payload)})

    def _line_for_people(self, event: Event) -> str:
        """Return one line; control characters are escaped."""
        try:
            payload = event.payload.decode()
        except UnicodeDecodeError:
            payload = f"base64:{base64.b64encode(event.payload).decode()}"
        key = "-" if event.key is None else event.key
        where = f"{event.segment}@{event.offset}"
        if self._name_streams:
            where = f"{event.stream} {where}"
        cells = [iso_time(event.timestamp), where, key, payload]
        return "  ".join(map(printable, cells))


def put_text(text: str) -> None:
    """Print a text. When it returns, the operating system has it."""
    # Bytes, independent of the locale. A lone surrogate in a header becomes its JSON escape.
    stdout, rest = sys.stdout.buffer, memoryview(text.encode("utf-8", "backslashreplace"))
    while rest:  # an unbuffered stream (PYTHONUNBUFFERED) may take a part only
        rest = rest[stdout.write(rest) :]
    stdout.flush()
