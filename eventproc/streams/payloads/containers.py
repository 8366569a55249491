"""Arrays, and objects with any keys: list, tuple, set, deque, dict and what derives from them."""

from __future__ import annotations

import collections
import json
from collections.abc import Callable
from functools import partial
from inspect import isclass
from types import GenericAlias
from typing import Any, Generic, TypeVar, get_args, get_origin

from cattrs import Converter
from cattrs.cols import list_structure_factory, mapping_structure_factory

from eventproc.streams.payloads.hooks import Read, Write, reader_of, writer_of
from eventproc.streams.payloads.kinds import array_of, element_of, forms_of, key_and_value, object_of
from eventproc.streams.payloads.mismatch import UnsupportedPayloadType, mismatch, type_name

K = TypeVar("K")


def array_reader(converter: Converter, kind: Any) -> Read:
    """Return what reads an array whose elements have one type."""
    make, element = array_of(kind), element_of(kind)
    assert make is not None
    of_elements: Any = GenericAlias(list, (element,))
    read_list = list_structure_factory(of_elements, converter)
    exact = {element} if element in (int, str, bool, float) else None

    def read(value: Any, _: Any) -> Any:
        if type(value) is not list:
            raise mismatch("an array", value)
        # Comparing the set of classes costs a fifth of a call per element.
        if exact is None or not exact.issuperset(map(type, value)):
            value = read_list(value, of_elements)
        return value if make is list else make(value)

    return read


def array_writer(converter: Converter, kind: Any) -> Write:
    """Return what writes the elements of a list, tuple, set or deque."""
    origin = get_origin(kind) or kind
    element = element_of(kind)
    write_element, name = writer_of(converter, element), type_name(kind)
    exact = {element} if element in (int, str, bool, float) else None

    def write(value: Any) -> list[Any]:
        if not isinstance(value, origin) or isinstance(value, (str, bytes)):
            raise mismatch(name, value)
        if exact is not None and exact.issuperset(map(type, value)):
            return value if type(value) is list else list(value)
        return [write_element(each) for each in value]

    return write


def tuple_reader(converter: Converter, kind: Any) -> Read:
    """Return what reads an array of fixed length, with a type for each element."""
    count = len(get_args(kind))
    read_elements = converter.gen_structure_hetero_tuple(kind)

    def read(value: Any, into: Any) -> Any:
        if type(value) is not list:
            raise mismatch(f"an array of {count}", value)
        if len(value) != count:
            raise mismatch(f"an array of {count}", value)
        return read_elements(value, into)

    return read


def tuple_writer(converter: Converter, kind: Any) -> Write:
    """Return what writes a tuple of fixed length."""
    writers = [writer_of(converter, each) for each in get_args(kind)]
    name = type_name(kind)

    def write(value: Any) -> list[Any]:
        if not isinstance(value, tuple) or len(value) != len(writers):
            raise mismatch(name, value)
        return [write_element(each) for write_element, each in zip(writers, value, strict=True)]

    return write


class TextKey(Generic[K]):
    """Marks the type of a mapping's keys, because JSON has keys of text only."""


def _text_key(key: Any) -> Any:
    return GenericAlias(TextKey, (key,))


def object_reader(converter: Converter, kind: Any) -> Read:
    """Return what reads an object into a dict or what derives from it."""
    make: Any = object_of(kind)
    construct: Callable[[Any], Any] | None = None if make is dict else make
    key, element = key_and_value(kind)
    if isclass(make) and issubclass(make, collections.defaultdict):
        if not get_args(kind):
            raise UnsupportedPayloadType("a defaultdict needs the types of its keys and values")
        construct = partial(make, element)
    of_values: Any = GenericAlias(dict, (_text_key(key), element))
    read_values = mapping_structure_factory(of_values, converter)
    plain = key in (str, Any) and element is Any

    def read(value: Any, _: Any) -> Any:
        if type(value) is not dict:
            raise mismatch("an object", value)
        found = value if plain else read_values(value, of_values)
        return found if construct is None else construct(found)

    return read


def object_writer(converter: Converter, kind: Any) -> Write:
    """Return what writes a mapping."""
    origin = get_origin(kind) or kind
    key, element = key_and_value(kind)
    write_key, write_value = writer_of(converter, _text_key(key)), writer_of(converter, element)
    name = type_name(kind)

    def write(value: Any) -> dict[str, Any]:
        if not isinstance(value, origin):
            raise mismatch(name, value)
        return {write_key(each): write_value(inner) for each, inner in value.items()}

    return write


def _key_forms(kind: Any) -> tuple[Any, bool]:
    """Return the type of a marked key, and whether JSON has it as text. Raises UnsupportedPayloadType."""
    key = get_args(kind)[0]
    forms = {str} if key is Any else forms_of(key)
    if forms == {str}:
        return (str if key is Any else key), True
    if forms and forms <= {int, float, bool}:
        return key, False
    raise UnsupportedPayloadType(f"keys of a JSON object are text, which cannot become {type_name(key)}")


def key_reader(converter: Converter, kind: Any) -> Read:
    """Return what reads the key of a mapping, which is text in JSON."""
    key, is_text = _key_forms(kind)
    read_key = reader_of(converter, key)
    if is_text:
        return lambda value, _: read_key(value, key)

    def read(value: Any, _: Any) -> Any:
        try:
            parsed = json.loads(value)
        except ValueError:
            raise mismatch(type_name(key), value) from None
        return read_key(parsed, key)

    return read


def key_writer(converter: Converter, kind: Any) -> Write:
    """Return what writes the key of a mapping as text."""
    key, is_text = _key_forms(kind)
    write_key = writer_of(converter, key)
    return write_key if is_text else lambda value: json.dumps(write_key(value))
