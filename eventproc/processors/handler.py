"""The user's handler in one shape, however it was written: function or class, one event or a batch, sync or not."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeAlias, TypeVar, overload

import attrs

from eventproc.processors.context import Context
from eventproc.processors.errors import PayloadUndecodable
from eventproc.processors.signatures import (
    EventArgument,
    check_context_annotation,
    check_event_annotation,
    check_state_annotation,
    positional_parameters,
)
from eventproc.processors.timers import OnTimer, TimerEvent, calling_with_timer
from eventproc.store.model.argument_checks import invalid_argument
from eventproc.store.model.errors import InvalidArgument
from eventproc.store.segments import Event

S = TypeVar("S")
S_contra = TypeVar("S_contra", contravariant=True)
Q = ParamSpec("Q")
R = TypeVar("R")
H = TypeVar("H", bound="HandlerInstance")

EVENTS: Final = "an event (or a list of them, as a batch handler)"
"""What a handler takes first, for errors."""


class HandlerInstance(Protocol):
    """An object of a handler's class."""

    @property
    def process(self) -> Callable[..., object]:
        """Called for each event, or with a list of events."""
        ...


class EventHandler(Protocol[S_contra]):
    """An object that handles events of one type, or lists of them."""

    def process(self, event: S_contra, /) -> object:
        """Handle an event, or a list of events."""
        ...


class ContextHandler(Protocol[S_contra]):
    """An object that handles events of one type, or lists of them, with a context."""

    def process(self, event: S_contra, context: Context, /) -> object:
        """Handle an event, or a list of events."""
        ...


HandlerOf: TypeAlias = (
    Callable[Concatenate[S, ...], object] | Callable[[], EventHandler[S]] | Callable[[], ContextHandler[S]]
)
"""A function that handles events of one type, or lists of them, or a class whose objects do."""


class HandlerDecorator(Protocol[S]):
    """Declares the function or class that it decorates, and returns it.

    A type checker compares the first parameter of a function. That of a class's `process` is compared when the class
    is declared only: no type says that a class keeps its type and has such a method.
    """

    @overload
    def __call__(self, handler: type[H], /) -> type[H]: ...
    @overload
    def __call__(self, handler: Callable[Concatenate[S, Q], R], /) -> Callable[Concatenate[S, Q], R]: ...


class NotAwaitedError(Exception):
    """A plain function on a thread returned an awaitable, which nothing awaits there: its work was not done."""


def plain_result(result: object, what: str) -> object:
    """Return what a plain function returned on a thread. Raises NotAwaitedError if that is an awaitable."""
    if result is not None and inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        raise NotAwaitedError(f"{what} returned an awaitable: make it an `async def`")
    return result


@attrs.frozen
class Handler:
    """The user's code behind one interface.

    call: takes an event or a list of them, then the state of its key if `takes_state`, and a Context if
        `takes_context`.
    is_sync: it is a plain function, to be called on a thread.
    decode: converts payloads; None for bytes.
    on_timer: takes a `TimerEvent`, the state of its key, and a Context; None: the processor has no timers.
    instance: the object whose method it is, None for a function.
    """

    call: Callable[..., object]
    is_sync: bool
    takes_context: bool
    takes_state: bool
    decode: Callable[[bytes], object] | None
    instance: object | None
    on_timer: Callable[..., object] | None = None

    def decoded(self, event: Event) -> Event[Any]:
        """Return the event with its payload decoded. Raises PayloadUndecodable."""
        if self.decode is None:
            return event
        try:
            return event._replace(payload=self.decode(event.payload))  # type: ignore[arg-type]
        except InvalidArgument as why:
            raise PayloadUndecodable(reason=str(why)) from why.__cause__  # its text is that of `why`

    def function_for(self, subject: object) -> Callable[..., object]:
        """Return what is called for an event, a list of them, or a timer."""
        if self.on_timer is not None and isinstance(subject, TimerEvent):
            return self.on_timer
        return self.call

    def on_thread(self, subject: object, *given: object) -> object:
        """Call a sync handler, and return what it returned. Raises NotAwaitedError if that is an awaitable."""
        return plain_result(self.function_for(subject)(subject, *given), "the handler")

    async def start(self) -> None:
        """Call the class's `start`, if there is one."""
        await _maybe_call(self.instance, "start")

    async def stop(self) -> None:
        """Call the class's `stop`, if there is one."""
        await _maybe_call(self.instance, "stop")


