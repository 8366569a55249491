"""Payloads as JSON, by cattrs: strict in both directions, so that readers return what a writer accepted.

A class of attrs, a dataclass or a TypedDict becomes an object, a NamedTuple an array, an Enum its values. A type for
which this cannot be promised is refused when its codec is made, with the path of the field.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import cache, partial
from inspect import isclass
from typing import Any, Final, TypeVar, get_origin, is_typeddict

from cattrs import Converter
from cattrs.errors import StructureHandlerNotFoundError

from eventproc.streams.payloads.containers import (
    TextKey,
    array_reader,
    array_writer,
    key_reader,
    key_writer,
    object_reader,
    object_writer,
    tuple_reader,
    tuple_writer,
)
from eventproc.streams.payloads.hooks import Read, Write
from eventproc.streams.payloads.kinds import (
    array_of,
    children_of,
    is_fixed_tuple,
    is_named_tuple,
    is_record,
    is_union,
    object_of,
    parts_of,
)
from eventproc.streams.payloads.leaves import LEAVES, plain_json
from eventproc.streams.payloads.mismatch import (
    UnsupportedPayloadType,
    ValueMismatch,
    describe,
    joined,
    type_name,
)
from eventproc.streams.payloads.models import family_of
from eventproc.streams.payloads.records import (
    named_tuple_reader,
    named_tuple_writer,
    record_reader,
    record_writer,
    typed_dict_reader,
    typed_dict_writer,
)
from eventproc.streams.payloads.unions import union_reader, union_writer


def model_reader(_: Converter, kind: Any) -> Read:
    """Return what reads a part that pydantic or msgspec converts."""
    family = family_of(kind)
    assert family is not None
    read = family.plain_codec(kind)[1]
    return lambda value, _: read(value)


def model_writer(_: Converter, kind: Any) -> Write:
    """Return what writes a part that pydantic or msgspec converts."""
    family = family_of(kind)
    assert family is not None
    return family.plain_codec(kind)[0]


KINDS: Final[tuple[tuple[Callable[[Any], bool], Any, Any], ...]] = (
    *LEAVES,
    (lambda kind: array_of(kind) is not None, array_reader, array_writer),
    (is_fixed_tuple, tuple_reader, tuple_writer),
    (lambda kind: object_of(kind) is not None, object_reader, object_writer),
    (lambda kind: get_origin(kind) is TextKey, key_reader, key_writer),
    (lambda kind: is_typeddict(get_origin(kind) or kind), typed_dict_reader, typed_dict_writer),
    (is_record, record_reader, record_writer),
    (is_named_tuple, named_tuple_reader, named_tuple_writer),
    (is_union, union_reader, union_writer),
    (lambda kind: kind is Any, lambda *_: lambda value, _: value, lambda *_: plain_json),
    (lambda kind: family_of(kind) is not None, model_reader, model_writer),
)
"""Which types, how to make their reader, and their writer. The last row that applies decides."""

_encode: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, check_circular=False).encode
"""`json.dumps` would make an encoder per call."""


def json_codec(kind: Any) -> tuple[Callable[[Any], bytes], Callable[[bytes], Any]]:
    """Return how values of a type become JSON in UTF-8 and back.

    Raises UnsupportedPayloadType. Cost: about 2 ms.
    """
    converter = _make_converter(detailed=False)
    try:
        _add_leaves(converter, kind, set())
        read: Read = converter.get_structure_hook(kind)
        write: Write = converter.get_unstructure_hook(kind)
    except Exception as error:  # of a user's class too, while its annotations are resolved
        raise UnsupportedPayloadType(_blame(converter, kind, "", error)) from error

    @cache
    def explaining() -> Read:
        # It collects all mismatches with their paths; made only when there is one.
        converter = _make_converter(detailed=True)
        _add_leaves(converter, kind, set())
        return converter.get_structure_hook(kind)

    def encode(value: Any) -> bytes:
        try:
            return _encode(write(value)).encode()
        except ValueMismatch as error:
            # `write` knows the first bad value; this finds all of them, and their paths.
            raise ValueMismatch(joined(_mismatches(converter, kind, value)) or str(error)) from error

    def decode(payload: bytes) -> Any:
        plain = _parse(payload)
        try:
            return read(plain, kind)
        except Exception:
            explaining()(plain, kind)
            raise

    return encode, decode


def _parse(payload: bytes) -> Any:
    try:
        return json.loads(payload.decode())
    except ValueError as error:
        raise ValueMismatch(f"not JSON: {error}") from error


def _make_converter(*, detailed: bool) -> Converter:
    converter = Converter(detailed_validation=detailed)
    for applies, make_reader, make_writer in KINDS:
        converter.register_structure_hook_factory(applies, partial(make_reader, converter))
        converter.register_unstructure_hook_factory(applies, partial(make_writer, converter))
    return converter


def _add_leaves(converter: Converter, kind: Any, seen: set[Any]) -> None:
    """Register each class without parts by itself: cattrs prefers a registered base class to a predicate."""
    if kind in seen:
        return
    seen.add(kind)
    for applies, make_reader, make_writer in LEAVES:
        if isclass(kind) and applies(kind):
            converter.register_structure_hook(kind, make_reader(converter, kind))
            converter.register_unstructure_hook(kind, make_writer(converter, kind))
            return
    for _, part in parts_of(kind):
        _add_leaves(converter, part, seen)


def _blame(converter: Converter, kind: Any, path: str, error: Exception, seen: tuple[Any, ...] = ()) -> str:
    """Return why a type has no codec: the path of the innermost part that has none, and what is wrong with it."""
    try:
        parts = list(parts_of(kind))
    except UnsupportedPayloadType:
        parts = []
    for step, part in parts:
        if part in seen:
            continue
        try:
            _add_leaves(converter, part, set())
            converter.get_structure_hook(part, cache_result=False)
            converter.get_unstructure_hook(part, cache_result=False)
        except Exception as inner:
            return _blame(converter, part, path + step, inner, (*seen, kind))
    if path.startswith("["):
        path = f"payload{path}"
    field = f"the field {path.removeprefix('.')!r}" if path else "it"
    if isinstance(kind, TypeVar):
        return f"{field} is of the type variable {kind}; name the type that it stands for, such as Box[int]"
    if isinstance(error, StructureHandlerNotFoundError):
        return f"{field} is of the type {type_name(kind)}, which JSON has no form for"
    return f"{field} is of the type {type_name(kind)}: {error}" if path else str(error)


def _mismatches(converter: Converter, kind: Any, value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield the path of each part of a value that is not of its type, and what is wrong with it."""
    try:
        converter.get_unstructure_hook(kind)(value)
    except Exception as error:
        found = [
            each
            for step, part, inner in children_of(kind, value)
            for each in _mismatches(converter, part, inner, path + step)
        ]
        yield from found or [(path, describe(error))]
