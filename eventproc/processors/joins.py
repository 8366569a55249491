"""The processor of joins: a state by key, whose value is the events of the key that wait for partners, and a timer.

See docs/design/event-time.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeAlias

import attrs
from typing_extensions import Unpack

from eventproc.processors.context import Context
from eventproc.processors.declarations import Processor, WindowOptions, check_options
from eventproc.processors.event_time import (
    EventTimeProcessor,
    check_late,
    check_on_end,
    name_of,
    payload_of,
    time_of,
)
from eventproc.processors.handler import check_handler
from eventproc.processors.key_state import KeyState
from eventproc.processors.signatures import EventArgument, check_event_annotation, positional_parameters
from eventproc.store.model.argument_checks import check_function, invalid_argument
from eventproc.store.model.joins import (
    JoinRule,
    KeptEvent,
    KeptEvents,
    forget,
    is_late,
    keep,
    next_forgotten,
)
from eventproc.store.model.routing import key_bytes, key_text
from eventproc.store.model.short_repr import short_repr_of_fields
from eventproc.store.segments import Event
from eventproc.streams.codec import P


@attrs.frozen
class Pair(Generic[P]):
    """A left and a right event of a key that are near each other.

    Attributes:
        key: Their routing key.
        left: The payload of the left one.
        right: The payload of the right one.
        left_time: The event time of the left one, in ms since 1970.
        right_time: The event time of the right one, in ms since 1970.
    """

    __repr__ = short_repr_of_fields

    key: str
    left: P
    right: P
    left_time: int
    right_time: int


@attrs.frozen
class Single(Generic[P]):
    """An event that had no partner, and gets none any more.

    Attributes:
        key: Its routing key.
        payload: Its payload.
        time: Its event time, in ms since 1970.
        is_left: Whether it is a left one.
    """

    __repr__ = short_repr_of_fields

    key: str
    payload: P
    time: int
    is_left: bool


IsLeft: TypeAlias = Callable[[Event[P]], object]
"""Returns whether an event is a left one. Called for each event that is not late, again if its call is repeated."""

OnSingle: TypeAlias = Callable[[Single[P], Context], object]
"""Called with an event that had no partner, and a context. What it emits is appended in the transaction that forgets
the event."""


@attrs.frozen(kw_only=True)
class JoinProcessor(EventTimeProcessor[KeptEvents]):
    """The functions of a processor whose handler takes pairs. The state of a key is its events that wait.

    Their payloads are kept encoded, as texts, so that each call gets objects of its own.
    """

    rule: JoinRule
    is_left: IsLeft[Any]

    def _calls(self, event: Event[Any], state: KeptEvents, context: Context) -> Iterator[tuple[Pair[Any]]]:
        """Yield the pairs of an event with those that came before it. Raises EventLate."""
        assert event.key is not None, "an event without a key is refused"
        time, watermark = time_of(event), context.watermark  # which may rise while this runs on a thread
        if is_late(self.rule, time, watermark):
            self._pass_late(event, context)
        else:
            # The timer of the key waits behind its events: a backlog of them would pile up in its state.
            forget(self.rule, state, watermark, joined_only=self.on_end is not None)
            is_left = bool(self.is_left(event))
            own = KeptEvent(time, key_text(self.codec.encode(event.payload)))
            for each in keep(self.rule, state, own, is_left=is_left):
                left, right = (own, each) if is_left else (each, own)
                payloads = self._payload_of(left), self._payload_of(right)
                yield (Pair(event.key, *payloads, left.time, right.time),)
        self._set_timer(state, context)

    def _ended(self, key: str, state: KeptEvents, context: Context) -> Iterator[Single[Any]]:
        """Yield the events that had no partner, of those that wait no longer."""
        for event, is_left in forget(self.rule, state, context.watermark):
            if not event.has_partner:
                yield Single(key, self._payload_of(event), event.time, is_left)
        self._set_timer(state, context)

    def _payload_of(self, event: KeptEvent) -> Any:
        return self.codec.decode(key_bytes(event.payload))

    def _next_end(self, state: KeptEvents) -> int | None:
        return next_forgotten(self.rule, state)


def join_processor(
    target: object,
    stream: str,
    *,
    is_left: IsLeft[Any],
    within_ms: int,
    grace_ms: int | None,
    on_single: OnSingle[Any] | None,
    late: str,
    **options: Unpack[WindowOptions[Any]],
) -> Processor:
    """Check the arguments of `App.join`, and return the processor that it declares. Raises InvalidArgument."""
    check_options("join", options, WindowOptions.__optional_keys__)
    name = name_of(target, options)
    if isinstance(target, type) or not callable(target):
        raise invalid_argument("join", name, "it must be a function of a Pair")
    payload, codec = payload_of(options)
    check_handler(target, name, EventArgument(payload, is_list=False, kind=Pair))
    _check_is_left(is_left, name, EventArgument(payload, is_list=False))
    if on_single is not None:
        check_on_end("on_single", on_single, target, name, Single)
    declared = JoinProcessor(
        name=name,
        function=target,
        takes_context=len(positional_parameters(target) or ()) == 2,
        on_end=on_single,
        state=KeyState(KeptEvents),
        late=check_late(late, stream),
        codec=codec,
        rule=JoinRule(within_ms, within_ms if grace_ms is None else grace_ms),
        is_left=is_left,
    )
    return declared.as_processor(stream, options)


def _check_is_left(function: IsLeft[Any], name: str, gets: EventArgument) -> None:
    """Raise InvalidArgument unless a plain function takes one event. name: its processor's."""
    check_function("is_left", function)
    if (needed := positional_parameters(function)) is None:
        return
    if len(needed) != 1:
        raise invalid_argument("is_left", name, "it must take an event")
    check_event_annotation("is_left", name, function, needed[0], gets)
