"""When an event that was written with a delay becomes due, and what is known of it until then. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final, Generic, TypeVar, cast

import attrs

from eventproc.store.model.argument_checks import check_int, invalid_argument
from eventproc.store.model.short_repr import short_repr_of_fields

P = TypeVar("P")

DUE_MS_MAX: Final = 253_402_300_799_999
"""The last ms of the year 9999: times are shown as dates, which have four digits for the year."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@attrs.frozen
class Delay:
    """When an event is due: some time after the transaction that stores it, or at a time. One of them is None.

    after_ms: in ms. at_ms: wall clock, in ms since 1970.
    """

    after_ms: int | None = None
    at_ms: int | None = None

    @classmethod
    def make(cls, delay_ms: int | None, at: datetime | int | None) -> Delay | None:
        """Return the delay that the arguments of a call mean; None without them. Raises InvalidArgument.

        delay_ms: in ms. at: a time with its zone, or ms since 1970. A time that has passed means now.
        """
        if delay_ms is None:
            return None if at is None else cls(at_ms=as_due_ms(at))
        if at is not None:
            raise invalid_argument("at", at, "delay_ms says already when the event is due")
        return cls(after_ms=check_int("delay_ms", delay_ms, least=0, most=DUE_MS_MAX))

    def due_ms(self, now_ms: int) -> int:
        """Return when an event is due that is stored now, in ms since 1970."""
        if self.at_ms is not None:
            return self.at_ms
        return min(now_ms + (self.after_ms or 0), DUE_MS_MAX)


def as_due_ms(at: datetime | int) -> int:
    """Return a time in ms since 1970. Raises InvalidArgument for one without a zone, or outside 1970 to 9999."""
    if isinstance(cast("object", at), datetime):
        at = since_1970_ms("at", cast("datetime", at))
    return check_int("at", cast("int", at), least=0, most=DUE_MS_MAX)


def since_1970_ms(what: str, moment: datetime) -> int:
    """Return a time in ms since 1970; before, it is negative. Raises InvalidArgument for one without a zone."""
    if moment.utcoffset() is None:
        raise invalid_argument(what, moment, "it has no time zone; datetime.now(UTC) has one")
    return utc_ms(moment)


def utc_ms(moment: datetime) -> int:
    """Return a time in ms since 1970, which is UTC if it has no zone; before 1970 it is negative."""
    return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH) // timedelta(milliseconds=1)


@attrs.frozen(kw_only=True)
class DelayedEvent(Generic[P]):
    """An event that is durable, and is appended to its stream when it is due.

    Attributes:
        id: UUID version 7.
        stream: full name of its stream.
        due_ms: when it is appended, wall clock, in ms since 1970; None: never, for the reason in `failure`.
        payload: of the event.
        key: its routing key; None without one.
        event_time: the user's time, in ms; None without one.
        headers: names and texts beside the payload.
        partition: number of the topic's partition that takes it; None: the topic's strategy chooses then.
        failure: why it could not be appended; None while it waits.
    """

    __repr__ = short_repr_of_fields

    id: str
    stream: str
    due_ms: int | None
    payload: P
    key: str | None = None
    event_time: int | None = None
    headers: Mapping[str, str] = attrs.field(factory=dict)
    partition: int | None = None
    failure: str | None = None
