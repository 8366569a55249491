"""A dead letter as a value: the original event, its origin, why it was given up; and how headers express that.

Pure. Other programs may read the headers, so they are text: decimal numbers, times in ms since 1970. Their names are
reserved: an original that has one of them loses it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Generic, cast

import attrs
from typing_extensions import TypeVar

from eventproc.processors.errors import ERROR_CHARS_MAX, error_text, type_name
from eventproc.processors.tracebacks import user_traceback
from eventproc.store.model.ids import format_segment
from eventproc.store.model.short_repr import short_repr_of_fields
from eventproc.store.segments import (
    JOB_GROUP_HEADER,
    JOB_HEADER,
    PRIORITY_HEADER,
    Event,
    ReservedHeaders,
    job_of,
    reserved_headers,
    shown_headers,
)

T = TypeVar("T", default=bytes)

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
TRACEBACK: Final = "ep-traceback"

ORIGIN: Final = (STREAM, SEGMENT, OFFSET, NUMBER, TIMESTAMP)
"""Where the original is; these headers stay with it when it is redriven."""

HEADERS: Final = frozenset((*ORIGIN, ERROR, ERROR_TYPE, TRACEBACK, ATTEMPTS, PROCESSOR, FAILED_AT, REDRIVEN))


@attrs.frozen
class FailedEvent:
    """An event that a processor gives up.

    traceback: the frames of the user's code, see `user_traceback`.
    failed_ms: when its last attempt failed, wall clock.
    """

    event: Event
    error: str
    error_type: str
    traceback: str
    attempts: int
    processor: str
    failed_ms: int

    @classmethod
    def of(
        cls, event: Event, why: BaseException, *, attempts: int, processor: str, failed_ms: int
    ) -> FailedEvent:
        """Return the dead letter of an event whose last attempt raised `why`."""
        name, frames = type_name(type(why)), user_traceback(why)
        return cls(event, error_text(why), name, frames, attempts, processor, failed_ms)


@attrs.frozen(kw_only=True)
class DeadLetter(Generic[T]):
    """A pending dead letter. Fields that no processor wrote are None: any writer may append to the stream.

    Attributes:
        id: Its id within its group, such as "0.0:17".
        stream: The dead-letter stream that holds it.
        timestamp: When it was appended there, in ms since 1970.
        payload: Payload of the original, in bytes; `value` decodes it.
        key: Routing key of the original.
        event_time: Event time of the original.
        headers: Headers of the original.
        origin_stream: Stream of the original.
        origin_segment: Segment of the original, such as "0.0".
        origin_offset: Offset of the original in its segment.
        origin_number: Number of the original in its segment.
        origin_timestamp: When the original was appended, in ms since 1970.
        error: Text of the last error.
        error_type: Class of the last error.
        traceback: Traceback of the last error, with its causes and the errors of groups: the frames of the user's
            code. At most 8 KiB; the middle of a longer one is left out.
        attempts: How many calls failed.
        processor: The processor that gave it up.
        failed_ms: When the last call failed, in ms since 1970.
        redriven: How often it was redriven before.
        job: Id of the group's job that the original is; None for an event that nobody submitted to it as one.
    """

    __repr__ = short_repr_of_fields

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
    traceback: str | None
    attempts: int | None
    processor: str | None
    failed_ms: int | None
    redriven: int
    job: str | None = attrs.field(repr=False)  # a `repr` of so many fields is long
    _decode: Callable[[bytes], T] | None = attrs.field(default=None, alias="decode", eq=False, repr=False)

    @property
    def value(self) -> T:
        """The payload of the original as a value of the type that `dead_letters(payload=)` was called with.

        Raises InvalidArgument: it is none, which may be why nobody could handle it.
        """
        return cast("T", self.payload) if self._decode is None else self._decode(self.payload)


def letter_headers(letter: FailedEvent, *, came_back: bool) -> dict[str, str]:
    """Return the headers of a dead letter, including those of the original.

    came_back: the event was read in the redrive stream, so its headers name its origin. Other events' are not trusted.
    """
    event, known = letter.event, letter.event.headers
    headers = _kept(known)
    if came_back and STREAM in known:
        headers |= {name: known[name] for name in ORIGIN if name in known}
    else:
        headers |= {
            STREAM: event.stream,
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
        TRACEBACK: letter.traceback,
        ATTEMPTS: str(letter.attempts),
        PROCESSOR: _storable(letter.processor),
        FAILED_AT: str(letter.failed_ms),
    }


def redriven_headers(event: Event) -> dict[str, str]:
    """Return the headers for redriving the dead letter `event`: the original's, its origin, and the redrive count."""
    known = event.headers
    origin = {name: known[name] for name in ORIGIN if name in known}
    return _kept(known) | origin | {REDRIVEN: str((_int(known, REDRIVEN) or 0) + 1)}


def read_letter(
    group: str, identifier: str, stream: str, event: Event, decode: Callable[[bytes], T] | None = None
) -> DeadLetter[T]:
    """Return an event of a dead-letter stream as a dead letter of the group. Every event in it is one."""
    known = event.headers
    return DeadLetter(
        id=identifier,
        stream=stream,
        timestamp=event.timestamp,
        payload=event.payload,
        key=event.key,
        event_time=event.event_time,
        headers=shown_headers(ReservedHeaders(_kept(known))),
        origin_stream=known.get(STREAM),
        origin_segment=known.get(SEGMENT),
        origin_offset=_int(known, OFFSET),
        origin_number=_int(known, NUMBER),
        origin_timestamp=_int(known, TIMESTAMP),
        error=known.get(ERROR),
        error_type=known.get(ERROR_TYPE),
        traceback=known.get(TRACEBACK),
        attempts=_int(known, ATTEMPTS),
        processor=known.get(PROCESSOR),
        failed_ms=_int(known, FAILED_AT),
        redriven=_int(known, REDRIVEN) or 0,
        job=job_of(known, group),
        decode=decode,
    )


def _kept(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers that an event keeps as a dead letter and when it is redriven, its job and priority too."""
    reserved = reserved_headers(headers)
    return _others(headers) | {
        name: reserved[name] for name in (JOB_HEADER, JOB_GROUP_HEADER, PRIORITY_HEADER) if name in reserved
    }


def _others(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name not in HEADERS}


def _int(headers: Mapping[str, str], name: str) -> int | None:
    """Return a header as a number, None if it is not one: any writer may have written it."""
    try:
        return int(headers[name])
    except (KeyError, ValueError):
        return None


def _storable(text: str) -> str:
    """Return text that fits into a header: cut, and without lone surrogates, which UTF-8 cannot encode."""
    shown = text[: ERROR_CHARS_MAX + 1].encode("utf-8", "backslashreplace").decode()
    return shown if len(shown) <= ERROR_CHARS_MAX else f"{shown[: ERROR_CHARS_MAX - 1]}…"
