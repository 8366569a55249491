"""Unions: the form of a value in JSON says which member it belongs to; of several classes, their fields do."""

from __future__ import annotations

from collections.abc import Mapping
from types import NoneType
from typing import Any, Final, get_args

from cattrs import Converter
from cattrs.disambiguators import create_default_dis_func

from eventproc.streams.payloads.hooks import Read, Write, generating, reader_of, writer_of
from eventproc.streams.payloads.kinds import classes_of, forms_of, is_record, scalar_of
from eventproc.streams.payloads.leaves import read_none, write_none
from eventproc.streams.payloads.mismatch import UnsupportedPayloadType, mismatch, type_name

_FORM_NAMES: Final[Mapping[type, str]] = {NoneType: "null", str: "text", list: "an array", dict: "an object"}


def _members_by_form(converter: Converter, kind: Any) -> dict[type, Any]:
    """Return the member of a union that each form in JSON belongs to; several classes as a tuple."""
    found: dict[type, Any] = {}
    # float last: a union with int reads integers as int.
    for member in sorted(get_args(kind), key=lambda each: scalar_of(each) is float):
        for form in forms_of(member):
            other = found.setdefault(form, member)
            if other is member or (form is int and scalar_of(member) is float):
                continue
            others = other if isinstance(other, tuple) else (other,)
            if not all(map(is_record, (*others, member))):
                name = _FORM_NAMES.get(form, "a number")
                raise UnsupportedPayloadType(
                    f"{type_name(others[0])} and {type_name(member)} are both {name} in JSON, so that readers cannot "
                    "tell them apart; use a class for each, with a field of a different Literal type"
                )
            found[form] = (*others, member)
    return found


def _records_reader(converter: Converter, records: tuple[Any, ...]) -> Read:
    try:
        record_of = create_default_dis_func(converter, *records)
    except TypeError as error:
        names = " and ".join(map(type_name, records))
        raise UnsupportedPayloadType(
            f"readers cannot tell {names} apart; give each a field of a different Literal type, "
            "such as `kind: Literal['a']`"
        ) from error
    readers = {record: reader_of(converter, record) for record in records}

    def read(value: Any, _: Any) -> Any:
        try:
            record = record_of(value)
        except (KeyError, ValueError) as error:
            raise mismatch(" or ".join(map(type_name, records)), value) from error
        return readers[record](value, record)

    return read


def union_reader(converter: Converter, kind: Any) -> Read:
    """Return what reads a value into the member of a union that its form belongs to."""
    with generating(kind):
        readers: dict[type, tuple[Read, Any]] = {}
        for form, member in _members_by_form(converter, kind).items():
            if isinstance(member, tuple):
                readers[form] = _records_reader(converter, member), None
            elif form is not NoneType:
                readers[form] = reader_of(converter, member), member
            else:
                readers[form] = read_none, None
    name = type_name(kind)

    def read(value: Any, _: Any) -> Any:
        try:
            read_member, member = readers[type(value)]
        except KeyError:
            raise mismatch(name, value) from None
        return read_member(value, member)

    return read


def union_writer(converter: Converter, kind: Any) -> Write:
    """Return what writes a value as the member of a union that its class belongs to."""
    with generating(kind):
        writers = [
            (each, write_none if member is NoneType else writer_of(converter, member))
            for member in get_args(kind)
            for each in classes_of(member)
        ]
    by_class = dict(reversed(writers))
    name = type_name(kind)

    def write(value: Any) -> Any:
        found = by_class.get(value.__class__)
        if found is None:
            found = next((each for class_, each in writers if isinstance(value, class_)), None)
        if found is None:
            raise mismatch(name, value)
        return found(value)

    return write
