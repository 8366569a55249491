"""Reads a spec from plain values of JSON or YAML, and collects every problem with the path of its value.

The fields of the typed spec say what is possible: nothing here names one. A key may be written as in Druid
(`taskDuration`; `druid_names` has those that differ), and a duration as ISO 8601 or with a unit (`PT1H`, `1h`) instead
of in milliseconds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import date, datetime
from enum import StrEnum
from functools import partial
from typing import Any, Final, TypeVar, cast

import attrs
from cattrs import Converter

from eventproc.ingestion.druid_names import INLINE, REFUSED, RENAMED, VALUES
from eventproc.store.model.argument_checks import invalid_argument
from eventproc.store.model.delays import utc_ms
from eventproc.store.model.errors import NotSupported
from eventproc.store.model.ingestion_errors import InvalidSpec, SpecProblem
from eventproc.store.records.plain import (
    STRICT,
    Malformed,
    Member,
    ValueProblem,
    is_tuple,
    read_array,
    read_object,
)

T = TypeVar("T")

_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_SHORT: Final = re.compile(r"(\d+)\s*(ms|s|min|m|h|d)", re.ASCII)
_ISO: Final = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?)?", re.ASCII)


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
    except RecursionError:
        raise invalid_argument("spec", text, _TOO_DEEP) from None
    try:
        import yaml  # an extra: programs that use no YAML need not install it
    except ImportError as error:
        raise NotSupported(
            what="a spec in YAML without PyYAML",
            remedy="run `pip install 'eventproc[yaml]'`, or write the spec in JSON",
        ) from error
    try:
        return yaml.safe_load(text)
    except RecursionError:
        raise invalid_argument("spec", text, _TOO_DEEP) from None
    except Exception as error:  # also what the library meets in a date, a number or a tag
        raise invalid_argument("spec", text, f"neither JSON nor YAML: {error}") from error


_TOO_DEEP: Final = "it is nested too deeply"


def read_spec(kind: type[T], plain: object, what: str) -> T:
    """Return the attrs value of `kind` that `plain` describes. what: names it in the error. Raises InvalidSpec."""
    problems = Problems()
    try:
        return _LENIENT.structure(plain, kind)
    except Malformed as why:
        for each in why.problems:
            is_of_field = each.value is attrs.NOTHING
            problems.add(each.path, each.reason if is_of_field else f"{each.reason}, not {each.value!r}")
    problems.check(what)
    raise AssertionError("a value without problems is malformed")


_LENIENT: Final = STRICT.copy()
"""Reads the spellings of a spec."""


def _read_object(converter: Converter, plain: object, kind: Any) -> Any:
    if isinstance(plain, str) and "name" in attrs.fields_dict(kind):
        plain = {"name": plain}  # a dimension by its name
    return read_object(converter, plain, kind, _members)


def _members(kind: Any, plain: Mapping[str, object], path: str = "") -> Iterator[Member | ValueProblem]:
    """Yield the members of an object, and of the objects in it that Druid has around some of its fields."""
    for key, value in plain.items():
        place, at = (kind.__name__, str(key)), f"{path}{key}"
        name = RENAMED.get(place) or _field_name(str(key), attrs.fields_dict(kind))
        if place in REFUSED:
            yield ValueProblem(at, attrs.NOTHING, REFUSED[place])
        elif place in INLINE and isinstance(value, Mapping):
            yield from _members(kind, cast("Mapping[str, object]", value), f"{at}.")
        elif place in INLINE:
            yield ValueProblem(at, value, "it must be an object")
        elif not (name.endswith("_ms") and isinstance(value, str | date)):
            yield at, name, value
        else:
            read, reason = (_time_ms, _TIME) if name.endswith("_start_ms") else (_duration_ms, _DURATION)
            ms = read(value)
            yield ValueProblem(at, value, reason) if ms is None else (at, name, ms)


_TIME: Final = "it must be milliseconds since 1970, or a time such as 2026-01-31T12:00"
_DURATION: Final = "it must be milliseconds, or a text such as 30s, 1h or PT1H"


def _read_array(converter: Converter, plain: object, kind: Any) -> Any:
    return read_array(converter, plain if isinstance(plain, (list, tuple)) else [plain], kind)


def _read_enum(plain: object, kind: Any) -> Any:
    """Return a member by its value, perhaps as Druid writes it: longSum, DAY, lagBased."""
    if isinstance(plain, str):
        text = plain.lower().replace("_", "")
        same = (each for each in kind if each.replace("_", "") == VALUES.get(text, text))
        plain = next(same, plain)
    return STRICT.structure(plain, kind)


_LENIENT.register_structure_hook_factory(attrs.has, lambda _, converter: partial(_read_object, converter))
_LENIENT.register_structure_hook_factory(is_tuple, lambda _, converter: partial(_read_array, converter))
_LENIENT.register_structure_hook(StrEnum, _read_enum)


def _duration_ms(value: str | date) -> int | None:
    text = str(value).strip()
    if match := _SHORT.fullmatch(text):
        return int(match[1]) * _UNITS_MS[match[2]]
    if (match := _ISO.fullmatch(text)) and any(match.groups()):
        days, hours, minutes, seconds = (int(each or 0) for each in match.groups())
        return ((days * 24 + hours) * 60 + minutes) * 60_000 + seconds * 1_000
    return None


def _time_ms(value: str | date) -> int | None:
    """Return a time in ms since 1970. YAML has dates and times of its own."""
    try:
        return utc_ms(datetime.fromisoformat(str(value).strip()))
    except ValueError:
        return None


def _field_name(key: str, fields: Mapping[str, object]) -> str:
    """Return the field that a key names; the key in lower case with underscores if there is none."""
    snake = re.sub(r"(?<=[a-z0-9])([A-Z])", lambda match: "_" + match[1].lower(), key)
    in_ms = re.sub(r"(_period|_millis|_date_time)$", "", snake)
    return next((each for each in (snake, f"{snake}_ms", f"{in_ms}_ms") if each in fields), snake)
