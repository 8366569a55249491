"""Values without parts: numbers, text, what becomes text, and one of some values (Enum, Literal).

Nothing is converted: a reader or writer raises ValueMismatch for a value that is not of the type. Only an integer
is also a valid float.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from enum import Flag
from inspect import isclass
from types import NoneType
from typing import Any, Final

from cattrs import Converter

from eventproc.streams.payloads.hooks import Read, Write
from eventproc.streams.payloads.kinds import choices_of, is_choice, scalar_of, text_forms
from eventproc.streams.payloads.mismatch import mismatch, type_name


def scalar_reader(_: Converter, kind: Any) -> Read:
    """Return what reads a number, a boolean or text."""
    base = scalar_of(kind)
    assert base is not None
    name, is_base = base.__name__, kind is base

    def read(value: Any, _: Any) -> Any:
        if type(value) is base:
            return value if is_base else kind(value)
        if base is float and type(value) is int:
            return kind(value)
        raise mismatch(name, value)

    return read


def scalar_writer(_: Converter, kind: Any) -> Write:
    """Return what writes a number, a boolean or text."""
    base = scalar_of(kind)

    def write(value: Any) -> Any:
        if type(value) is kind:
            return value
        if isinstance(value, kind) and (kind is not int or not isinstance(value, bool)):
            return value
        if base is float and isinstance(value, int) and not isinstance(value, bool):
            return value  # as type checkers have it
        raise mismatch(type_name(kind), value)

    return write


def read_none(value: Any, _: Any) -> None:
    """Return None for null."""
    if value is not None:
        raise mismatch("None", value)


def write_none(value: Any) -> None:
    """Return None for None."""
    read_none(value, None)


def text_reader(_: Converter, kind: Any) -> Read:
    """Return what reads a value that is text in JSON, such as a UUID."""
    forms = text_forms(kind)
    assert forms is not None
    parse, name = forms[0], kind.__name__

    def read(value: Any, _: Any) -> Any:
        if type(value) is not str:
            raise mismatch(f"{name} as text", value)
        try:
            return parse(value)
        except (ValueError, ArithmeticError) as error:
            raise mismatch(name, value) from error

    return read


def text_writer(_: Converter, kind: Any) -> Write:
    """Return what writes a value as text."""
    forms = text_forms(kind)
    assert forms is not None
    text, name = forms[1], kind.__name__

    def write(value: Any) -> str:
        if not isinstance(value, kind) or (kind is datetime.date and isinstance(value, datetime.datetime)):
            raise mismatch(name, value)
        return text(value)

    return write


def _is_flag(kind: Any) -> bool:
    return isclass(kind) and issubclass(kind, Flag)


def choice_reader(_: Converter, kind: Any) -> Read:
    """Return what reads a member of an Enum or Literal."""
    choices, is_flag = choices_of(kind), _is_flag(kind)
    name = type_name(kind)

    def read(value: Any, _: Any) -> Any:
        try:
            return choices[type(value), value]
        except (KeyError, TypeError):
            if is_flag and type(value) is int:
                return kind(value)
            raise mismatch(name, value) from None

    return read


def choice_writer(_: Converter, kind: Any) -> Write:
    """Return what writes a member of an Enum or Literal."""
    choices = choices_of(kind)
    forms = {(type(member), member): form for (_, form), member in choices.items()}
    name, is_flag = type_name(kind), _is_flag(kind)

    def write(value: Any) -> Any:
        try:
            return forms[type(value), value]
        except (KeyError, TypeError):
            if is_flag and isinstance(value, kind):
                return value.value
            raise mismatch(name, value) from None

    return write


def plain_json(value: Any) -> Any:
    """Return a value that JSON has a form for by itself."""
    found = type(value)
    if found is list:
        for each in value:
            plain_json(each)
    elif found is dict:
        for key, each in value.items():
            if type(key) is not str:
                raise mismatch("a key of str", key)
            plain_json(each)
    elif found not in (str, int, float, bool, NoneType):
        raise mismatch("a value of JSON, because the type does not say which class it has", value)
    return value


LEAVES: Final[tuple[tuple[Callable[[Any], bool], Any, Any], ...]] = (
    (is_choice, choice_reader, choice_writer),
    (lambda kind: scalar_of(kind) is not None, scalar_reader, scalar_writer),
    (lambda kind: text_forms(kind) is not None, text_reader, text_writer),
)
"""As `KINDS`, for types without parts. The first row that applies decides."""
