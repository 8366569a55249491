"""Reads a spec from plain values of JSON or YAML, and collects every problem with the path of its value.

The fields of the typed spec say what is possible: nothing here names one. A key may be written as in Druid
(`taskDuration`; `druid_names` has those that differ), and a duration as ISO 8601 or with a unit (`PT1H`, `1h`) instead
of in milliseconds.
"""

from __future__ import annotations

import enum
import json
import re
import types
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import attrs

from eventproc.ingestion.druid_names import INLINE, REFUSED, RENAMED, VALUES
from eventproc.store.model.argument_checks import invalid_argument
from eventproc.store.model.errors import NotSupported
from eventproc.store.model.ingestion_errors import InvalidSpec, SpecProblem

T = TypeVar("T")

_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_SHORT: Final = re.compile(r"(\d+)\s*(ms|s|min|m|h|d)", re.ASCII)
_ISO: Final = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?)?", re.ASCII)
_MISSING: Final = object()


class Problems:
    """What is wrong with a spec: a path and a reason each."""

    def __init__(self) -> None:
        self.found: list[SpecProblem] = []

    def add(self, path: str, reason: str) -> None:
        """Note a problem with the value at `path`."""
        self.found.append(SpecProblem(path or "the spec", reason))

    def check(self, what: str) -> None:
        """Raise InvalidSpec if there are any."""
        if self.found:
            raise InvalidSpec(spec=what, problems=tuple(self.found))


def parse_text(text: str) -> object:
    """Return the plain value of a text in JSON, or in YAML if it is not JSON.

    Raises InvalidArgument; NotSupported if it is YAML and its package is not installed.
    """
    try:
        return json.loads(text)
    except ValueError as error:
        if text.lstrip().startswith(("{", "[")):
            raise invalid_argument("spec", text, f"not valid JSON: {error}") from error
    try:
        import yaml  # an extra: programs that use no YAML need not install it
    except ImportError as error:
        raise NotSupported(
            what="a spec in YAML without PyYAML",
            remedy="run `pip install 'eventproc[yaml]'`, or write the spec in JSON",
        ) from error
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise invalid_argument("spec", text, f"neither JSON nor YAML: {error}") from error


def read_object(kind: type[T], plain: object, path: str, problems: Problems) -> T | None:
    """Return the attrs value of `kind` that `plain` describes; None, with problems noted, if it is not valid."""
    if not isinstance(plain, Mapping):
        problems.add(path, f"it must be an object with the fields of {kind.__name__}")
        return None
    before = len(problems.found)
    types_of = get_type_hints(kind)
    fields = {field.name: field for field in attrs.fields(cast("Any", kind))}
    given: dict[str, Any] = {}
    for key, value, at in _items(kind, cast("Mapping[object, object]", plain), path, problems):
        name = RENAMED.get((kind.__name__, key)) or _field_name(key, fields)
        if name is None:
            instead = REFUSED.get((kind.__name__, key))
            problems.add(at, instead or f"unknown; {kind.__name__} has {', '.join(sorted(fields))}")
        elif name in given:
            problems.add(at, f"{name} is given twice")
        else:
            given[name] = read_value(types_of[name], value, at, problems, ms=name.endswith("_ms"))
    for name, field in fields.items():
        if field.default is attrs.NOTHING and name not in given:
            problems.add(join_path(path, name), "required")
    return kind(**given) if len(problems.found) == before else None


def _items(
    kind: type[object], plain: Mapping[object, object], path: str, problems: Problems
) -> Iterator[tuple[str, object, str]]:
    """Yield (key, value, path) of an object, and of the objects in it that Druid has around some of its fields."""
    for key, value in plain.items():
        at = join_path(path, str(key))
        if (kind.__name__, str(key)) not in INLINE:
            yield str(key), value, at
        elif isinstance(value, Mapping):
            yield from _items(kind, cast("Mapping[object, object]", value), at, problems)
        else:
            problems.add(at, "it must be an object")


def read_value(kind: Any, value: object, path: str, problems: Problems, *, ms: bool = False) -> Any:
    """Return `value` as a `kind`; None, with a problem noted, if it is not one. ms: texts are durations or times."""
    if get_origin(kind) in (Union, types.UnionType):
        if value is None:
            return None
        kind = next(each for each in get_args(kind) if each is not type(None))
    if get_origin(kind) is tuple:
        item = get_args(kind)[0]
        values = value if isinstance(value, (list, tuple)) else [value]
        return tuple(
            read_value(item, each, f"{path}[{index}]", problems)
            for index, each in enumerate(cast("list[object]", values))
        )
    if attrs.has(kind):
        if isinstance(value, str) and "name" in attrs.fields_dict(kind):
            value = {"name": value}  # a dimension by its name
        return read_object(kind, value, path, problems)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return _read_enum(kind, value, path, problems)
    if ms and isinstance(value, str):
        return _read_time(value, path, problems)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        problems.add(path, f"it must be {_name_of(kind)}, not {value!r}")
        return None
    return value


def _read_enum(kind: type[enum.Enum], value: object, path: str, problems: Problems) -> enum.Enum | None:
    for each in kind:
        if value is each or (isinstance(value, str) and _is_same(value, str(each.value))):
            return each
    problems.add(path, f"it must be one of {', '.join(str(each.value) for each in kind)}, not {value!r}")
    return None


def _is_same(text: str, value: str) -> bool:
    """Return whether a text names a value, perhaps as Druid writes it: longSum, DAY, lagBased."""
    plain = text.lower().replace("_", "")
    return VALUES.get(plain, plain) == value.replace("_", "")


def _read_time(text: str, path: str, problems: Problems) -> int | None:
    if match := _SHORT.fullmatch(text.strip()):
        return int(match[1]) * _UNITS_MS[match[2]]
    if (match := _ISO.fullmatch(text.strip())) and any(match.groups()):
        days, hours, minutes, seconds = (int(each or 0) for each in match.groups())
        return ((days * 24 + hours) * 60 + minutes) * 60_000 + seconds * 1_000
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        problems.add(path, f"it must be milliseconds, or a text such as 30s, 1h or PT1H, not {text!r}")
        return None
    return int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1_000)


def _field_name(key: str, fields: Mapping[str, object]) -> str | None:
    snake = re.sub(r"(?<=[a-z0-9])([A-Z])", lambda match: "_" + match[1].lower(), key)
    in_ms = re.sub(r"(_period|_millis|_date_time)$", "", snake)
    for name in (snake, f"{snake}_ms", f"{in_ms}_ms"):
        if name in fields:
            return name
    return None


def join_path(path: str, key: str) -> str:
    """Return the path of a field in the object at `path`, which is "" for the spec."""
    return f"{path}.{key}" if path else key


def _name_of(kind: Any) -> str:
    return {int: "an int", float: "a number", str: "a text", bool: "true or false"}.get(kind) or str(kind)
