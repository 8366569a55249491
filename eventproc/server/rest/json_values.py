"""Values as JSON: how a type is written, how a body is read, and the JSON Schema that says both.

One type has one form. A class of attrs is an object; the fields of a `PravegaValue` have camel case there. A body is
read strictly: nothing is converted, and an unknown field is refused with the similar name.
"""

from __future__ import annotations

import base64
import math
import re
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from functools import cache
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    TypeAlias,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import attrs

from eventproc.store.model.argument_checks import INT_MAX, invalid_argument
from eventproc.store.model.cuts import StreamCut
from eventproc.store.model.errors import InvalidArgument
from eventproc.store.model.ids import SegmentId, format_segment, parse_segment

Schema = dict[str, Any]
"""A JSON Schema, as OpenAPI 3.1 has it."""

JsonObject: TypeAlias = dict[str, object]
"""An object whose members another part of the program reads and verifies."""

REFERENCE: Final = "#/components/schemas/"
"""Where the document keeps the schemas of classes."""

SIMILAR: Final = 0.6
"""Least similarity of a suggested name, as `difflib` measures it (0 to 1)."""


@attrs.frozen
class Limits:
    """What a value must be beyond its type; given in `Annotated`.

    least, most: of a number, or of the length of a list. about: what it means, for the document.
    """

    least: int | None = None
    most: int | None = None
    about: str = ""


class PravegaValue:
    """A value as Pravega's REST has it: the names of its fields have camel case in JSON."""


@attrs.frozen
class Page:
    """A page of a list: `Page[T]` in annotations, by `PageOf`.

    items: the entries. next: what `after` must be for the next page; None on the last one.
    """

    items: Sequence[object]
    next: str | None


@attrs.frozen
class PageOf:
    """Marks the type of the entries of a page, in `Annotated[Page, PageOf(T)]`."""

    item: Any


@attrs.frozen
class Linked:
    """A page of a list of Pravega's, whose form has no place for `next`: the response links to the next page.

    value: what the body says. next: what `after` must be for the next page; None on the last one.
    """

    value: object
    next: str | None


@attrs.frozen
class LinkedOf:
    """Marks the type of the body of a linked page, in `Annotated[Linked, LinkedOf(T)]`."""

    body: Any


