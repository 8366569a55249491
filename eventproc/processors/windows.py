"""The processor of windows: a state by key, whose value is the windows of the key that are open, and a timer.

See docs/design/event-time.md.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any, Final, Generic, TypeAlias, TypeVar, cast, get_args, get_origin

import attrs

from eventproc.processors.context import Context
from eventproc.processors.errors import EventLate
from eventproc.processors.handler import check_handler, is_async
from eventproc.processors.key_state import KeyState, as_key_state
from eventproc.processors.signatures import EventArgument, positional_parameters
from eventproc.processors.timers import Timer
from eventproc.store.model.argument_checks import check_instance, invalid_argument
from eventproc.store.model.names import StreamName
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
from eventproc.streams.codec import Codec, codec_for

V = TypeVar("V")

LATE: Final = "dead_letter"
"""Default of what becomes of a late event."""


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
class WindowProcessor:
    """The functions of a processor whose handler folds events into windows.

    fold: the user's; it takes an event and a window, and a context if `takes_context`.
    make: returns the value of a new window. state: how the windows of a key are kept: by their bounds, as texts.
    late: "dead_letter", "skip", or the name of a stream.
    codec: encodes the payloads of late events; None: they are bytes.
    """

    name: str
    fold: Callable[..., Any]
    takes_context: bool
    on_close: OnClose | None
    kind: WindowKind
    make: Callable[[], Any]
    state: KeyState[Any]
    late: str
    codec: Codec[Any] | None

    @property
    def handler(self) -> Callable[..., object]:
        """The handler of the processor."""
        return self._handle if is_async(self.fold) else self._handle_on_thread

    @property
    def on_timer(self) -> Callable[..., object]:
        """What its timers call."""
        return self._close if is_async(self.fold) else self._close_on_thread

    async def _handle(self, event: Event[Any], windows: dict[str, Any], context: Context) -> None:
        for window in self._windows_of(event, windows, context):
            result = self.fold(event, window, *((context,) if self.takes_context else ()))
            self._keep(windows, window, await result)

    def _handle_on_thread(self, event: Event[Any], windows: dict[str, Any], context: Context) -> None:
        for window in self._windows_of(event, windows, context):
            result = self.fold(event, window, *((context,) if self.takes_context else ()))
            self._keep(windows, window, result)

    async def _close(self, timer: Timer, windows: dict[str, Any], context: Context) -> None:
        for window in self._closed(timer.key, windows, context):
            if self.on_close is not None:
                result = self.on_close(window, context)
                if inspect.isawaitable(result):
                    await result

    def _close_on_thread(self, timer: Timer, windows: dict[str, Any], context: Context) -> None:
        for window in self._closed(timer.key, windows, context):
            if self.on_close is not None:
                self.on_close(window, context)

    def _windows_of(
        self, event: Event[Any], windows: dict[str, Any], context: Context
    ) -> Iterator[Window[Any]]:
        """Yield the windows of an event, each without those that it takes the place of. Raises EventLate.

        The caller keeps each. If the windows are others then, the key is called at another time.
        """
        before = set(windows) or None
        assert event.key is not None, "an event without a key is refused"
        time_ms = event.timestamp if event.event_time is None else event.event_time
        placed = place(self.kind, [*map(Span.parse, windows)], time_ms, context.watermark)
        if not placed:
            self._pass_late(event, time_ms, context)
        for span, joined in placed:
            values = [windows.pop(str(each)) for each in joined]
            value = values[0] if values else self.make()
            for other in values[1:]:
                assert isinstance(self.kind, Sessions), "only sessions are merged"
                value = self.kind.merge(value, other)
            yield Window(event.key, *span, value)
        if windows.keys() != before:
            self._set_timer(windows, context)

    def _keep(self, windows: dict[str, Any], window: Window[Any], returned: object) -> None:
        windows[str(Span(window.begins, window.ends))] = window.value if returned is None else returned

    def _closed(self, key: str, windows: dict[str, Any], context: Context) -> Iterator[Window[Any]]:
        """Yield the windows that have closed, and forget them. The key is called again for the next one."""
        for span in closed(self.kind, map(Span.parse, windows), context.watermark):
            yield Window(key, *span, windows.pop(str(span)))
        self._set_timer(windows, context)

    def _set_timer(self, windows: dict[str, Any], context: Context) -> None:
        """Let the key be called when its next window closes; without any, it has no state."""
        if windows:
            context.call_at(next_close(self.kind, map(Span.parse, windows)))
        else:
            context.forget_state()

    def _pass_late(self, event: Event[Any], time_ms: int, context: Context) -> None:
        if self.late == LATE:
            raise EventLate(processor=self.name, time=time_ms, watermark=context.watermark or 0)
        if self.late != "skip":
            context.emit(
                self.late,
                event.payload,
                codec=self.codec,
                key=event.key,
                event_time=event.event_time,
                headers=event.headers,
            )


def declared_windows(
    target: object,
    stream: str,
    windows: WindowKind,
    value: object,
    *,
    name: str | None,
    payload: type[Any],
    codec: Codec[Any] | None,
    on_close: OnClose | None,
    late: str,
) -> WindowProcessor:
    """Return the functions of the processor that `App.window` declares. Raises InvalidArgument."""
    if not isinstance(cast("object", windows), (Tumbling, Hopping, Sessions)):
        reason = "it must be a Tumbling, Hopping or Sessions of eventproc.windows"
        raise invalid_argument("windows", windows, reason)
    name = name or str(getattr(target, "__name__", repr(target)))
    if isinstance(target, type) or not callable(target):
        raise invalid_argument("window", name, "it must be a function of an event and a Window")
    gets = EventArgument(payload if codec is None or payload is not bytes else None, is_list=False)
    check_handler(target, name, gets, Window)
    if on_close is not None:
        _check_on_close(on_close, target, name)
    if late not in (LATE, "skip"):
        check_instance(str, "late", late, "it must be 'dead_letter', 'skip', or a stream")
        if StreamName.parse(late) == StreamName.parse(stream):
            raise invalid_argument("late", late, "its events would be late again; give another stream")
    state = _state_of(value)
    return WindowProcessor(
        name=name,
        fold=target,
        takes_context=len(positional_parameters(target) or ()) == 3,
        on_close=on_close,
        kind=windows,
        make=KeyState(get_args(state.value)[1]).make,
        state=state,
        late=late,
        codec=None if payload is bytes and codec is None else codec_for(payload, codec),
    )


def _state_of(value: object) -> KeyState[Any]:
    """Return how windows are kept whose values are of a class, or what says so. Raises InvalidArgument."""
    if not isinstance(value, KeyState):
        state = as_key_state(value)
        if state is None:
            raise invalid_argument("value", None, "it must be the class of a window's value, or a KeyState")
        kind: Any = dict[str, state.value]  # type: ignore[name-defined]
        return KeyState(kind)
    if get_origin(value.value) is not dict or len(get_args(value.value)) != 2:
        reason = "windows are kept by their bounds: KeyState(dict[str, Total])"
        raise invalid_argument("value", value.name, reason)
    if value.ttl_ms is not None:
        raise invalid_argument("value", value.name, "windows end by event time: leave ttl_ms out")
    return value


def _check_on_close(on_close: object, target: object, name: str) -> None:
    if not callable(on_close) or inspect.isclass(on_close):
        raise invalid_argument("on_close", on_close, "it must be a function of a Window and a Context")
    if is_async(on_close) and not is_async(target):
        raise invalid_argument("on_close", name, "it must be plain, as the handler is: both run on threads")
    needed = positional_parameters(on_close)
    if needed is not None and len(needed) != 2:
        raise invalid_argument("on_close", name, "it must take a Window and a Context")
