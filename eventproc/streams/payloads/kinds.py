"""What kind of type a payload type is, what it consists of, and which form its values have in JSON.

An attrs class, a dataclass or a TypedDict becomes an object, a NamedTuple an array, an Enum its values. What JSON has
no form for becomes text, such as a UUID or a date, or has no form here.
"""

from __future__ import annotations

import base64
import collections
import collections.abc
import dataclasses
import datetime
import re
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from enum import Enum
from inspect import isclass
from pathlib import Path, PurePath
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    NotRequired,
    Required,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)
from uuid import UUID

import attrs

from eventproc.streams.payloads.mismatch import UnsupportedPayloadType, type_name


def scalar_of(kind: Any) -> type | None:
    """Return which of bool, int, float and str a type is or derives from; None for another type."""
    if isclass(kind) and not issubclass(kind, Enum):
        return next((base for base in (bool, int, float, str) if issubclass(kind, base)), None)
    return None


_DURATION: Final = re.compile(r"(-?)P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:\.(\d{1,6}))?S)?)?")


def duration_text(value: datetime.timedelta) -> str:
    """Return an ISO 8601 duration, as pydantic and msgspec write it."""
    sign, value = ("-", -value) if value.days < 0 else ("", value)
    return f"{sign}P{value.days}DT{value.seconds}.{value.microseconds:06}S"


def _duration(text: str) -> datetime.timedelta:
    found = _DURATION.fullmatch(text)
    if found is None or text[-1] in "PT":
        raise ValueError(text)
    sign, days, hours, minutes, seconds, micros = found.groups("")
    value = datetime.timedelta(
        days=int(days or 0),
        hours=int(hours or 0),
        minutes=int(minutes or 0),
        seconds=int(seconds or 0),
        microseconds=int(micros.ljust(6, "0")),
    )
    return -value if sign else value


def _isoformat(value: Any) -> str:
    return str(value.isoformat())


_TEXTS: Final[Mapping[type, tuple[Callable[[str], Any], Callable[[Any], str]]]] = {
    UUID: (UUID, str),
    Decimal: (Decimal, str),
    datetime.datetime: (datetime.datetime.fromisoformat, _isoformat),
    datetime.date: (datetime.date.fromisoformat, _isoformat),
    datetime.time: (datetime.time.fromisoformat, _isoformat),
    datetime.timedelta: (_duration, duration_text),
    bytes: (base64.b85decode, lambda value: base64.b85encode(value).decode()),
    Path: (Path, str),
}
"""How text becomes a value, and back."""


def text_forms(kind: Any) -> tuple[Callable[[str], Any], Callable[[Any], str]] | None:
    """Return how text becomes a value of a type, and back; None if the type is not written as text."""
    if not isclass(kind):
        return None
    if kind.__module__ == "ipaddress" or issubclass(kind, PurePath):
        return kind, str
    return _TEXTS.get(kind)


def is_choice(kind: Any) -> bool:
    """Return whether a type is an Enum or a Literal."""
    return get_origin(kind) is Literal or (isclass(kind) and issubclass(kind, Enum))


def choices_of(kind: Any) -> dict[tuple[type, Any], Any]:
    """Return the values of a type, by their class and form in JSON. Raises UnsupportedPayloadType."""
    members = get_args(kind) or tuple(kind)
    found = {}
    for member in members:
        form = member.value if isinstance(member, Enum) else member
        if type(form) not in (str, int, float, bool, NoneType):
            raise UnsupportedPayloadType(f"its value {form!r} has no form in JSON; use text or numbers")
        if (type(form), form) in found:
            raise UnsupportedPayloadType(f"two of its values are written as {form!r}")
        found[type(form), form] = member
    if not found:
        raise UnsupportedPayloadType("it has no members")
    return found


_ARRAYS: Final[Mapping[Any, type]] = {
    collections.abc.Sequence: tuple,
    collections.abc.MutableSequence: list,
    collections.abc.Set: frozenset,
    collections.abc.MutableSet: set,
}
"""What abstract classes are read as."""


