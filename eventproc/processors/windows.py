"""The processor of windows: a state by key, whose value is the windows of the key that are open, and a timer.

See docs/design/event-time.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeAlias, TypeVar, cast, get_args, get_origin

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
from eventproc.processors.key_state import KeyState, as_key_state
from eventproc.processors.signatures import EventArgument, positional_parameters
from eventproc.store.model.argument_checks import invalid_argument
from eventproc.store.model.windows import (
    Hopping,
    Sessions,
    Span,
    Tumbling,
    WindowKind,
    closed,
    next_close,
    place,
)
from eventproc.store.segments import Event
from eventproc.streams.payloads.mismatch import describe

V = TypeVar("V")


@attrs.define
class Window(Generic[V]):
    """A window of a key, and its value.

    Attributes:
        key: The routing key of its events.
        begins: The lowest event time that it has, in ms since 1970.
        ends: The lowest event time behind it, in ms since 1970.
        value: What the handler has made of its events.
    """

    key: str
    begins: int
    ends: int
    value: V


OnClose: TypeAlias = Callable[[Window[Any], Context], object]
"""Called with a window that has closed, and a context. What it emits is appended in the transaction that closes it."""


@attrs.frozen(kw_only=True)
class WindowProcessor(EventTimeProcessor[dict[str, Any]]):
    """The functions of a processor whose handler folds events into windows: it takes an event and a window.

    The state of a key is its windows, by their bounds, as texts. kind: how event time is divided into windows.
    make: returns the value of a new window.
    """

    kind: WindowKind
    make: Callable[[], Any]

    def _calls(
        self, event: Event[Any], state: dict[str, Any], context: Context
    ) -> Iterator[tuple[Event[Any], Window[Any]]]:
        """Yield the windows of an event, each without those that it takes the place of. Raises EventLate.

        The caller keeps each. If the windows are others then, the key is called at another time.
        """
        before = set(state) or None
        assert event.key is not None, "an event without a key is refused"
        placed = place(self.kind, [*map(Span.parse, state)], time_of(event), context.watermark)
        if not placed:
            self._pass_late(event, context)
        for span, joined in placed:
            values = [state.pop(str(each)) for each in joined]
            value = values[0] if values else self.make()
            for other in values[1:]:
                assert isinstance(self.kind, Sessions), "only sessions are merged"
                value = self.kind.merge(value, other)
            yield event, Window(event.key, *span, value)
        if state.keys() != before:
            self._set_timer(state, context)

    def _returned(self, state: dict[str, Any], given: tuple[Any, ...], returned: object) -> None:
        """Keep the value of a window, or what takes its place."""
        window: Window[Any] = given[1]
        state[str(Span(window.begins, window.ends))] = window.value if returned is None else returned

    def _ended(self, key: str, state: dict[str, Any], context: Context) -> Iterator[Window[Any]]:
        """Yield the windows that have closed, and forget them. The key is called again for the next one."""
        for span in closed(self.kind, map(Span.parse, state), context.watermark):
            yield Window(key, *span, state.pop(str(span)))
        self._set_timer(state, context)

    def _next_end(self, state: dict[str, Any]) -> int | None:
        return next_close(self.kind, map(Span.parse, state))


def window_processor(
    target: object,
    stream: str,
    windows: WindowKind,
    value: object,
    *,
    on_close: OnClose | None,
    late: str,
    **options: Unpack[WindowOptions[Any]],
) -> Processor:
    """Check the arguments of `App.window`, and return the processor that it declares. Raises InvalidArgument."""
    check_options("window", options, WindowOptions.__optional_keys__)
    if not isinstance(cast("object", windows), (Tumbling, Hopping, Sessions)):
        reason = "it must be a Tumbling, Hopping or Sessions of eventproc.windows"
        raise invalid_argument("windows", windows, reason)
    name = name_of(target, options)
    if isinstance(target, type) or not callable(target):
        raise invalid_argument("window", name, "it must be a function of an event and a Window")
    payload, codec = payload_of(options)
    check_handler(target, name, EventArgument(payload, is_list=False), Window, second="its Window")
    if on_close is not None:
        check_on_end("on_close", on_close, target, name, Window)
    state = _state_of(value, name)
    declared = WindowProcessor(
        name=name,
        function=target,
        takes_context=len(positional_parameters(target) or ()) == 3,
        on_end=on_close,
        state=state,
        late=check_late(late, stream),
        codec=codec,
        kind=windows,
        make=get_args(state.value)[1],
    )
    return declared.as_processor(stream, options)


def _state_of(value: object, name: str) -> KeyState[Any]:
    """Return how windows are kept whose values are of a class, or what says so. name: of their processor.

    Raises InvalidArgument.
    """
    if not isinstance(value, KeyState):
        state = as_key_state(value, name)
        if state is None:
            raise invalid_argument("value", None, "it must be the class of a window's value, or a KeyState")
        kind: Any = dict[str, state.value]  # type: ignore[name-defined]
        return KeyState(kind)
    if get_origin(value.value) is not dict or len(get_args(value.value)) != 2:
        reason = "windows are kept by their bounds: KeyState(dict[str, Total])"
        raise invalid_argument("value", value.name, reason)
    if value.ttl_ms is not None:
        raise invalid_argument("value", value.name, "windows end by event time: leave ttl_ms out")
    try:
        value.encode({"0/1": get_args(value.value)[1]()})
    except Exception as why:  # of the user's class or codec
        reason = f"the value of a new window cannot be made: {describe(why)}; give each field a default"
        raise invalid_argument("value", value.name, reason) from why
    return value
