"""An event to be written, and what its size, key, event time and headers may be, the same for every writer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final, Generic, TypeAlias, TypedDict, TypeVar, cast

import attrs

from eventproc.store.model.argument_checks import check_int, check_iterable, check_str, invalid_argument
from eventproc.store.model.errors import InvalidArgument
from eventproc.store.model.limits import (
    EVENT_BYTES_MAX,
    HEADER_NAME_CHARS_MAX,
    HEADERS_BYTES_MAX,
    HEADERS_COUNT_MAX,
    ID_CHARS_MAX,
    PRIORITY_MAX,
)
from eventproc.store.model.policies import check_ttl
from eventproc.store.model.routing import check_key, key_text
from eventproc.store.model.short_repr import short_repr_of_fields
from eventproc.store.segments import (
    ID_HEADER,
    JOB_GROUP_HEADER,
    JOB_HEADER,
    PRIORITY_HEADER,
    RESERVED_NAMES,
    TTL_HEADER,
    ReservedHeaders,
)

P = TypeVar("P")

SEQUENCE_MAX: Final = 2**62
"""Highest sequence that a caller may choose: the writer's own count continues from it and never exceeds 64 bits."""

_EVENTS: str = "it must be an iterable of NewEvents, or of pairs (payload, key)"


def as_key(key: str | bytes | None) -> str | None:
    """Return the text of a key that a caller passed, None for None. Anything else is refused when the key is used."""
    return key_text(key) if isinstance(key, bytes) else key


class EventOptions(TypedDict, total=False):
    """What an event may have that a transaction or a handler writes; the fields of `NewEvent`."""

    key: str | bytes | None
    event_time: int | None
    headers: Mapping[str, str] | None


class WriteOptions(EventOptions, total=False):
    """What an event may have that a writer writes; the fields of `NewEvent`."""

    partition: int | None
    ttl_ms: int | None
    priority: int


class EmitOptions(EventOptions, total=False):
    """What an event may have that a handler emits; the fields of `NewEvent`."""

    id: str | None
    priority: int
    delay_ms: int | None
    at: datetime | int | None


@attrs.frozen
class NewEvent(Generic[P]):
    """An event to be written, for `write_many`.

    key: routing key, a text or bytes; kept as its text, see `Event.key_bytes`. None (default): any segment.
    partition: number of the topic's partition that takes it. None (default): the topic's strategy chooses.
    ttl_ms: how long groups deliver it after it was appended, in ms. None (default): as its topic says.
    delay_ms, at: when it is appended: so many ms later, or at a time with its zone or in ms since 1970. None (default):
    now.
    id: of the events of the stream with the same id, only the first one is appended; for how long, the stream says.
    priority: 0 (default) to 9; share groups deliver higher ones first.
    """

    __repr__ = short_repr_of_fields

    payload: P
    key: str | None = attrs.field(default=None, converter=as_key)
    event_time: int | None = None
    headers: Mapping[str, str] | None = None
    partition: int | None = None
    ttl_ms: int | None = None
    delay_ms: int | None = None
    at: datetime | int | None = None
    id: str | None = None
    priority: int = 0

    @property
    def is_delayed(self) -> bool:
        """Whether it has a delay or a time."""
        return self.delay_ms is not None or self.at is not None

    @property
    def stored_headers(self) -> Mapping[str, str] | None:
        """The headers as they are stored: with the time to live, the id and the priority. Raises InvalidArgument."""
        return reserving(self.headers, ttl_ms=self.ttl_ms, id=self.id, priority=self.priority)


EventOrPair: TypeAlias = NewEvent[P] | tuple[P, str | bytes | None]
"""An event as `write_many` takes it; a pair is of payload and key."""


def check_events(events: Iterable[EventOrPair[P]]) -> None:
    """Raise InvalidArgument unless `events` is an iterable; its elements are checked later, one by one."""
    check_iterable("events", events, _EVENTS)


def as_new_event(event: EventOrPair[P]) -> NewEvent[P]:
    """Return the event, which may be given as a pair of payload and key. Raises InvalidArgument."""
    if isinstance(event, NewEvent):
        return event
    if isinstance(cast("object", event), tuple) and len(event) == 2:
        return NewEvent(*event)
    raise invalid_argument("event", event, "it must be a NewEvent, or a pair (payload, key)")


def as_immediate_event(event: EventOrPair[P]) -> NewEvent[P]:
    """Return an event of a transaction as `as_new_event` does. Raises InvalidArgument for one with a delay or an id."""
    new = as_new_event(event)
    if new.is_delayed:
        raise invalid_argument("event", new, "a transaction has no delayed events; write it after the commit")
    if new.id is not None:
        raise invalid_argument("event", new, "events of a transaction have no id; write it with a writer")
    return new


def checked_event(
    data: bytes, key: str | bytes | None, event_time: int | None, headers: Mapping[str, str] | None
) -> tuple[bytes, str | None, int | None, Mapping[str, str] | None]:
    """Return the parts of an encoded event, with the key's text and a copy of the headers. Raises InvalidArgument."""
    check_size(data)
    text = None if key is None else check_key(key)
    if event_time is not None:
        check_event_time(event_time)
    return data, text, event_time, None if headers is None else check_headers(headers) or None


