"""The fields of an event that a spec names: those of its JSON payload, and what it carries beside the payload. Pure.

Names below EVENT are reserved for the second kind, in a spec as in its SQL expressions: `__event.key`,
`__event.headers.trace`. Every other name is one of the payload: a path into it if it begins with `$.` or `$[`, such as
`$.user.city`, `$.tags[0]` or `$['__event']`; otherwise a field of its object, also if the name has dots.
"""

from __future__ import annotations

import re
from typing import Final, TypeAlias

import attrs

from eventproc.ingestion.druid_names import FIELDS, HEADER_PREFIX, REFUSED_FIELDS
from eventproc.store.model.argument_checks import invalid_argument
from eventproc.store.model.errors import InvalidArgument

EVENT: Final = "__event"
"""What an event carries beside its payload, as the fields of this struct."""

CARRIED: Final = (
    *("key", "headers", "event_time", "timestamp"),
    *("stream", "segment", "partition", "offset", "number"),
)
"""The fields of EVENT, with the names that a reader's event has. Times are in ms, `stream` is a full name, `segment` a
text such as "2.1", `partition` the number of the segment."""

_HEADERS: Final = "headers"
_SHOWN: Final = ", ".join(f"{EVENT}.{name}" for name in (*CARRIED, f"{_HEADERS}.NAME"))
_PATHS: Final = ("$.", "$[")
_STEP: Final = re.compile(
    r"""\.(?P<name>[^.\[\]'"*?@()\s]+)|\[(?P<index>\d{1,9})\]|\[(['"])(?P<quoted>(?:(?!\3)[^\\]|\\.)+)\3\]""",
    re.ASCII,
)
"""Matches one step of a path: `.name`, `[0]` or `['name']`."""
_QUOTED: Final = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`([^`]*)`""", re.DOTALL)
"""Matches a text in SQL, or a quoted name."""
_IN_SQL: Final = re.compile(rf"(?<![\w.])(`?)({EVENT})\b(?:\1\s*\.\s*`?(\w+))?", re.IGNORECASE)
"""Matches EVENT in SQL, with the name behind its dot."""


@attrs.frozen
class PayloadField:
    """A value in the payload. path: names of fields and indices of arrays, from the outside to the inside."""

    path: tuple[str | int, ...]


@attrs.frozen
class CarriedField:
    """What an event carries beside its payload. name: one of CARRIED. header: the one that is meant; None: all."""

    name: str
    header: str | None = None


EventField: TypeAlias = PayloadField | CarriedField


def parse_field(text: str) -> EventField:
    """Return the field that a dimension, a metric or a timestamp names.

    Names of Druid's input format `kafka` are other spellings. Raises InvalidArgument, with the names that exist.
    """
    if text in REFUSED_FIELDS:
        raise invalid_argument("field", text, REFUSED_FIELDS[text])
    text = FIELDS.get(text, text)
    if text.startswith(HEADER_PREFIX):
        text = f"{EVENT}.{_HEADERS}.{text.removeprefix(HEADER_PREFIX)}"
    root, dot, rest = text.partition(".")
    if text.startswith(_PATHS):
        return PayloadField(_parse_path(text))
    if root != EVENT:
        return PayloadField((text,))
    name, _, header = rest.partition(".")
    if not dot or name not in CARRIED or (header and name != _HEADERS):
        raise _unknown(text)
    return CarriedField(name, header or None)


def check_expression(expression: str) -> None:
    """Raise InvalidArgument if an expression of SQL names what no event carries below EVENT, or has a wrong path."""
    for found in _IN_SQL.finditer(_QUOTED.sub(_without_texts, expression)):
        if found[2] != EVENT or found[3] not in CARRIED:
            raise _unknown(found[0])


def _without_texts(quoted: re.Match[str]) -> str:
    """Return a quoted name of SQL; an empty text instead of a text or of a name that has other characters.

    Raises InvalidArgument for a path that is wrong, and for what an event carries, which is a field of a struct in SQL.
    """
    name = quoted[1]
    if name is None:
        return "''"
    if name != EVENT and isinstance(parse_field(name), CarriedField):
        reason = f"in SQL write {EVENT}.key, or {EVENT}.headers['NAME'], without quotes around all of it"
        raise invalid_argument("field", name, reason)
    return quoted[0] if name.isidentifier() else "''"


def _parse_path(text: str) -> tuple[str | int, ...]:
    path: list[str | int] = []
    at = 1
    while found := _STEP.match(text, at):
        if found["index"] is not None:
            path.append(int(found["index"]))
        else:
            path.append(found["name"] or re.sub(r"\\(.)", r"\1", found["quoted"]))
        at = found.end()
    if at < len(text) or isinstance(path[0], int):
        reason = "each step of a path is .name, ['name'] or [0], and the first one a name, as in $.tags[0]"
        raise invalid_argument("field", text, reason)
    return tuple(path)


def _unknown(text: str) -> InvalidArgument:
    return invalid_argument("field", text, f"an event has, beside its payload: {_SHOWN}")
