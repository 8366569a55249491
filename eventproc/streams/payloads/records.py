"""Values with named fields: classes of attrs, dataclasses, TypedDict and NamedTuple."""

from __future__ import annotations

import dataclasses
from typing import Any, get_origin

import attrs
from cattrs import Converter
from cattrs.errors import AttributeValidationNote, ClassValidationError
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override

from eventproc.streams.payloads.hooks import Read, Write, generating, reader_of, writer_of
from eventproc.streams.payloads.kinds import fields_of, record_fields, required_keys, types_of_named
from eventproc.streams.payloads.mismatch import mismatch, type_name


def _record_overrides(found: Any) -> dict[str, Any]:
    """Return what cattrs has to do differently: keep fields that __init__ does not take but a default sets."""
    missing = (attrs.NOTHING, dataclasses.MISSING)
    return {
        field.name: override(omit=False)
        for field in record_fields(found)
        if not field.init
        and (field.default not in missing or getattr(field, "default_factory", missing[1]) not in missing)
    }


def _prepare_record(kind: Any) -> tuple[Any, dict[str, Any]]:
    found = get_origin(kind) or kind
    fields_of(kind)
    if attrs.has(found) and any(isinstance(field.type, str) for field in attrs.fields(found)):
        attrs.resolve_types(found, localns={found.__name__: found})
    return found, _record_overrides(found)


def record_reader(converter: Converter, kind: Any) -> Read:
    """Return what reads an object into an instance of a class of attrs or a dataclass."""
    _, overrides = _prepare_record(kind)
    read_fields = make_dict_structure_fn(
        kind, converter, _cattrs_detailed_validation=converter.detailed_validation, **overrides
    )

    def read(value: Any, into: Any) -> Any:
        if type(value) is not dict:
            raise mismatch("an object", value)
        return read_fields(value, into)

    read.overrides = read_fields.overrides  # type: ignore[attr-defined]  # where cattrs looks for them
    return read


def record_writer(converter: Converter, kind: Any) -> Write:
    """Return what writes the fields of an instance, which is not one of a subclass."""
    found, overrides = _prepare_record(kind)
    write_fields = make_dict_unstructure_fn(kind, converter, **overrides)
    name = type_name(kind)

    def write(value: Any) -> Any:
        if value.__class__ is not found:  # a reader would make an instance of the base
            raise mismatch(name, value)
        return write_fields(value)

    return write


def typed_dict_reader(converter: Converter, kind: Any) -> Read:
    """Return what reads an object into a TypedDict."""
    fields_of(kind)
    read_fields = converter.gen_structure_typeddict(kind)

    def read(value: Any, into: Any) -> Any:
        if type(value) is not dict:
            raise mismatch("an object", value)
        return read_fields(value, into)

    return read


def typed_dict_writer(converter: Converter, kind: Any) -> Write:
    """Return what writes a TypedDict that has its keys and no others."""
    write_fields = converter.gen_unstructure_typeddict(kind)
    name = type_name(kind)
    required, known = required_keys(kind), fields_of(kind).keys()

    def write(value: Any) -> Any:
        if not isinstance(value, dict):
            raise mismatch(name, value)
        if not required <= value.keys() <= known:
            raise mismatch(f"{name} with the keys {', '.join(sorted(known))}", sorted(value))
        return write_fields(value)

    return write


def named_tuple_reader(converter: Converter, kind: Any) -> Read:
    """Return what reads an array into a NamedTuple; elements with defaults may be missing."""
    found: Any = get_origin(kind) or kind
    with generating(kind):
        fields = [(name, each, reader_of(converter, each)) for name, each in types_of_named(kind).items()]
    least = len(fields) - len(found._field_defaults)

    def read(value: Any, _: Any) -> Any:
        if type(value) is not list or not least <= len(value) <= len(fields):
            raise mismatch(f"an array of {len(fields)}", value)
        elements, errors = [], []
        for part, (name, each, read_field) in zip(value, fields, strict=False):
            try:
                elements.append(read_field(part, each))
            except Exception as error:
                note: Any = AttributeValidationNote
                error.add_note(note(f"Structuring {name}", name, each))
                errors.append(error)
        if errors:
            group: Any = ClassValidationError
            raise group(f"While structuring {found!r}", errors, found)
        make: Any = found
        return make(*elements)

    return read


def named_tuple_writer(converter: Converter, kind: Any) -> Write:
    """Return what writes a NamedTuple."""
    found = get_origin(kind) or kind
    with generating(kind):
        writers = [writer_of(converter, each) for each in types_of_named(kind).values()]
    name = type_name(kind)

    def write(value: Any) -> list[Any]:
        if value.__class__ is not found:
            raise mismatch(name, value)
        return [write_field(each) for write_field, each in zip(writers, value, strict=True)]

    return write
