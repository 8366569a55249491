"""Which events of a key are partners, which are late, and how long one is kept for others. Pure: no I/O, no clock.

Source: docs/design/event-time.md.
"""

from __future__ import annotations

from typing import NamedTuple

import attrs

from eventproc.store.model.argument_checks import check_int
from eventproc.store.model.limits import EVENT_TIME_MAX


@attrs.frozen
class JoinRule:
    """Which events are partners, and how long one waits.

    within_ms: partners are at most so far apart. grace_ms: an event may come so far behind the watermark.
    Raises InvalidArgument: a value is of the wrong type or out of range.
    """

    within_ms: int
    grace_ms: int

    def __attrs_post_init__(self) -> None:
        check_int("within_ms", self.within_ms, least=0, most=EVENT_TIME_MAX, unit="ms")
        check_int("grace_ms", self.grace_ms, least=0, most=EVENT_TIME_MAX, unit="ms")


@attrs.define
class KeptEvent:
    """An event that waits for partners.

    time: its event time, in ms. payload: a text for its bytes. has_partner: it had one, or more.
    """

    time: int
    payload: str
    has_partner: bool = False


@attrs.define
class KeptEvents:
    """The events of a key that wait for partners, by their side, in the order in which they came."""

    left: list[KeptEvent] = attrs.field(factory=list)
    right: list[KeptEvent] = attrs.field(factory=list)

    def __bool__(self) -> bool:
        """Whether any event waits."""
        return bool(self.left or self.right)


class ForgottenEvent(NamedTuple):
    """An event that waits no longer, and its side."""

    event: KeptEvent
    is_left: bool


def is_late(rule: JoinRule, time_ms: int, watermark_ms: int | None) -> bool:
    """Return whether an event comes too late: partners of it may be forgotten."""
    return watermark_ms is not None and time_ms + rule.grace_ms < watermark_ms


def forgotten_at(rule: JoinRule, time_ms: int) -> int:
    """Return the lowest watermark at which an event is forgotten: any partner of it that comes then is late."""
    return time_ms + rule.within_ms + rule.grace_ms + 1


def keep(rule: JoinRule, kept: KeptEvents, event: KeptEvent, *, is_left: bool) -> list[KeptEvent]:
    """Add an event, and return its partners, in the order in which they came. All of them have a partner then."""
    own, others = (kept.left, kept.right) if is_left else (kept.right, kept.left)
    own.append(event)
    partners = [each for each in others if abs(each.time - event.time) <= rule.within_ms]
    for each in partners:
        each.has_partner = event.has_partner = True
    return partners


def forget(
    rule: JoinRule, kept: KeptEvents, watermark_ms: int | None, *, joined_only: bool = False
) -> list[ForgottenEvent]:
    """Remove the events that no later one can join, and return them, those first that are earlier.

    joined_only: those without a partner stay.
    """
    if watermark_ms is None:
        return []

    def is_due(event: KeptEvent) -> bool:
        is_over = forgotten_at(rule, event.time) <= watermark_ms
        return is_over and (event.has_partner or not joined_only)

    found: list[ForgottenEvent] = []
    for events in (kept.left, kept.right):
        found += [ForgottenEvent(each, events is kept.left) for each in events if is_due(each)]
        events[:] = [each for each in events if not is_due(each)]
    return sorted(found, key=lambda each: each.event.time)


def next_forgotten(rule: JoinRule, kept: KeptEvents) -> int | None:
    """Return the watermark at which the first of the events is forgotten; None: event time never comes so far."""
    first = min((each.time for events in (kept.left, kept.right) for each in events), default=None)
    if first is None or forgotten_at(rule, first) > EVENT_TIME_MAX:
        return None
    return forgotten_at(rule, first)