def array_of(kind: Any) -> type | None:
    """Return which class an array is read as: list, tuple, set, frozenset or deque; None for another type."""
    origin = get_origin(kind) or kind
    if origin in _ARRAYS:
        return _ARRAYS[origin]
    if origin is tuple:
        args = get_args(kind)
        return tuple if kind is not tuple[()] and (not args or args[1:] == (...,)) else None
    arrays = (list, set, frozenset, collections.deque)
    return origin if isclass(origin) and issubclass(origin, arrays) else None


def element_of(kind: Any) -> Any:
    """Return the type of the elements of an array, Any if it does not say."""
    return next(iter(get_args(kind)), Any)


def is_fixed_tuple(kind: Any) -> bool:
    """Return whether a type is a tuple with a type for each element."""
    return get_origin(kind) is tuple and array_of(kind) is None


_OBJECTS: Final[Mapping[Any, type]] = {
    collections.abc.Mapping: dict,
    collections.abc.MutableMapping: dict,
}


def object_of(kind: Any) -> type | None:
    """Return which class a mapping is read as: dict or a subclass; None for another type."""
    origin = get_origin(kind) or kind
    if origin in _OBJECTS:
        return _OBJECTS[origin]
    return origin if isclass(origin) and issubclass(origin, dict) and not is_typeddict(origin) else None


def key_and_value(kind: Any) -> tuple[Any, Any]:
    """Return the types of the keys and values of a mapping, Any if it does not say."""
    args = get_args(kind)
    if get_origin(kind) is collections.Counter:
        return args[0], int
    return (args[0], args[1]) if args else (Any, Any)


def is_record(kind: Any) -> bool:
    """Return whether a type is a class of attrs or a dataclass."""
    found = get_origin(kind) or kind
    return isclass(found) and (attrs.has(found) or dataclasses.is_dataclass(found))


def record_fields(found: Any) -> tuple[Any, ...]:
    """Return the fields of a class of attrs or a dataclass, as the library describes them."""
    return attrs.fields(found) if attrs.has(found) else dataclasses.fields(found)


def fields_of(kind: Any) -> dict[str, Any]:
    """Return the type of each field of a record, TypedDict or NamedTuple. Raises UnsupportedPayloadType."""
    found = get_origin(kind) or kind
    try:
        hints = get_type_hints(found, localns={found.__name__: found}, include_extras=True)
    except NameError as error:
        raise UnsupportedPayloadType(
            f"{error} where {type_name(kind)} is defined; move the definition to the level of the module"
        ) from error
    if is_record(kind):
        names = [field.name for field in record_fields(found)]
    elif is_named_tuple(kind):
        names = list(found._fields)
    else:
        return {name: _without_qualifiers(hint) for name, hint in hints.items()}
    if untyped := [name for name in names if name not in hints]:
        raise UnsupportedPayloadType(f"the field {untyped[0]!r} has no annotation")
    of_parameters = dict(zip(getattr(found, "__parameters__", ()), get_args(kind), strict=False))
    return {name: of_parameters.get(hints[name], hints[name]) for name in names}


def _without_qualifiers(hint: Any) -> Any:
    return _without_qualifiers(get_args(hint)[0]) if get_origin(hint) in (Required, NotRequired) else hint


def required_keys(kind: Any) -> frozenset[str]:
    """Return the keys that a TypedDict must have, also if its annotations are text."""
    found = get_origin(kind) or kind
    origins = {name: get_origin(hint) for name, hint in get_type_hints(found, include_extras=True).items()}
    by_default = found.__required_keys__
    return frozenset(
        name
        for name, origin in origins.items()
        if origin is Required or (origin is not NotRequired and name in by_default)
    )


def is_named_tuple(kind: Any) -> bool:
    """Return whether a type is a NamedTuple or a `collections.namedtuple`."""
    found = get_origin(kind) or kind
    return isclass(found) and issubclass(found, tuple) and hasattr(found, "_fields")


def types_of_named(kind: Any) -> dict[str, Any]:
    """Return the type of each element of a NamedTuple, Any if it does not say."""
    found = get_origin(kind) or kind
    return fields_of(kind) if found.__annotations__ else dict.fromkeys(found._fields, Any)


