"""Payload types of pydantic and msgspec, which bring their own JSON. Neither library is imported here.

A pydantic model converts as its own configuration says, which may be lax (`"5"` for an int) or strict.
"""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from collections.abc import Callable, Iterator
from inspect import isclass
from types import ModuleType, NoneType, UnionType
from typing import Annotated, Any, Final, Protocol, Union, get_args, get_origin

from eventproc.streams.payloads.mismatch import (
    UnsupportedPayloadType,
    ValueMismatch,
    describe,
    joined,
    mismatch,
    msgspec_error,
    type_name,
)


class ModelFamily(Protocol):
    """How the types of one library are converted."""

    def json_codec(self, kind: Any) -> tuple[Callable[[Any], bytes], Callable[[bytes], Any]]:
        """Return how values become bytes and back. Raises UnsupportedPayloadType."""
        ...

    def plain_codec(self, kind: Any) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
        """Return how values become dicts, lists and scalars of JSON, and back, as part of another type's JSON."""
        ...


def family_of(kind: Any) -> ModelFamily | None:
    """Return the library that converts a type or a union of its types; None if it is neither."""
    members = _members(kind)
    if "pydantic" in sys.modules and members and all(map(_is_pydantic, members)):
        return _PYDANTIC
    if "msgspec" in sys.modules and members and all(map(_is_struct, members)):
        return _MSGSPEC
    return None


def _members(kind: Any) -> tuple[Any, ...]:
    """Return the members of a union without None; else the type itself."""
    origin = get_origin(kind)
    if origin is Annotated:
        return _members(get_args(kind)[0])
    if origin in (Union, UnionType):
        return tuple(each for each in get_args(kind) if each is not NoneType)
    return (kind,)


def _is_pydantic(kind: Any) -> bool:
    found = get_origin(kind) or kind
    if not isclass(found):
        return False
    is_dataclass = dataclasses.is_dataclass(found) and "__pydantic_validator__" in vars(found)
    return is_dataclass or issubclass(found, sys.modules["pydantic"].BaseModel)


def _is_struct(kind: Any) -> bool:
    found = get_origin(kind) or kind
    return isclass(found) and issubclass(found, sys.modules["msgspec"].Struct)


class _Pydantic:
    def json_codec(self, kind: Any) -> tuple[Callable[[Any], bytes], Callable[[bytes], Any]]:
        adapter, options, check = self._prepared(kind)
        return lambda value: adapter.dump_json(check(value), **options), adapter.validate_json

    def plain_codec(self, kind: Any) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
        adapter, options, check = self._prepared(kind)
        return (
            lambda value: adapter.dump_python(check(value), mode="json", **options),
            # As text, because pydantic accepts from JSON what it does not accept from Python, such as base64.
            lambda value: adapter.validate_json(json.dumps(value)),
        )

    def _prepared(self, kind: Any) -> tuple[Any, dict[str, Any], Callable[[Any], Any]]:
        adapter = sys.modules["pydantic"].TypeAdapter(kind)
        models = list(_models(adapter.core_schema))
        for model in models:
            for name, field in _fields(model).items():
                _check_pydantic_field(name, field["schema"])
        if len(_members(kind)) > 1 and adapter.core_schema["type"] != "tagged-union":
            raise UnsupportedPayloadType("readers cannot tell its models apart; give them a discriminator")
        by_alias = not all(_reads_back(model, by_alias=False) for model in models)
        if by_alias and not all(_reads_back(model, by_alias=True) for model in models):
            raise UnsupportedPayloadType(
                "one of its fields is excluded from writing, or written under another alias than it is read"
            )
        # round_trip: without computed fields, which a reader would refuse or ignore
        return adapter, {"by_alias": by_alias, "round_trip": True, "warnings": "error"}, _exactly(kind)


class _Msgspec:
    def json_codec(self, kind: Any) -> tuple[Callable[[Any], bytes], Callable[[bytes], Any]]:
        msgspec, check = self._prepared(kind)
        encode = msgspec.json.Encoder().encode
        read = msgspec.json.Decoder(kind).decode

        def decode(payload: bytes) -> Any:
            try:
                return read(payload)
            except msgspec.ValidationError as error:
                # msgspec stops at the first bad field: look at each of them.
                errors = _struct_mismatches(msgspec.json.decode(payload), kind)
                raise ValueMismatch(joined(errors) or describe(error)) from error

        return lambda value: encode(check(value)), decode

    def plain_codec(self, kind: Any) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
        msgspec, check = self._prepared(kind)
        return (
            lambda value: msgspec.to_builtins(check(value), str_keys=True),
            lambda value: msgspec.convert(value, kind, str_keys=True),
        )

    def _prepared(self, kind: Any) -> tuple[ModuleType, Callable[[Any], Any]]:
        import msgspec.inspect

        _check_struct(msgspec.inspect.type_info(kind), "", set())
        return msgspec, _exactly(kind)