def camel(name: str) -> str:
    """Return a name of Python in camel case: `scopeName` for `scope_name`."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def refuse_unknown(what: str, given: Iterable[str], known: Iterable[str], path: str = "") -> None:
    """Raise InvalidArgument for the first name that is not known, with the similar one."""
    from difflib import get_close_matches

    names = sorted(known)
    for name in given:
        if name not in names:
            similar = get_close_matches(name, names, n=1, cutoff=SIMILAR)
            possible = (
                f"did you mean {similar[0]!r}?" if similar else f"possible: {', '.join(names) or 'none'}"
            )
            raise invalid_argument(what, f"{path}{name}", f"it is unknown; {possible}")


@attrs.frozen
class _Field:
    name: str
    kind: Any
    required: bool


@cache
def _fields(kind: Any) -> Mapping[str, _Field]:
    """Return the fields of a class of attrs by their names in JSON."""
    hints = get_type_hints(kind, include_extras=True)
    spelled: Callable[[str], str] = camel if issubclass(kind, PravegaValue) else str
    return {
        spelled(each.name): _Field(each.name, hints[each.name], each.default is attrs.NOTHING)
        for each in attrs.fields(kind)
    }


def _split(kind: Any) -> tuple[Any, Limits, Any]:
    """Return a type without its marks, and the marks: its limits, and the entry type of a page."""
    if get_origin(kind) is not Annotated:
        return kind, Limits(), None
    inner, *marks = get_args(kind)
    limits = next((each for each in marks if isinstance(each, Limits)), Limits())
    item = next((each.item for each in marks if isinstance(each, PageOf)), None)
    return inner, limits, item


def _optional(kind: Any) -> Any:
    """Return T of `T | None`; None for another type."""
    if get_origin(kind) not in (Union, types.UnionType):
        return None
    rest = [each for each in get_args(kind) if each is not type(None)]
    return rest[0] if len(rest) == 1 and len(get_args(kind)) == 2 else None


def _is_text(kind: Any) -> bool:
    return kind is str or kind is StreamCut or kind is SegmentId


# Schemas.


def schema_of(kind: Any, classes: dict[str, Schema]) -> Schema:
    """Return the schema of a type. classes: takes the schemas of the classes in it, by name."""
    kind, limits, item = _split(kind)
    schema = _page_schema(item, classes) if item is not None else _plain_schema(kind, classes)
    low, high = ("minItems", "maxItems") if schema.get("type") == "array" else ("minimum", "maximum")
    if limits.least is not None:
        schema[low] = limits.least
    if limits.most is not None:
        schema[high] = limits.most
    if limits.about:
        schema["description"] = limits.about
    return schema


def _page_schema(item: Any, classes: dict[str, Schema]) -> Schema:
    properties = {
        "items": {"type": "array", "items": schema_of(item, classes)},
        "next": {"anyOf": [{"type": "string"}, {"type": "null"}]},
    }
    return {
        "type": "object",
        "properties": properties,
        "required": ["items", "next"],
        "additionalProperties": False,
    }


_SCALARS: Final[Mapping[Any, Schema]] = types.MappingProxyType(
    {
        str: {"type": "string"},
        int: {"type": "integer", "format": "int64"},
        float: {"type": "number", "format": "double"},
        bool: {"type": "boolean"},
        bytes: {"type": "string", "contentEncoding": "base64"},
        StreamCut: {"type": "string", "description": "A cut of a stream, such as 7:0.0=120"},
        SegmentId: {"type": "string", "description": "A segment, as number.epoch", "pattern": r"^\d+\.\d+$"},
    }
)


def _plain_schema(kind: Any, classes: dict[str, Schema]) -> Schema:
    if kind in _SCALARS:
        return dict(_SCALARS[kind])
    origin, arguments = get_origin(kind) or kind, get_args(kind)
    if (inner := _optional(kind)) is not None:
        return {"anyOf": [schema_of(inner, classes), {"type": "null"}]}
    if origin in (Union, types.UnionType):
        return {"anyOf": [schema_of(each, classes) for each in arguments]}
    if origin is Literal:
        return {"type": "string", "enum": list(arguments)}
    if origin is tuple and arguments[-1] is not Ellipsis:
        parts = [schema_of(each, classes) for each in arguments]
        return {"type": "array", "prefixItems": parts, "minItems": len(parts), "maxItems": len(parts)}
    if origin in (tuple, list, Sequence):
        return {"type": "array", "items": schema_of(arguments[0], classes)}
    if kind == JsonObject:
        return {"type": "object"}
    if origin in (dict, Mapping):
        return {"type": "object", "additionalProperties": schema_of(arguments[1], classes)}
    if isinstance(kind, type) and issubclass(kind, Enum):
        return {"type": "string", "enum": [each.value for each in kind]}
    assert attrs.has(kind), f"{kind} has no form in JSON"
    _add_class(kind, classes)
    return {"$ref": REFERENCE + kind.__name__}


def _add_class(kind: Any, classes: dict[str, Schema]) -> None:
    if kind.__name__ in classes:
        return
    classes[kind.__name__] = {}  # a class may contain itself
    fields = _fields(kind)
    schema: Schema = {
        "type": "object",
        "properties": {name: schema_of(each.kind, classes) for name, each in fields.items()},
        "additionalProperties": False,
    }
    if required := [name for name, each in fields.items() if each.required]:
        schema["required"] = required
    if kind.__doc__:
        schema["description"] = " ".join(kind.__doc__.split("\n\n")[0].split())
    classes[kind.__name__] = schema


# Writing.


def to_plain(kind: Any, value: Any) -> Any:
    """Return a value of a type as `json` writes it."""
    kind, _, item = _split(kind)
    if item is not None:
        return {"items": [to_plain(item, each) for each in value.items], "next": value.next}
    if value is None or kind in (int, float, bool):
        return value
    if kind is SegmentId:
        return format_segment(value)
    if kind is bytes:
        return base64.b64encode(value).decode()
    if _is_text(kind):
        return str(value)
    origin, arguments = get_origin(kind) or kind, get_args(kind)
    if (inner := _optional(kind)) is not None:
        return to_plain(inner, value)
    if origin in (Union, types.UnionType, Literal):
        return value
    if origin is tuple and arguments[-1] is not Ellipsis:
        return [to_plain(each, part) for each, part in zip(arguments, value, strict=True)]
    if origin in (tuple, list, Sequence):
        return [to_plain(arguments[0], each) for each in value]
    if origin in (dict, Mapping):
        return {str(key): to_plain(arguments[1], each) for key, each in value.items()}
    if isinstance(value, Enum):
        return value.value
    return {name: to_plain(each.kind, getattr(value, each.name)) for name, each in _fields(kind).items()}


# Reading.


def read_value(kind: Any, plain: object, path: str) -> Any:
    """Return the value of a type that parsed JSON describes. Raises InvalidArgument with the path."""
    kind, limits, _ = _split(kind)
    if (inner := _optional(kind)) is None:
        value = _read(kind, plain, path)
    elif plain is None:
        return None
    else:
        value = read_value(inner, plain, path)
    size = len(value) if isinstance(value, (list, tuple)) else value
    if limits.least is not None and size < limits.least:
        raise invalid_argument(path, plain, f"the least possible is {limits.least}")
    if limits.most is not None and size > limits.most:
        raise invalid_argument(path, plain, f"the most possible is {limits.most}")
    return value


def _read(kind: Any, plain: object, path: str) -> Any:
    if attrs.has(kind):
        return _read_object(kind, plain, path)
    origin, arguments = get_origin(kind) or kind, get_args(kind)
    if kind == JsonObject:
        if not isinstance(plain, dict):
            raise invalid_argument(path, plain, "it must be an object")
        return cast("JsonObject", plain)
    if origin is Literal:
        if plain not in arguments:
            raise invalid_argument(path, plain, f"possible: {', '.join(map(str, arguments))}")
        return plain
    if origin is tuple:
        if not isinstance(plain, list):
            raise invalid_argument(path, plain, "it must be an array")
        elements = cast("list[object]", plain)
        return tuple(read_value(arguments[0], each, f"{path}[{n}]") for n, each in enumerate(elements))
    if kind is float and type(plain) is int:
        return _number(float, plain, path)
    if _is_text(kind):
        text = _text(plain, path)
        return parse_segment(text) if kind is SegmentId else text
    if kind in (int, float):
        return _number(kind, plain, path)
    if kind is bool:
        if not isinstance(plain, bool):
            raise invalid_argument(path, plain, "it must be true or false")
        return plain
    assert issubclass(kind, Enum), f"no body has a {kind}"
    for each in kind:
        if plain == each.value:
            return each
    raise invalid_argument(path, plain, f"possible: {', '.join(str(each.value) for each in kind)}")


def _read_object(kind: Any, plain: object, path: str) -> Any:
    if not isinstance(plain, dict):
        raise invalid_argument(path, plain, "it must be an object")
    members, fields = cast("dict[str, object]", plain), _fields(kind)
    within = "" if path == BODY else f"{path}."
    refuse_unknown("field", members, fields, within)
    for name, each in fields.items():
        if each.required and name not in members:
            raise InvalidArgument(what=f"{within}{name}", value="nothing", reason="it is required")
    return kind(
        **{
            fields[name].name: read_value(fields[name].kind, value, f"{within}{name}")
            for name, value in members.items()
        }
    )


BODY: Final = "body"
"""Path of the body itself in errors."""


def _text(plain: object, path: str) -> str:
    if not isinstance(plain, str):
        raise invalid_argument(path, plain, "it must be a text")
    try:
        plain.encode()
    except UnicodeEncodeError:
        raise invalid_argument(path, plain, "it has half of a surrogate pair") from None
    return plain


def _number(kind: type[int] | type[float], plain: object, path: str) -> int | float:
    if type(plain) is not kind and not (kind is float and type(plain) is int):
        raise invalid_argument(path, plain, "it must be an integer" if kind is int else "it must be a number")
    assert isinstance(plain, (int, float))
    if not math.isfinite(plain) or abs(plain) > INT_MAX:
        raise invalid_argument(path, plain, "it does not fit into 64 bits")
    return kind(plain)


_INTEGER: Final = re.compile(r"-?[0-9]{1,19}", re.ASCII)


def read_text(kind: Any, text: str, name: str) -> Any:
    """Return the value of a type that a parameter of an address spells. Raises InvalidArgument."""
    inner, _, _ = _split(kind)
    inner = _optional(inner) or inner
    inner, _, _ = _split(inner)
    plain: object = text
    if inner is int:
        if not _INTEGER.fullmatch(text):
            raise invalid_argument(name, text, "it must be an integer")
        plain = int(text)
    elif inner is bool:
        if text not in ("true", "false"):
            raise invalid_argument(name, text, "it must be true or false")
        plain = text == "true"
    return read_value(kind, plain, name)
