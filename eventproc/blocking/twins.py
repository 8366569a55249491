"""The blocking twin of an async class, made from the class: each public method hands its call to the loop.

What a twin does on the caller's side, such as filling a buffer, is written by hand in a class that `twin_of` completes.
`__init__.pyi` tells type checkers what is made here: `python -m tools.blocking` writes it from the same classes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import cached_property, partial, wraps
from types import GenericAlias
from typing import Any, ClassVar, Final, TypeVar

import anyio.to_thread

import eventproc.blocking as blocking
from eventproc.blocking.loop import Loop, Opened
from eventproc.store.openable import Openable

C = TypeVar("C", bound="type[BlockingTwin]")

ON_LOOP: Final = {
    "Consumer": {"assignment", "committed", "pause", "paused", "position", "resume"},
    "GroupReader": {"owned", "position"},
    "Running": {"cancel_now"},
}
"""Properties and plain methods that work on what the loop's thread changes, so each use is a hand-over. The others run
on the caller's thread."""

DELIVERS: Final = {
    "Consumer": {"poll", "__aiter__"},
    "GroupReader": {"batches"},
    "ShareConsumer": {"poll", "__aiter__"},
}
"""Methods whose next call finishes what they returned. What an interrupted caller did not get is taken back first, by
`_take_back` of the async object."""

CALLBACKS: Final = {"on_assigned", "on_lost", "on_revoked"}
"""Parameters that take a function, which runs in a thread. A cancelled call does not wait for it."""

HANDLER: Final = "handler"
"""The parameter that takes a function for events, which runs in a thread. A cancelled call waits for it."""

_SHORTER: Final = {"EventWriter": "BlockingWriter", "StreamReader": "BlockingReader"}
"""Twins whose names are not that of their class behind `Blocking`."""


class BlockingTwin:
    """Base of all twins: has the attributes of the async object that are neither methods nor properties."""

    __class_getitem__ = classmethod(GenericAlias)  # type: ignore[var-annotated]
    _made: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, loop: Loop, twin: Any) -> None:
        self._loop = loop
        self._twin = twin

    def __repr__(self) -> str:
        return repr(self._twin).replace(type(self._twin).__name__, name_of_twin(type(self._twin)), 1)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(
                f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self
            )
        value = wrap(self._loop, getattr(self._twin, name))
        if isinstance(value, BlockingTwin):
            setattr(self, name, value)
        return value


def name_of_twin(kind: type) -> str:
    """Return the name of the twin that a class has, or would have."""
    return _SHORTER.get(kind.__name__, f"Blocking{kind.__name__}")


def wrap(loop: Loop, value: Any) -> Any:
    """Return the twin of a handle, opened if it can be; any other value unchanged."""
    for kind in type(value).__mro__:
        name = name_of_twin(kind)
        if name in blocking.__all__ and kind.__module__.startswith("eventproc."):
            made = getattr(blocking, name)(loop, value)
            return made._opened() if isinstance(made, Opened) else made
    return value


def async_of(value: Any) -> Any:
    """Return the async object behind a twin, or those behind a list or tuple of twins; any other value unchanged."""
    if isinstance(value, list | tuple) and value and isinstance(value[0], BlockingTwin):
        return [async_of(each) for each in value]
    return value._twin if isinstance(value, BlockingTwin) else value


def make_twin(kind: type) -> type:
    """Return the twin of a class of which nothing is written by hand."""
    bases = (BlockingTwin, Opened) if issubclass(kind, Openable) else (BlockingTwin,)
    made = type(name_of_twin(kind), bases, {"__doc__": kind.__doc__, "__module__": blocking.__name__})
    return twin_of(kind)(made)