def is_union(kind: Any) -> bool:
    """Return whether a type is a union, such as `A | B` or `Optional[A]`."""
    return get_origin(kind) in (Union, UnionType)


def forms_of(kind: Any) -> set[type]:
    """Return the classes of parsed JSON that values of a type have; all of them for Any."""
    if kind is None or kind is NoneType:
        return {NoneType}
    if kind is Any:
        return {NoneType, bool, int, float, str, list, dict}
    if (base := getattr(kind, "__supertype__", None)) is not None:
        return forms_of(base)
    if get_origin(kind) in (Annotated, Final):
        return forms_of(get_args(kind)[0])
    if is_union(kind):
        return set[type]().union(*map(forms_of, get_args(kind)))
    if is_choice(kind):
        return {form for form, _ in choices_of(kind)}
    if (base := scalar_of(kind)) is not None:
        return {float, int} if base is float else {base}
    if text_forms(kind) is not None:
        return {str}
    if array_of(kind) is not None or is_fixed_tuple(kind) or is_named_tuple(kind):
        return {list}
    return {dict}


def classes_of(kind: Any) -> tuple[type, ...]:
    """Return classes such that every value of the type is an instance of one of them; object if no class decides."""
    origin = get_origin(kind)
    if is_union(kind):
        return tuple(each for member in get_args(kind) for each in classes_of(member))
    if origin is Annotated:
        return classes_of(get_args(kind)[0])
    if origin is Literal:
        return tuple({type(each) for each in get_args(kind)})
    if hasattr(kind, "__supertype__"):
        return classes_of(kind.__supertype__)
    if kind is float:
        return (float, int)  # as type checkers have it
    found = kind if origin is None else origin
    if is_typeddict(found):
        return (dict,)
    try:
        isinstance(None, found)
    except TypeError:  # such as Any
        return (object,)
    return (found,)


def parts_of(kind: Any) -> Iterator[tuple[str, Any]]:
    """Yield the types that a type consists of, each with its step in a path such as `lines[].sku`."""
    if is_record(kind) or is_typeddict(get_origin(kind) or kind):
        for name, each in fields_of(kind).items():
            yield f".{name}", each
    elif is_named_tuple(kind):
        for name, each in types_of_named(kind).items():
            yield f".{name}", each
    elif array_of(kind) is not None:
        yield "[]", element_of(kind)
    elif object_of(kind) is not None:
        key, element = key_and_value(kind)
        yield "[]", str if key is Any else key
        yield "[]", element
    elif hasattr(kind, "__supertype__"):
        yield "", kind.__supertype__
    elif get_origin(kind) in (Annotated, Final):
        yield "", get_args(kind)[0]
    elif is_union(kind):
        for each in get_args(kind):
            yield "", each
    elif is_fixed_tuple(kind):
        for index, each in enumerate(get_args(kind)):
            yield f"[{index}]", each


def children_of(kind: Any, value: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield the parts of a value of a type, each with its step in a path, its type and its value."""
    if is_record(kind) or is_named_tuple(kind):
        fields = fields_of(kind) if is_record(kind) else types_of_named(kind)
        if isinstance(value, get_origin(kind) or kind):
            for name, each in fields.items():
                yield f".{name}", each, getattr(value, name)
    elif is_typeddict(get_origin(kind) or kind):
        if isinstance(value, dict):
            for name, each in fields_of(kind).items():
                if name in value:
                    yield f".{name}", each, value[name]
    elif isinstance(value, dict) and object_of(kind) is not None:
        for key, inner in value.items():
            yield f"[{key!r}]", key_and_value(kind)[1], inner
    elif isinstance(value, (list, tuple)) and (array_of(kind) is not None or is_fixed_tuple(kind)):
        elements = get_args(kind) if is_fixed_tuple(kind) else (element_of(kind),) * len(value)
        for index, (each, inner) in enumerate(zip(elements, value, strict=False)):
            yield f"[{index}]", each, inner
    else:
        for _, part in parts_of(kind):
            if isinstance(value, classes_of(part)):
                yield "", part, value