def check_sequence(writer: str | None, sequence: int) -> None:
    """Raise InvalidArgument for a number that cannot be a sequence, or if the writer has no name."""
    if writer is None:
        reason = "only a writer with a name has sequences"
        raise InvalidArgument(what="sequence", value=str(sequence), reason=reason)
    if type(sequence) is not int or not 1 <= sequence <= SEQUENCE_MAX:
        reason = f"it must be an int of 1 to {SEQUENCE_MAX}"
        raise InvalidArgument(what="sequence", value=str(sequence), reason=reason)


def check_size(payload: bytes) -> None:
    """Raise InvalidArgument for a payload of more than EVENT_BYTES_MAX."""
    if len(payload) > EVENT_BYTES_MAX:
        reason = f"an event has at most {EVENT_BYTES_MAX}"
        raise InvalidArgument(what="event", value=f"{len(payload)} bytes", reason=reason)


def check_event_time(event_time: int) -> None:
    """Raise InvalidArgument unless `event_time` is an int of 64 bits."""
    if type(event_time) is not int or not -(2**63) < event_time < 2**63:
        reason = "it must be an int of milliseconds that fits 64 bits"
        raise InvalidArgument(what="event time", value=str(event_time), reason=reason)


def check_event_id(id: str) -> str:
    """Return the id of an event. Raises InvalidArgument."""
    if not 0 < len(check_str("id", id)) <= ID_CHARS_MAX or "\0" in id:
        raise invalid_argument("id", id, f"it must have 1 to {ID_CHARS_MAX} characters, and no NUL")
    return id


def reserving(
    headers: Mapping[str, str] | None,
    *,
    ttl_ms: int | None = None,
    id: str | None = None,
    priority: int = 0,
    job: tuple[str, str] | None = None,
) -> Mapping[str, str] | None:
    """Return the headers with the reserved ones that are given. job: a group and the id. Raises InvalidArgument."""
    if ttl_ms is None and id is None and priority == 0 and job is None:
        return headers
    with_them = ReservedHeaders({} if headers is None else check_headers(headers))
    if ttl_ms is not None:
        with_them[TTL_HEADER] = str(check_ttl(ttl_ms))
    if id is not None:
        with_them[ID_HEADER] = check_event_id(id)
    if check_int("priority", priority, least=0, most=PRIORITY_MAX):
        with_them[PRIORITY_HEADER] = str(priority)
    if job is not None:
        with_them[JOB_GROUP_HEADER], with_them[JOB_HEADER] = job
    return with_them


def headers_by_codec(headers: Mapping[str, str] | None, ttl_ms: int | None) -> Mapping[str, str] | None:
    """Return the headers with the time to live of the event's codec, if there is one and the event has none itself."""
    if ttl_ms is None or (isinstance(headers, ReservedHeaders) and TTL_HEADER in headers):
        return headers
    return reserving(headers, ttl_ms=ttl_ms)


def check_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return a copy of the headers, which later changes by the caller do not affect. Raises InvalidArgument."""
    if not isinstance(cast("object", headers), Mapping):
        reason = "headers must be a mapping of str to str"
        raise InvalidArgument(what="headers", value=type(headers).__name__, reason=reason)
    copied: dict[str, str] = (
        ReservedHeaders(headers) if isinstance(headers, ReservedHeaders) else dict(headers)
    )
    if not (RESERVED_NAMES.keys().isdisjoint(copied) or isinstance(headers, ReservedHeaders)):
        reserved = next(each for each in RESERVED_NAMES if each in copied)
        reason = f"the name is reserved; pass {RESERVED_NAMES[reserved]}"
        raise InvalidArgument(what="header name", value=reserved, reason=reason)
    if len(copied) > HEADERS_COUNT_MAX:
        raise InvalidArgument(what="headers", value=str(len(copied)), reason=f"at most {HEADERS_COUNT_MAX}")
    size_bytes = 0
    for name, value in cast("dict[object, object]", copied).items():
        if not isinstance(name, str) or not isinstance(value, str):
            reason = "name and value must be str"
            raise InvalidArgument(what="header", value=f"{name!r}: {value!r}", reason=reason)
        if len(name) > HEADER_NAME_CHARS_MAX:
            reason = f"at most {HEADER_NAME_CHARS_MAX} characters"
            raise InvalidArgument(what="header name", value=f"{name[:40]}…", reason=reason)
        try:
            size_bytes += len(name.encode()) + len(value.encode())
        except UnicodeEncodeError:
            shown = f"{name}: {value}".encode("ascii", "backslashreplace").decode("ascii")
            reason = "it contains half of a surrogate pair, which no text does"
            raise InvalidArgument(what="header", value=shown[:80], reason=reason) from None
    if size_bytes > HEADERS_BYTES_MAX:
        raise InvalidArgument(
            what="headers", value=f"{size_bytes} bytes", reason=f"at most {HEADERS_BYTES_MAX}"
        )
    return copied
