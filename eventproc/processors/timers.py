"""Timers by event time: what `on_timer` gets, and the event that stands for it in the queue of its key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import attrs

from eventproc.store.model.short_repr import short_repr_of_fields
from eventproc.store.segments import Event


@attrs.frozen
class Timer:
    """A timer that is due, as `on_timer` gets it.

    Attributes:
        key: The routing key for which it was set.
        time: The event time for which it was set, in ms since 1970.
        watermark: How far event time has come, in ms since 1970: `time` or later.
    """

    __repr__ = short_repr_of_fields

    key: str
    time: int
    watermark: int


class TimerEvent(Event[bytes]):
    """A timer that is due, in place of an event. It is in no segment.

    event_time: the timer's. timestamp: the watermark. number: that of the last event that changed the state of the key.
    """

    __slots__ = ()

    @property
    def timer(self) -> Timer:
        """What the user gets."""
        assert self.key is not None, "a timer has a key"
        assert self.event_time is not None, "a timer has a time"
        return Timer(self.key, self.event_time, self.timestamp)


OnTimer: TypeAlias = Callable[..., object]
"""Takes a `Timer`, the state of its key, and a `Context`; may return another state, as the handler may."""


def calling_with_timer(function: OnTimer) -> Callable[..., object]:
    """Return a function that takes the timer as an event."""

    def call(event: TimerEvent, state: Any, context: Any) -> object:
        return function(event.timer, state, context)

    return call
