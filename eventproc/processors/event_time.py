"""What windows and joins have in common: a processor with a state by key and a timer, and what becomes of late events.

See docs/design/event-time.md.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, Final, Generic, TypeVar, cast

import attrs

from eventproc.processors.context import Context
from eventproc.processors.declarations import Processor, ProcessorOptions, WindowOptions, processor
from eventproc.processors.errors import EventLate
from eventproc.processors.handler import is_async, plain_result
from eventproc.processors.key_state import KeyState
from eventproc.processors.signatures import positional_parameters
from eventproc.processors.timers import Timer
from eventproc.store.model.argument_checks import check_instance, invalid_argument
from eventproc.store.model.names import StreamName
from eventproc.store.segments import Event
from eventproc.streams.codec import PayloadCodec, codec_for

S = TypeVar("S")

LATE: Final = "dead_letter"
"""Default of what becomes of a late event."""


@attrs.frozen(kw_only=True)
class EventTimeProcessor(ABC, Generic[S]):
    """The functions of a processor over event time, whose state by key is an `S`.

    function: the user's handler; it gets a context if `takes_context`.
    on_end: called with each value whose time is over, and a context; None: nothing is called.
    state: how the `S` of a key is kept.
    late: "dead_letter", "skip", or the name of a stream.
    codec: converts payloads.
    """

    name: str
    function: Callable[..., Any]
    takes_context: bool
    on_end: Callable[[Any, Context], object] | None
    state: KeyState[S]
    late: str
    codec: PayloadCodec[Any]

    @abstractmethod
    def _calls(self, event: Event[Any], state: S, context: Context) -> Iterator[tuple[Any, ...]]:
        """Yield the arguments of each call of the handler for an event; set the timer of its key."""

    @abstractmethod
    def _ended(self, key: str, state: S, context: Context) -> Iterator[Any]:
        """Yield the values of a key whose time is over, and forget them; set its next timer."""

    @abstractmethod
    def _next_end(self, state: S) -> int | None:
        """Return the event time at which the first value of a key is over; None: it never comes so far."""

    def _set_timer(self, state: S, context: Context) -> None:
        """Let the key be called when its next value is over; without any, it has no state."""
        if state:
            context.call_at(self._next_end(state))
        else:
            context.forget_state()

    def _returned(self, state: S, given: tuple[Any, ...], returned: object) -> None:
        """Keep what a call of the handler with these arguments returned."""

    def as_processor(self, stream: str, options: WindowOptions[Any]) -> Processor:
        """Check the other options, and return the processor that calls these functions. Raises InvalidArgument."""
        if self.on_end is not None and options.get("on_failure") == "skip":
            what = getattr(self.on_end, "__name__", repr(self.on_end))
            reason = f"what waits for {what} would stay for ever if it were skipped: catch its errors in it"
            raise invalid_argument("on_failure", "skip", reason)
        chosen = cast("ProcessorOptions[Any]", {**options, "name": self.name, "state": self.state})
        on_thread = not is_async(self.function)
        chosen["on_timer"] = self._end_on_thread if on_thread else self._end
        handler = self._handle_on_thread if on_thread else self._handle
        return processor(handler, (stream,), batch=None, **chosen)

    async def _handle(self, event: Event[Any], state: S, context: Context) -> None:
        for given in self._calls(event, state, context):
            result = self.function(*given, *((context,) if self.takes_context else ()))
            self._returned(state, given, await result)

    def _handle_on_thread(self, event: Event[Any], state: S, context: Context) -> None:
        for given in self._calls(event, state, context):
            result = self.function(*given, *((context,) if self.takes_context else ()))
            self._returned(state, given, plain_result(result, "the handler"))

    async def _end(self, timer: Timer, state: S, context: Context) -> None:
        for each in self._ended(timer.key, state, context):
            if self.on_end is not None:
                result = self.on_end(each, context)
                if inspect.isawaitable(result):
                    await result

    def _end_on_thread(self, timer: Timer, state: S, context: Context) -> None:
        for each in self._ended(timer.key, state, context):
            if self.on_end is not None:
                plain_result(self.on_end(each, context), "on_close or on_single")

    def _pass_late(self, event: Event[Any], context: Context) -> None:
        """Do with a late event what `late` says. Raises EventLate."""
        if self.late == LATE:
            raise EventLate(processor=self.name, time=time_of(event), watermark=context.watermark or 0)
        if self.late != "skip":
            context.emit(
                self.late,
                event.payload,
                codec=self.codec,
                key=event.key,
                event_time=event.event_time,
                headers=event.headers,
            )


def time_of(event: Event[Any]) -> int:
    """Return the event time of an event; one without has its timestamp."""
    return event.timestamp if event.event_time is None else event.event_time


def check_late(late: object, stream: str) -> str:
    """Return what becomes of a late event of a stream. Raises InvalidArgument."""
    late = check_instance(str, "late", late, "it must be 'dead_letter', 'skip', or a stream")
    if late not in (LATE, "skip") and StreamName.parse(late) == StreamName.parse(stream):
        raise invalid_argument("late", late, "its events would be late again; give another stream")
    return late


def check_on_end(what: str, function: object, target: object, name: str, kind: type) -> None:
    """Raise InvalidArgument unless a function takes an object of a class and a Context, and runs as `target` does.

    what: the option that names it. target: the handler of the processor `name`.
    """
    gets = f"a {kind.__name__} and a Context"
    if not callable(function) or inspect.isclass(function):
        raise invalid_argument(what, function, f"it must be a function of {gets}")
    if is_async(function) and not is_async(target):
        raise invalid_argument(what, name, "it must be plain, as the handler is: both run on threads")
    needed = positional_parameters(function)
    if needed is not None and len(needed) != 2:
        raise invalid_argument(what, name, f"it must take {gets}")


def name_of(target: object, options: WindowOptions[Any]) -> str:
    """Return the name of the processor of a handler."""
    return options.get("name") or str(getattr(target, "__name__", repr(target)))


def payload_of(options: WindowOptions[Any]) -> tuple[type[Any] | None, PayloadCodec[Any]]:
    """Return the type of the payloads, None if only their codec knows it; and their codec. Raises InvalidArgument."""
    payload, codec = options.get("payload", bytes), options.get("codec")
    return payload if codec is None or payload is not bytes else None, codec_for(payload, codec)