def twin_of(kind: type) -> Callable[[C], C]:
    """Complete a class with the public methods and properties of `kind` that it, or a base of it, has not written."""

    def complete(twin: C) -> C:
        written = {name for each in twin.__mro__[:-1] if each is not BlockingTwin for name in _written(each)}
        made_here: set[str] = set()
        for owner in kind.__mro__:
            if owner is Openable or not owner.__module__.startswith("eventproc."):
                continue
            for name, found in vars(owner).items():
                as_named = "__iter__" if name == "__aiter__" else name
                if as_named in written or (name.startswith("_") and name != "__aiter__"):
                    continue
                if (made := _member(kind, name, found)) is not None:
                    written.add(as_named)
                    setattr(twin, as_named, made)
                    made_here.add(as_named)
                    if isinstance(made, cached_property):
                        made.__set_name__(twin, as_named)
        twin._made = frozenset(made_here)
        return twin

    return complete


def _written(twin: type) -> Iterator[str]:
    """Yield what stands in a class itself, without what `twin_of` added to it."""
    made = vars(twin).get("_made", ())
    yield from (name for name in vars(twin) if name not in made)


def _member(kind: type, name: str, found: object) -> Any:
    """Return what stands for a member of `kind`; None if it is no method and no property."""
    on_loop, delivers = (name in each.get(kind.__name__, ()) for each in (ON_LOOP, DELIVERS))
    if isinstance(found, cached_property):
        return cached_property(partial(_get, name, False))
    if isinstance(found, property):
        return property(partial(_get, name, on_loop), doc=found.__doc__)
    if not inspect.isfunction(found):
        return None
    if name == "__aiter__" or inspect.isasyncgenfunction(found):
        return _iterating(name, found, delivers)
    return _calling(name, found, on_loop, delivers)


def _get(name: str, on_loop: bool, self: BlockingTwin) -> Any:
    found = _on_loop(self, name) if on_loop else getattr(self._twin, name)
    return wrap(self._loop, found)


def _on_loop(self: BlockingTwin, name: str) -> Any:
    async def get() -> Any:
        return getattr(self._twin, name)

    return self._loop.call(get)


def _calling(name: str, found: Callable[..., Any], on_loop: bool, delivers: bool) -> Callable[..., Any]:
    is_coroutine = inspect.iscoroutinefunction(found)
    parameters = list(inspect.signature(found).parameters)[1:]
    functions = {each for each in parameters if each in CALLBACKS or each == HANDLER}

    @wraps(found)
    def call(self: BlockingTwin, *args: Any, **kwargs: Any) -> Any:
        args = tuple(map(async_of, args))
        kwargs = {each: async_of(value) for each, value in kwargs.items()}
        if functions:
            kwargs |= zip(parameters, args, strict=False)
            args = ()
            kwargs |= {each: _in_thread(each, kwargs[each]) for each in functions & kwargs.keys()}
        method = partial(getattr(self._twin, name), *args, **kwargs)

        async def run() -> Any:
            return method()

        if is_coroutine:
            undo = self._twin._take_back if delivers else None
            return wrap(self._loop, self._loop.call(method, undo=undo))
        return wrap(self._loop, self._loop.call(run) if on_loop else method())

    return call


def _iterating(name: str, found: Callable[..., Any], delivers: bool) -> Callable[..., Iterator[Any]]:
    @wraps(found)
    def iterate(self: BlockingTwin, *args: Any, **kwargs: Any) -> Iterator[Any]:
        values = aiter(getattr(self._twin, name)(*args, **kwargs))

        async def advance() -> tuple[Any, ...]:
            try:
                return (await anext(values),)
            except StopAsyncIteration:
                return ()

        undo = self._twin._take_back if delivers else None
        while found := self._loop.call(advance, undo=undo):
            yield from found

    return iterate


def _in_thread(parameter: str, function: Any) -> Any:
    """Return a coroutine function that calls a plain one in a thread; what is not callable is refused by the method."""
    if not callable(function):
        return function

    async def call(*args: Any) -> None:
        await anyio.to_thread.run_sync(function, *args, abandon_on_cancel=parameter != HANDLER)

    call.__qualname__ = getattr(function, "__qualname__", repr(function))
    return call
