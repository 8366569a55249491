"""A dead letter as a value: the original event, where it came from, and why it was given up; and its headers.

Pure. The headers are for other programs too, so they are text: numbers in decimal, times in ms since 1970.
Their names are this project's own; an original that has one of them loses it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from eventproc.processors.errors import ERROR_CHARS_MAX, error_text, type_name
from eventproc.store.model.ids import format_segment
from eventproc.store.segments import Event

STREAM: Final = "ep-stream"
SEGMENT: Final = "ep-segment"
OFFSET: Final = "ep-offset"
NUMBER: Final = "ep-number"
TIMESTAMP: Final = "ep-timestamp"
ERROR: Final = "ep-error"
ERROR_TYPE: Final = "ep-error-type"
ATTEMPTS: Final = "ep-attempts"
PROCESSOR: Final = "ep-processor"
FAILED_AT: Final = "ep-failed-at"
REDRIVEN: Final = "ep-redriven"

ORIGIN: Final = (STREAM, SEGMENT, OFFSET, NUMBER, TIMESTAMP)
"""Where the original lay; these stay with it when it is redriven."""

HEADERS: Final = frozenset((*ORIGIN, ERROR, ERROR_TYPE, ATTEMPTS, PROCESSOR, FAILED_AT, REDRIVEN))


@attrs.frozen
class FailedEvent:
    """An event that a processor gives up. stream: where the event was read. failed_ms: wall clock."""

    stream: str
    event: Event
    error: str
    error_type: str
    attempts: int
    processor: str
    failed_ms: int

    @classmethod
    def of(
        cls, stream: str, event: Event, why: BaseException, *, attempts: int, processor: str, failed_ms: int
    ) -> FailedEvent:
        """Return the letter of an event whose last attempt raised `why`, whatever that is."""
        name = type_name(type(why))
        return cls(stream, event, error_text(why), name, attempts, processor, failed_ms)


@attrs.frozen(kw_only=True)
class DeadLetter:
    """A pending dead letter as it is read.

    id: names it within its group. stream: where it lies; timestamp: since when, ms. payload, key, event_time,
    headers: the original's. origin_*: where the original lay, and when it had been appended, ms. redriven: how
    often it was redriven before. What no processor wrote is None: anybody may append to the stream.
    """

    id: str
    stream: str
    timestamp: int
    payload: bytes
    key: str | None
    event_time: int | None
    headers: Mapping[str, str]
    origin_stream: str | None
    origin_segment: str | None
    origin_offset: int | None
    origin_number: int | None
    origin_timestamp: int | None
    error: str | None
    error_type: str | None
    attempts: int | None
    processor: str | None
    failed_ms: int | None
    redriven: int


def letter_headers(letter: FailedEvent, *, came_back: bool) -> dict[str, str]:
    """Return the headers of a letter, beside those of the original.

    came_back: the event was redriven, and its headers say where the original lay; another one's are not believed.
    """
    event, known = letter.event, letter.event.headers
    headers = _others(known)
    if came_back and STREAM in known:
        headers |= {name: known[name] for name in ORIGIN if name in known}
    else:
        headers |= {
            STREAM: letter.stream,
            SEGMENT: format_segment(event.segment),
            OFFSET: str(event.offset),
            NUMBER: str(event.number),
            TIMESTAMP: str(event.timestamp),
        }
    if came_back:
        headers[REDRIVEN] = str(_int(known, REDRIVEN) or 0)
    return headers | {
        ERROR: _storable(letter.error),
        ERROR_TYPE: _storable(letter.error_type),
        ATTEMPTS: str(letter.attempts),
        PROCESSOR: _storable(letter.processor),
        FAILED_AT: str(letter.failed_ms),
    }


def redriven_headers(event: Event) -> dict[str, str]:
    """Return the headers of the letter `event` on its way back: the original's, its origin, and which turn this is."""
    known = event.headers
    origin = {name: known[name] for name in ORIGIN if name in known}
    return _others(known) | origin | {REDRIVEN: str((_int(known, REDRIVEN) or 0) + 1)}


def read_letter(identifier: str, stream: str, event: Event) -> DeadLetter:
    """Return the letter that an event of a dead-letter stream is. Any event is one."""
    known = event.headers
    return DeadLetter(
        id=identifier,
        stream=stream,
        timestamp=event.timestamp,
        payload=event.payload,
        key=event.key,
        event_time=event.event_time,
        headers=_others(known),
        origin_stream=known.get(STREAM),
        origin_segment=known.get(SEGMENT),
        origin_offset=_int(known, OFFSET),
        origin_number=_int(known, NUMBER),
        origin_timestamp=_int(known, TIMESTAMP),
        error=known.get(ERROR),
        error_type=known.get(ERROR_TYPE),
        attempts=_int(known, ATTEMPTS),
        processor=known.get(PROCESSOR),
        failed_ms=_int(known, FAILED_AT),
        redriven=_int(known, REDRIVEN) or 0,
    )


def _others(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name not in HEADERS}


def _int(headers: Mapping[str, str], name: str) -> int | None:
    """Return a header as a number, None when it is none: anybody may have written it."""
    try:
        return int(headers[name])
    except (KeyError, ValueError):
        return None


def _storable(text: str) -> str:
    """Return text that a header can hold: cut, and without halves of surrogate pairs, which no encoding has."""
    shown = text[: ERROR_CHARS_MAX + 1].encode("utf-8", "backslashreplace").decode()
    return shown if len(shown) <= ERROR_CHARS_MAX else f"{shown[: ERROR_CHARS_MAX - 1]}…"