def _exactly(kind: Any) -> Callable[[Any], Any]:
    """Return a check of a value's class: an instance of a subclass would be read back as its base."""
    classes = {get_origin(each) or each for each in _members(kind)}
    if NoneType in get_args(kind):
        classes.add(NoneType)
    name = type_name(kind)

    def check(value: Any) -> Any:
        if value.__class__ not in classes:
            raise mismatch(name, value)
        return value

    return check


def _models(schema: Any) -> Iterator[dict[str, Any]]:
    """Yield the models and dataclasses in a schema of pydantic."""
    if isinstance(schema, list | tuple):
        for each in schema:
            yield from _models(each)
    elif isinstance(schema, dict):
        if schema.get("type") in ("model", "dataclass"):
            yield schema
        for name, each in schema.items():
            if name not in ("metadata", "serialization", "python_schema", "default", "config"):
                yield from _models(each)


def _fields(model: dict[str, Any]) -> dict[str, Any]:
    inner = model["schema"]
    while "fields" not in inner:
        if "schema" not in inner:
            return {}  # a root model
        inner = inner["schema"]
    fields = inner["fields"]
    return fields if isinstance(fields, dict) else {each["name"]: each for each in fields}


_PYDANTIC_INNER: Final = ("schema", "items_schema", "values_schema")
"""Where pydantic's schema of a default, an optional type, an array or an object has the schema of its values."""


def _check_pydantic_field(path: str, schema: dict[str, Any]) -> None:
    inner: Any = schema
    while inner is not None:
        schema = inner
        inner = next((schema[part] for part in _PYDANTIC_INNER if part in schema), None)
    if schema["type"] in ("is-instance", "is-subclass", "callable"):
        found = type_name(schema["cls"]) if "cls" in schema else schema["type"]
        raise UnsupportedPayloadType(f"the field {path!r} is {found}, which JSON has no form for")


def _reads_back(model: dict[str, Any], *, by_alias: bool) -> bool:
    config = model.get("config", {})
    by_name = config.get("populate_by_name") or config.get("validate_by_name")
    for name, field in _fields(model).items():
        written = field.get("serialization_alias", name) if by_alias else name
        alias = field.get("validation_alias", name)
        read = [alias] if isinstance(alias, str) else [path[0] for path in alias if len(path) == 1]
        if field.get("serialization_exclude") or (written not in read and not (by_name and written == name)):
            return False
    return True


def _check_struct(found: Any, path: str, seen: set[Any]) -> None:
    """Raise UnsupportedPayloadType if msgspec calls a part of the type custom: it has hooks for it, but no JSON.

    found: the type as `msgspec.inspect` describes it. seen: classes that were checked.
    """
    if type(found).__name__ == "CustomType":
        raise UnsupportedPayloadType(
            f"the field {path!r} is {type_name(found.cls)}, which JSON has no form for"
        )
    if (kind := getattr(found, "cls", None)) is not None:
        if kind in seen:
            return
        seen.add(kind)
    for field in getattr(found, "fields", ()):
        _check_struct(field.type, f"{path}.{field.name}" if path else field.name, seen)
    for part in ("item_type", "key_type", "value_type"):
        if (inner := getattr(found, part, None)) is not None:
            _check_struct(inner, f"{path}[]", seen)
    for part in ("types", "item_types"):
        for inner in getattr(found, part, ()):
            _check_struct(inner, path, seen)


def _struct_mismatches(value: Any, kind: Any) -> list[tuple[str, str]]:
    """Return what is wrong with each field of parsed JSON; nothing if the type is not one struct."""
    import msgspec

    found: list[tuple[str, str]] = []
    struct: Any = kind
    if isinstance(value, dict) and isclass(kind) and not struct.__struct_config__.tag_field:
        for field in msgspec.structs.fields(struct):
            if field.encode_name not in value:
                if field.required:
                    found.append((field.encode_name, "missing"))
                continue
            part = value[field.encode_name]
            try:
                msgspec.convert(part, field.type, str_keys=True)
            except msgspec.ValidationError as error:
                path, text = msgspec_error(error, f".{field.encode_name}")
                if path == f".{field.encode_name}" and (
                    expected := re.fullmatch(r"expected (.*), got \w+", text)
                ):
                    text = str(mismatch(expected[1], part))
                found.append((path, text))
    return found


_PYDANTIC: Final = _Pydantic()
_MSGSPEC: Final = _Msgspec()
