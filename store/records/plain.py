"""Values as JSON for people and programs: how a type is written, how it is read, and the JSON Schema that says both.

One type has one form, in Python (`to_dict`), on the command line and in REST. A class of attrs is an object with its
fields and its `derived` properties; the names of a `CamelNames` have camel case there. Reading is strict: nothing is
converted, an unknown field is refused with the similar name, and every problem has the path of its value. A copy of
`STRICT` reads another spelling, by other hooks.
"""

from __future__ import annotations

import base64
import math
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import cache, partial
from typing import (
    TYPE_CHECKING,
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
from cattrs import Converter
from cattrs.gen import make_dict_unstructure_fn, override

from eventproc.store.model.argument_checks import INT_MAX
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


if TYPE_CHECKING:
    derived = property
else:

    class derived(property):  # noqa: N801  # used as `property` is
        """A property that is shown as a field: it follows from the fields of its object."""


class CamelNames:
    """A value as Pravega's REST has it: the names of its fields have camel case in JSON."""


@attrs.frozen
class ValueProblem:
    """What is wrong at a path, such as "ranges[1].low". value: attrs.NOTHING if the field is missing or unknown."""

    path: str
    value: object
    reason: str

    def below(self, path: str) -> ValueProblem:
        """Return the problem of a part that lies at `path`."""
        inner = self.path if not self.path or self.path.startswith("[") else f".{self.path}"
        return attrs.evolve(self, path=path + inner)


class Malformed(Exception):
    """JSON does not describe a value of the type. problems: at least one, in the order of the text."""

    def __init__(self, problems: Sequence[ValueProblem]) -> None:
        super().__init__(*problems)
        self.problems = problems


def malformed(value: object, reason: str) -> Malformed:
    """Return the error for one value."""
    return Malformed([ValueProblem("", value, reason)])


def camel(name: str) -> str:
    """Return a name of Python in camel case: `scopeName` for `scope_name`."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def why_unknown(name: str, known: Iterable[str]) -> str:
    """Return the reason for an unknown name: with the similar one, or with all."""
    from difflib import get_close_matches

    names = sorted(known)
    similar = get_close_matches(name, names, n=1, cutoff=SIMILAR)
    possible = f"did you mean {similar[0]!r}?" if similar else f"possible: {', '.join(names) or 'none'}"
    return f"it is unknown; {possible}"


@cache
def fields_of(kind: Any) -> Mapping[str, attrs.Attribute[Any]]:
    """Return the public fields of a class of attrs, with their types, by their names in JSON."""
    plain, arguments = get_origin(kind) or kind, get_args(kind)
    spelled: Callable[[str], str] = camel if issubclass(plain, CamelNames) else str
    fields: tuple[Any, ...] = attrs.fields(attrs.resolve_types(plain))
    if arguments:  # of a type with parameters
        given = dict(zip(getattr(plain, "__parameters__", ()), arguments, strict=True))
        fields = tuple(
            each.evolve(type=each.type[arguments])
            if getattr(each.type, "__parameters__", ())
            else each.evolve(type=given.get(each.type, each.type))
            for each in fields
        )
    return {spelled(each.name): each for each in fields if not each.name.startswith("_")}


@cache
def _derived_of(kind: Any) -> Mapping[str, Any]:
    """Return the types of the derived properties of a class of attrs, by their names."""
    members = {name: each for base in reversed(kind.__mro__) for name, each in vars(base).items()}
    return {
        name: get_type_hints(each.fget)["return"]
        for name, each in members.items()
        if isinstance(each, derived)
    }


# Reading.

Member: TypeAlias = tuple[str, str, object]
"""Of an object: its path, the name of its field, and its value."""


def _members(_: Any, plain: Mapping[str, object]) -> Iterator[Member | ValueProblem]:
    return ((name, name, value) for name, value in plain.items())


def read_object(
    converter: Converter,
    plain: object,
    kind: Any,
    members: Callable[[Any, Mapping[str, object]], Iterator[Member | ValueProblem]] = _members,
) -> Any:
    """Return the value of a class of attrs that an object describes. Raises Malformed with every problem.

    members: takes the class and the object, and yields its members, or why one of them is refused.
    """
    fields, problems = fields_of(kind), list[ValueProblem]()
    seen: dict[str, Any] = {}
    for each in members(kind, _read_json_object(plain, kind)):
        if isinstance(each, ValueProblem):
            problems.append(each)
            continue
        path, name, value = each
        if name not in fields:
            problems.append(ValueProblem(path, attrs.NOTHING, why_unknown(name, fields)))
        elif name in seen:
            problems.append(ValueProblem(path, attrs.NOTHING, f"{name} is given twice"))
        else:
            seen[name] = _read_part(converter, value, fields[name].type, path, problems)
    problems += [
        ValueProblem(name, attrs.NOTHING, "it is required")
        for name, each in fields.items()
        if each.default is attrs.NOTHING and name not in seen
    ]
    if problems:
        raise Malformed(problems)
    return kind(**{fields[name].name: value for name, value in seen.items()})


def read_array(converter: Converter, plain: object, kind: Any) -> tuple[Any, ...]:
    """Return the tuple that an array describes. Raises Malformed with every problem."""
    if not isinstance(plain, (list, tuple)):
        raise malformed(plain, "it must be an array")
    item, problems = get_args(kind)[0], list[ValueProblem]()
    found = tuple(
        _read_part(converter, each, item, f"[{number}]", problems)
        for number, each in enumerate(cast("Sequence[object]", plain))
    )
    if problems:
        raise Malformed(problems)
    return found


def _read_part(
    converter: Converter, plain: object, kind: Any, path: str, problems: list[ValueProblem]
) -> Any:
    """Return the value of a part; None, with its problems added, if it is not valid."""
    try:
        return converter.structure(plain, kind)
    except Malformed as why:
        problems += [each.below(path) for each in why.problems]
        return None


def _read_limited(converter: Converter, plain: object, kind: Any) -> Any:
    inner, limits = get_args(kind)
    value = converter.structure(plain, inner)
    size = len(value) if isinstance(value, tuple) else value
    if limits.least is not None and size is not None and size < limits.least:
        raise malformed(plain, f"the least possible is {limits.least}")
    if limits.most is not None and size is not None and size > limits.most:
        raise malformed(plain, f"the most possible is {limits.most}")
    return value


def _read_choice(plain: object, kind: Any) -> Any:
    for each in get_args(kind) or kind:  # members of a StrEnum are texts
        if plain == each:
            return each
    raise malformed(plain, f"it must be one of {', '.join(get_args(kind) or kind)}")


def _read_text(plain: object, _: Any) -> str:
    if not isinstance(plain, str):
        raise malformed(plain, "it must be a text")
    try:
        plain.encode()
    except UnicodeEncodeError:
        raise malformed(plain, "it has half of a surrogate pair") from None
    return plain


def _read_segment(plain: object, _: Any) -> SegmentId:
    try:
        return parse_segment(_read_text(plain, str))
    except InvalidArgument as why:
        raise malformed(plain, why.reason) from None


def _read_bool(plain: object, _: Any) -> bool:
    if not isinstance(plain, bool):
        raise malformed(plain, "it must be true or false")
    return plain


def _read_number(plain: object, kind: Any) -> int | float:
    if not (type(plain) is int or (kind is float and type(plain) is float)):
        raise malformed(plain, "it must be an integer" if kind is int else "it must be a number")
    # In this order: an integer may be too large for a float.
    if abs(plain) > INT_MAX or not math.isfinite(plain):
        raise malformed(plain, "it does not fit into 64 bits")
    return plain if kind is int else float(plain)


def _read_json_object(plain: object, _: Any) -> Mapping[str, object]:
    if not isinstance(plain, Mapping):
        raise malformed(plain, "it must be an object")
    return cast("Mapping[str, object]", plain)


# The converter: which function writes or reads which types. Of two that fit a type, the later one counts.


def _is_class(kind: Any) -> bool:
    return attrs.has(get_origin(kind) or kind)


def is_tuple(kind: Any) -> bool:
    """Return whether a type is a tuple with a type of entries."""
    return get_origin(kind) is tuple


def _is_limited(kind: Any) -> bool:
    return get_origin(kind) is Annotated


def _is_choice(kind: Any) -> bool:
    return get_origin(kind) is Literal or (isinstance(kind, type) and issubclass(kind, StrEnum))


def _writer(kind: Any, converter: Converter) -> Callable[[Any], dict[str, Any]]:
    names: Any = {each.name: override(omit=True) for each in attrs.fields(get_origin(kind) or kind)}
    names |= {each.name: override(rename=name) for name, each in fields_of(kind).items()}
    fields, more = make_dict_unstructure_fn(kind, converter, **names), _derived_of(get_origin(kind) or kind)
    if not more:
        return fields
    return lambda value: {
        **fields(value),
        **{name: converter.unstructure(getattr(value, name), type_) for name, type_ in more.items()},
    }


STRICT: Final = Converter(unstruct_collection_overrides={Sequence: list})
"""Writes every type, and reads those of bodies. Its `structure` raises Malformed."""

STRICT.register_unstructure_hook_factory(_is_class, _writer)
STRICT.register_unstructure_hook(StreamCut, str)
STRICT.register_unstructure_hook(bytes, lambda value: base64.b64encode(value).decode())
STRICT.register_unstructure_hook_func(lambda kind: kind is SegmentId, format_segment)
STRICT.register_structure_hook_factory(_is_class, lambda _, converter: partial(read_object, converter))
STRICT.register_structure_hook_factory(is_tuple, lambda _, converter: partial(read_array, converter))
STRICT.register_structure_hook_factory(_is_limited, lambda _, converter: partial(_read_limited, converter))
STRICT.register_structure_hook(StrEnum, _read_choice)
STRICT.register_structure_hook(str, _read_text)
STRICT.register_structure_hook(bool, _read_bool)
STRICT.register_structure_hook(int, _read_number)
STRICT.register_structure_hook(float, _read_number)
STRICT.register_structure_hook_func(_is_choice, _read_choice)
STRICT.register_structure_hook_func(lambda kind: kind is SegmentId, _read_segment)
STRICT.register_structure_hook_func(lambda kind: kind == JsonObject, _read_json_object)


def to_dict(description: object) -> dict[str, Any]:
    """Return a description as a dict of JSON values, in the form that the command line and REST have.

    description: what a method such as `describe`, `status` or `list` returns, or one of its parts.
    """
    plain: dict[str, Any] = STRICT.unstructure(description)
    return plain


# Schemas.


def schema_of(kind: Any, classes: dict[str, Schema]) -> Schema:
    """Return the schema of a type. classes: takes the schemas of the classes in it, by name."""
    limits = Limits()
    if get_origin(kind) is Annotated:
        kind, limits = get_args(kind)
    schema = _plain_schema(kind, classes)
    low, high = ("minItems", "maxItems") if schema.get("type") == "array" else ("minimum", "maximum")
    if limits.least is not None:
        schema[low] = limits.least
    if limits.most is not None:
        schema[high] = limits.most
    if limits.about:
        schema["description"] = limits.about
    return schema


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
    if kind is type(None):
        return {"type": "null"}
    if origin in (Union, types.UnionType):
        return {"anyOf": [schema_of(each, classes) for each in arguments]}
    if _is_choice(kind):
        return {"type": "string", "enum": list(arguments or kind)}
    if origin is tuple and arguments[-1] is not Ellipsis:
        parts = [schema_of(each, classes) for each in arguments]
        return {"type": "array", "prefixItems": parts, "minItems": len(parts), "maxItems": len(parts)}
    if origin in (tuple, list, Sequence):
        return {"type": "array", "items": schema_of(arguments[0], classes)}
    if kind == JsonObject:
        return {"type": "object"}
    if origin in (dict, Mapping):
        return {"type": "object", "additionalProperties": schema_of(arguments[1], classes)}
    assert _is_class(kind), f"{kind} has no form in JSON"
    if origin is not kind:  # of a type with parameters
        return object_schema(kind, classes)
    if kind.__name__ not in classes:
        classes[kind.__name__] = {}  # a class may contain itself
        classes[kind.__name__] = object_schema(kind, classes)
    return {"$ref": REFERENCE + kind.__name__}


def object_schema(kind: Any, classes: dict[str, Schema]) -> Schema:
    """Return the schema of a class of attrs itself. classes: as of `schema_of`."""
    fields = fields_of(kind)
    types_of = {**{name: each.type for name, each in fields.items()}, **_derived_of(get_origin(kind) or kind)}
    schema: Schema = {
        "type": "object",
        "properties": {name: schema_of(each, classes) for name, each in types_of.items()},
        "additionalProperties": False,
    }
    if required := [name for name, each in fields.items() if each.default is attrs.NOTHING]:
        schema["required"] = required
    if kind.__doc__:
        schema["description"] = " ".join(kind.__doc__.split("\n\n")[0].split())
    return schema
