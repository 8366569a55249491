"""The user's handler in one shape, however it was written: function or class, one event or a batch, sync or not."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

import attrs

from eventproc.processors.context import Context
from eventproc.store.model.errors import InvalidArgument
from eventproc.store.segments import Event


class UndecodableError(Exception):
    """The payload is not of the handler's type, which no retry can change. The cause is the codec's error."""


class NotAwaitedError(Exception):
    """A plain function on a thread returned an awaitable, which nothing awaits there: its work was not done."""


@attrs.frozen
class Handler:
    """The user's code behind one interface.

    call: takes an event or a list of them, and a Context if `takes_context`.
    is_sync: it is a plain function, to be called on a thread.
    decode: converts payloads; None for bytes.
    instance: the object whose method it is, None for a function.
    """

    call: Callable[..., object]
    is_sync: bool
    takes_context: bool
    decode: Callable[[bytes], object] | None
    instance: object | None

    def decoded(self, event: Event) -> Event[Any]:
        """Return the event with its payload decoded. Raises UndecodableError."""
        if self.decode is None:
            return event
        try:
            return event._replace(payload=self.decode(event.payload))  # type: ignore[arg-type]
        except InvalidArgument as why:
            raise UndecodableError(str(why)) from why

    async def on_loop(self, subject: object, context: Context | None) -> None:
        """Call a handler that is not sync."""
        if context is None:
            await cast("Awaitable[None]", self.call(subject))
        else:
            await cast("Awaitable[None]", self.call(subject, context))

    def on_thread(self, subject: object, context: Context | None) -> None:
        """Call a sync handler. Raises NotAwaitedError if it returns an awaitable."""
        result = self.call(subject) if context is None else self.call(subject, context)
        if result is not None and inspect.isawaitable(result):
            if inspect.iscoroutine(result):
                result.close()
            raise NotAwaitedError("the handler returned an awaitable: make it an `async def`")

    async def start(self) -> None:
        """Call the class's `start`, if there is one."""
        await _maybe_call(self.instance, "start")

    async def stop(self) -> None:
        """Call the class's `stop`, if there is one."""
        await _maybe_call(self.instance, "stop")


def check_handler(target: object, name: str) -> None:
    """Raise InvalidArgument unless `target` is a handler: a function, or a class with a method `process`."""
    call = getattr(target, "process", None) if isinstance(target, type) else target
    if not callable(call):
        missing = (
            "it has no method process(self, event)" if isinstance(target, type) else "it cannot be called"
        )
        raise InvalidArgument(what="handler", value=name, reason=missing)
    if _yields(call):
        reason = "it yields, so that calling it runs none of it; a handler returns"
        raise InvalidArgument(what="handler", value=name, reason=reason)
    _takes_context(call, name, bound=not isinstance(target, type))


def make_handler(target: object, decode: Callable[[bytes], Any] | None = None) -> Handler:
    """Return the handler for a function, or for a new instance of a class, whose constructor may raise any error.

    decode: converts payloads; None for bytes.
    """
    instance = target() if isinstance(target, type) else None
    call = target if instance is None else getattr(instance, "process", None)
    assert callable(call), f"{target} was checked"
    return Handler(
        call=call,
        is_sync=not _is_async(call),
        takes_context=_takes_context(call, repr(target), bound=True),
        decode=decode,
        instance=instance,
    )


def _is_async(call: object) -> bool:
    return inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(type(call).__call__)


def _yields(call: object) -> bool:
    return any(
        inspect.isgeneratorfunction(each) or inspect.isasyncgenfunction(each)
        for each in (call, type(call).__call__)
    )


def _takes_context(call: Callable[..., object], name: str, *, bound: bool) -> bool:
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    try:
        parameters = inspect.signature(call).parameters.values()
    except (TypeError, ValueError):
        return False
    needed = [each for each in parameters if each.kind in kinds and each.default is each.empty]
    needed = needed if bound else needed[1:]
    named = [each for each in parameters if each.kind is each.KEYWORD_ONLY and each.default is each.empty]
    if len(needed) not in (1, 2) or named:
        reason = (
            "it must take an event (or a list of them, as a batch handler), and a Context if it wants one"
        )
        raise InvalidArgument(what="handler", value=name, reason=reason)
    return len(needed) == 2


async def _maybe_call(instance: object | None, method: str) -> None:
    hook = getattr(instance, method, None)
    if hook is None:
        return
    result = hook()
    if inspect.isawaitable(result):
        await result


def events_of(items: Sequence[tuple[Event, object]]) -> list[Event]:
    """Return the events of items."""
    return [event for event, _ in items]
