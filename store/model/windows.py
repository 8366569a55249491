"""Which windows an event belongs to, which are closed, and how sessions grow together. Pure: no I/O, no clock.

Source: docs/design/event-time.md.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias

import attrs

from eventproc.store.model.argument_checks import check_function, check_int
from eventproc.store.model.errors import InvalidArgument
from eventproc.store.model.limits import EVENT_TIME_MAX
from eventproc.store.model.short_repr import short_repr_of_fields

WINDOWS_MAX: Final = 1_000
"""Most windows that an event may belong to. Each is a part of the state of its key, which each event writes."""


SPANS_KNOWN_MAX: Final = 10_000
"""Texts of spans that are not parsed again: the windows of many keys are the same."""


class Span(NamedTuple):
    """The times of a window: from `begins` to before `ends`, in ms of event time."""

    begins: int
    ends: int

    @staticmethod
    @lru_cache(maxsize=SPANS_KNOWN_MAX)
    def parse(text: str) -> Span:
        """Return the span for a text such as "0/60000". Raises ValueError."""
        begins, _, ends = text.partition("/")
        return Span(int(begins), int(ends))

    def __str__(self) -> str:
        return f"{self.begins}/{self.ends}"

    def overlaps(self, other: Span) -> bool:
        """Return whether a time lies in both."""
        return self.begins < other.ends and other.begins < self.ends


@attrs.frozen
class Tumbling:
    """Windows of one size, one behind the other.

    Attributes:
        size_ms: The size of a window, in ms.
        grace_ms: How far event time goes on behind the end of a window before it closes, in ms. Default: 0.
        offset_ms: Where windows begin: at this event time, and each size before and behind it. Default: 0.

    Raises:
        InvalidArgument: A value is out of range.
    """

    __repr__ = short_repr_of_fields

    size_ms: int
    grace_ms: int = attrs.field(default=0, kw_only=True)
    offset_ms: int = attrs.field(default=0, kw_only=True)

    def __attrs_post_init__(self) -> None:
        check_int("size_ms", self.size_ms, least=1, most=EVENT_TIME_MAX, unit="ms")
        check_int("grace_ms", self.grace_ms, least=0, most=EVENT_TIME_MAX, unit="ms")
        check_int("offset_ms", self.offset_ms, least=-EVENT_TIME_MAX, most=EVENT_TIME_MAX, unit="ms")


@attrs.frozen
class Hopping:
    """Windows of one size that overlap: one begins every so often, and an event belongs to several.

    Attributes:
        size_ms: The size of a window, in ms.
        every_ms: From the beginning of one to that of the next, in ms.
        grace_ms: How far event time goes on behind the end of a window before it closes, in ms. Default: 0.
        offset_ms: A time at which a window begins, in ms. Default: 0.

    Raises:
        InvalidArgument: A value is out of range, or an event would belong to more than 1,000 windows.
    """

    __repr__ = short_repr_of_fields

    size_ms: int
    every_ms: int
    grace_ms: int = attrs.field(default=0, kw_only=True)
    offset_ms: int = attrs.field(default=0, kw_only=True)

    def __attrs_post_init__(self) -> None:
        check_int("size_ms", self.size_ms, least=1, most=EVENT_TIME_MAX, unit="ms")
        check_int("every_ms", self.every_ms, least=1, most=self.size_ms, unit="ms")
        check_int("grace_ms", self.grace_ms, least=0, most=EVENT_TIME_MAX, unit="ms")
        check_int("offset_ms", self.offset_ms, least=-EVENT_TIME_MAX, most=EVENT_TIME_MAX, unit="ms")
        if -(-self.size_ms // self.every_ms) > WINDOWS_MAX:
            reason = f"an event would belong to more than {WINDOWS_MAX} windows"
            raise InvalidArgument(what="every_ms", value=str(self.every_ms), reason=reason)


@attrs.frozen
class Sessions:
    """Windows of events that are near each other: one ends when nothing came for the gap.

    Attributes:
        gap_ms: A session ends so long after its last event, in ms. An event at its end begins another one.
        merge: Called with the values of two sessions, the earlier one first, which an event between them makes one;
            returns the value of that one.
        grace_ms: How far event time goes on behind the end of a session before it closes, in ms. Default: 0.

    Raises:
        InvalidArgument: A value is of the wrong type or out of range.
    """

    __repr__ = short_repr_of_fields

    gap_ms: int
    merge: Callable[[Any, Any], Any]
    grace_ms: int = attrs.field(default=0, kw_only=True)

    def __attrs_post_init__(self) -> None:
        check_int("gap_ms", self.gap_ms, least=1, most=EVENT_TIME_MAX, unit="ms")
        check_int("grace_ms", self.grace_ms, least=0, most=EVENT_TIME_MAX, unit="ms")
        check_function("merge", self.merge)


WindowKind: TypeAlias = Tumbling | Hopping | Sessions
"""How event time is divided into windows."""


class Placed(NamedTuple):
    """Where an event goes: into the window `span`, in place of the windows `joined`, the earliest first."""

    span: Span
    joined: Sequence[Span]


def spans_of(kind: WindowKind, time_ms: int) -> list[Span]:
    """Return the windows of an event, the earliest first. That of a session has no other event near it."""
    if isinstance(kind, Sessions):
        return [Span(time_ms, time_ms + kind.gap_ms)]
    size_ms = kind.size_ms
    every_ms = kind.every_ms if isinstance(kind, Hopping) else size_ms
    last = time_ms - (time_ms - kind.offset_ms) % every_ms
    first = last - (size_ms - 1 - (time_ms - last)) // every_ms * every_ms
    return [Span(begins, begins + size_ms) for begins in range(first, last + every_ms, every_ms)]


def place(kind: WindowKind, spans: Collection[Span], time_ms: int, watermark_ms: int | None) -> list[Placed]:
    """Return where an event goes, the earliest window first; nothing if it is late.

    spans: the windows of its key that have no result yet. It joins none that is due.
    """
    placed: list[Placed] = []
    for own in spans_of(kind, time_ms):
        span, joined = own, [own] if own in spans else []
        if isinstance(kind, Sessions):  # those that are open do not overlap each other, so one pass finds all
            joined = sorted(
                each for each in spans if each.overlaps(own) and not is_closed(kind, each, watermark_ms)
            )
            all_of = [own, *joined]
            span = Span(min(each.begins for each in all_of), max(each.ends for each in all_of))
        if not is_closed(kind, span, watermark_ms):
            placed.append(Placed(span, joined))
    return placed


def is_closed(kind: WindowKind, span: Span, watermark_ms: int | None) -> bool:
    """Return whether a window takes no further events: its result was made, or is due."""
    return watermark_ms is not None and closes_at(kind, span) <= watermark_ms


def closes_at(kind: WindowKind, span: Span) -> int:
    """Return the watermark at which a window closes. Behind the last time that an event may have, it is that one."""
    return min(span.ends + kind.grace_ms, EVENT_TIME_MAX)


def closed(kind: WindowKind, spans: Iterable[Span], watermark_ms: int | None) -> list[Span]:
    """Return the windows that are to be closed, those first that end first."""
    found = (each for each in spans if is_closed(kind, each, watermark_ms))
    return sorted(found, key=lambda each: (each.ends, each.begins))


def next_close(kind: WindowKind, spans: Iterable[Span]) -> int | None:
    """Return the watermark at which the first of these windows closes; None without any."""
    return min((closes_at(kind, each) for each in spans), default=None)
