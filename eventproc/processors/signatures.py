"""Signatures of the functions that a processor calls: how many parameters they take, and whether their annotations fit.

Only annotations that can be resolved at the declaration are checked, postponed ones too. A function without them is
accepted, and so is one whose annotations name what its module does not have then, such as a class of its own function.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace, UnionType
from typing import Any, Final, Union, cast, get_args, get_origin, get_type_hints

import attrs

from eventproc.processors.context import Context
from eventproc.store.model.errors import InvalidArgument
from eventproc.store.segments import Event

UNKNOWN: Final = Any
"""The type of a parameter that is not annotated, or whose annotation cannot be resolved."""


@attrs.frozen
class EventArgument:
    """What a function gets as events.

    payload: type of their payloads; None if only a codec knows it.
    is_list: several events, or one.
    kind: what it gets in place of an event, such as a pair of them.
    """

    payload: object | None
    is_list: bool
    kind: type = Event

    def __str__(self) -> str:
        payload, name = None if self.payload is bytes else self.payload, self.kind.__name__
        event = name if payload is None else f"{name}[{_name_of(payload)}]"
        return f"list[{event}]" if self.is_list else event


def positional_parameters(
    call: Callable[..., object], *, bound: bool = True
) -> list[inspect.Parameter] | None:
    """Return the parameters of a call that have to be given, None if it has no signature, as some built-ins.

    bound: False for a function of a class, whose first parameter is the object.
    A call with one that can be given by its name only has none here: nothing can call it by position.
    """
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    try:
        parameters = inspect.signature(call).parameters.values()
    except (TypeError, ValueError):
        return None
    needed = [each for each in parameters if each.default is each.empty]
    if any(each.kind is each.KEYWORD_ONLY for each in needed):
        return []
    found = [each for each in needed if each.kind in kinds]
    return found if bound else found[1:]


def check_event_annotation(
    what: str, name: str, call: Callable[..., object], parameter: inspect.Parameter, gets: EventArgument
) -> None:
    """Raise InvalidArgument if the annotation of the parameter that gets the events does not fit.

    what, name: the function, for the error.
    """
    found = _resolved(call, parameter)
    if _takes(found, gets):
        return
    remedy = f"annotate {parameter.name!r} as {gets}"
    if not gets.is_list and _takes(found, attrs.evolve(gets, is_list=True)):
        remedy += ", or pass batch=, the most events of a call"
    elif gets.is_list and _takes(found, attrs.evolve(gets, is_list=False)):
        remedy += ", or leave batch= out"
    elif _takes(found, attrs.evolve(gets, payload=None)):
        remedy += ", or pass the other type as payload="
    reason = f"its parameter {parameter.name!r} is annotated {_name_of(found)}, but it gets {gets}: {remedy}"
    raise InvalidArgument(what=what, value=name, reason=reason)


def check_context_annotation(name: str, call: Callable[..., object], parameter: inspect.Parameter) -> None:
    """Raise InvalidArgument if the second parameter of a handler is annotated as something else than a Context."""
    found = _resolved(call, parameter)
    if not any(each is None or issubclass(Context, each) for each in _classes(found)):
        reason = f"its second parameter gets a Context, and {parameter.name!r} is annotated {_name_of(found)}"
        raise InvalidArgument(what="handler", value=name, reason=reason)


def check_state_annotation(
    name: str, call: Callable[..., object], parameter: inspect.Parameter, state: object
) -> None:
    """Raise InvalidArgument if the second parameter of a handler is annotated as something else than its state."""
    found = _resolved(call, parameter)
    if not _covers(found, state):
        reason = (
            f"its second parameter gets the state, and {parameter.name!r} is annotated {_name_of(found)}:"
            f" annotate it as {_name_of(state)}"
        )
        raise InvalidArgument(what="handler", value=name, reason=reason)


def check_on_commit(
    name: str, function: Callable[..., object], payload: object | None, *, what: str = "on_commit"
) -> None:
    """Raise InvalidArgument unless a function takes a transaction and the events. name: its processor's."""
    if (parameters := positional_parameters(function)) is None:
        return
    if len(parameters) != 2:
        reason = "it must take a transaction and the list of events that were handled"
        raise InvalidArgument(what=what, value=name, reason=reason)
    check_event_annotation(what, name, function, parameters[1], EventArgument(payload, is_list=True))


def _resolved(call: Callable[..., object], parameter: inspect.Parameter) -> object:
    """Return the type that a parameter is annotated with, UNKNOWN if there is none or it cannot be resolved."""
    if parameter.annotation is parameter.empty:
        return UNKNOWN
    annotated = SimpleNamespace(__annotations__={"it": parameter.annotation})
    try:
        return get_type_hints(annotated, globalns=getattr(_function_behind(call), "__globals__", {}))["it"]
    except Exception:  # whatever evaluating an annotation raises, mostly NameError
        return UNKNOWN


def _function_behind(call: object) -> object:
    """Return the function whose signature `call` has, whose module has the names of its annotations."""
    while isinstance(call, partial):
        call = call.func
    if not inspect.isroutine(call) and not isinstance(call, type):
        call = type(call).__call__
    call = getattr(call, "__func__", call)
    return inspect.unwrap(call) if callable(call) else call


def _takes(annotation: object, gets: EventArgument) -> bool:
    """Return whether a parameter of this type may be given the events; True if that is not known."""
    if get_origin(annotation) in (Union, UnionType):
        return any(_takes(each, gets) for each in get_args(annotation))
    (kind,), arguments = _classes(annotation), get_args(annotation)
    if kind is None or kind is object:
        return True
    if gets.is_list:
        return issubclass(list, kind) and (
            not arguments or _takes(arguments[0], attrs.evolve(gets, is_list=False))
        )
    return kind is gets.kind and (not arguments or _covers(arguments[0], gets.payload))


def _covers(annotation: object, payload: object | None) -> bool:
    """Return whether every payload of a type is of another one; True if that is not known."""
    wanted = _classes(annotation)
    return all(
        each is None or any(kind is None or issubclass(each, kind) for kind in wanted)
        for each in (_classes(payload) if payload is not None else ())
    )


def _classes(annotation: object) -> Sequence[type | None]:
    """Return the class of a type, or those of the members of a union; None for one that is no class or a protocol."""
    origin = get_origin(annotation) or annotation
    if origin is Any:  # which is a class
        return [None]
    if origin in (Union, UnionType):
        return [kind for each in get_args(annotation) for kind in _classes(each)]
    while (of := getattr(origin, "__supertype__", None)) is not None:  # a NewType
        origin = of
    is_class = isinstance(origin, type) and not getattr(origin, "_is_protocol", False)
    return [cast("type", origin) if is_class else None]


def _name_of(kind: object) -> str:
    """Return a type as its user writes it, without modules."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return " | ".join(map(_name_of, arguments))
    name = getattr(origin or kind, "__name__", str(kind))
    return f"{name}[{', '.join(map(_name_of, arguments))}]" if arguments else name