def check_handler(
    target: object,
    name: str,
    gets: EventArgument,
    state: object | None = None,
    *,
    second: str = "the state of its key",
) -> None:
    """Raise InvalidArgument unless `target` is a handler: a function, or a class with a method `process`.

    gets: what it is called with. state: the type of the state that it is called with, too; None: there is none.
    second: what that is called in the error.
    """
    is_class = isinstance(target, type)
    call = getattr(target, "process", None) if is_class else target
    if not callable(call):
        missing = "it has no method process(self, event)" if is_class else "it cannot be called"
        raise InvalidArgument(what="handler", value=name, reason=missing)
    if _yields(call):
        reason = "it yields, so that calling it runs none of it; a handler returns"
        raise InvalidArgument(what="handler", value=name, reason=reason)
    bound = not is_class or isinstance(inspect.getattr_static(target, "process"), (staticmethod, classmethod))
    subject = EVENTS if gets.kind is Event else f"a {gets.kind.__name__}"
    if state is not None:
        subject = f"an event, {second}"
    needed = _needed_parameters(call, name, bound=bound, takes_state=state is not None, subject=subject)
    if needed:
        check_event_annotation("handler", name, call, needed[0], gets)
    if state is not None and needed:
        check_state_annotation(name, call, needed[1], state)
        needed = needed[1:]
    if len(needed) > 1:
        check_context_annotation(name, call, needed[1])


def check_on_timer(function: object, target: object, name: str) -> None:
    """Raise InvalidArgument unless a function takes a timer, the state of its key, and a Context, as `target` runs.

    target: the handler of the processor `name`, which was checked.
    """
    if not callable(function):
        raise invalid_argument("on_timer", function, "it must be a function")
    needed = positional_parameters(function)
    if needed is not None and len(needed) != 3:
        reason = "it must take a Timer, the state of its key, and a Context"
        raise InvalidArgument(what="on_timer", value=name, reason=reason)
    call = getattr(target, "process", None) if isinstance(target, type) else target
    if is_async(function) != is_async(call):
        kind = (
            "async, as the handler is" if is_async(call) else "plain, as the handler is: both run on threads"
        )
        raise InvalidArgument(what="on_timer", value=name, reason=f"it must be {kind}")


def make_handler(
    target: object,
    decode: Callable[[bytes], Any] | None = None,
    *,
    takes_state: bool = False,
    on_timer: OnTimer | None = None,
) -> Handler:
    """Return the handler for a function, or for a new instance of a class, whose constructor may raise any error.

    decode: converts payloads; None for bytes. on_timer: is called for timers, as the handler is for events.
    """
    instance = target() if isinstance(target, type) else None
    call = target if instance is None else getattr(instance, "process", None)
    assert callable(call), f"{target} was checked"
    return Handler(
        call=call,
        is_sync=not is_async(call),
        takes_context=len(_needed_parameters(call, repr(target), takes_state=takes_state)) == 2 + takes_state,
        takes_state=takes_state,
        decode=decode,
        instance=instance,
        on_timer=None if on_timer is None else calling_with_timer(on_timer),
    )


def is_async(call: object) -> bool:
    """Return whether a function, or an object that is called, is async."""
    return inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(type(call).__call__)


def _yields(call: object) -> bool:
    return any(
        inspect.isgeneratorfunction(each) or inspect.isasyncgenfunction(each)
        for each in (call, type(call).__call__)
    )


def _needed_parameters(
    call: Callable[..., object],
    name: str,
    *,
    bound: bool = True,
    takes_state: bool = False,
    subject: str = EVENTS,
) -> Sequence[inspect.Parameter]:
    """Return one or two parameters, or none if the call has no signature; one more if it takes a state.

    subject: what the first one gets, for the error. Raises InvalidArgument for others.
    """
    if (needed := positional_parameters(call, bound=bound)) is None:
        return ()
    if len(needed) - takes_state not in (1, 2):
        reason = f"it must take {subject}, and a Context if it wants one"
        raise InvalidArgument(what="handler", value=name, reason=reason)
    return needed


async def _maybe_call(instance: object | None, method: str) -> None:
    hook = getattr(instance, method, None)
    if hook is None:
        return
    result = hook()
    if inspect.isawaitable(result):
        await result
