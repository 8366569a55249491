"""Statements and values on their way between a transaction and PostgreSQL.

Statements are written for both engines, with SQLite's placeholders. Integers are sent as bigint and texts as text, so
that a statement has one plan, and that a value of another type than its column is an error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import attrs
from psycopg import Connection as RawConnection
from psycopg.types.numeric import Int8BinaryDumper, IntDumper, NumericBinaryLoader
from psycopg.types.string import StrDumper, StrDumperUnknown

STATEMENTS_MAX: Final = 1024
"""Statements whose translation is kept; more than the library uses."""

_TOKEN: Final = re.compile(
    r"""'(?:[^']|'')*' | "(?:[^"]|"")*" | --[^\n]* | /\*.*?\*/ | \$(\w*)\$.*?\$\1\$
    | :: | :(?P<name>[A-Za-z_]\w*) | \?""",
    re.VERBOSE | re.DOTALL,
)
_CHANGES: Final = re.compile(r"\s*(?:SELECT|VALUES|EXPLAIN|SHOW)\b", re.IGNORECASE)
_CHANGING_PART: Final = re.compile(r"\b(?:INSERT|UPDATE|DELETE|MERGE)\b", re.IGNORECASE)


@attrs.frozen
class Translated:
    """A statement for PostgreSQL. names: of its parameters, if they have names. changes: whether it may change rows."""

    sql: bytes
    names: tuple[str, ...]
    changes: bool

    def ordered(self, parameters: Sequence[object] | Mapping[str, object]) -> Sequence[object]:
        """Return the parameters in the order of the placeholders. Raises TypeError if one is missing."""
        if isinstance(parameters, Mapping):
            if missing := [name for name in self.names if name not in parameters]:
                raise TypeError(f"there is no parameter {missing[0]!r}")
            return [parameters[name] for name in self.names]
        return parameters


@lru_cache(maxsize=STATEMENTS_MAX)
def translated(sql: str) -> Translated:
    """Return a statement with placeholders `?` or `:name` for PostgreSQL. Quoted parts and comments stay."""
    names: list[str] = []
    count = 0

    def place(found: re.Match[str]) -> str:
        nonlocal count
        if (name := found["name"]) is not None:
            if name not in names:
                names.append(name)
            return f"${names.index(name) + 1}"
        if found[0] == "?":
            count += 1
            return f"${count}"
        return found[0]

    text = _TOKEN.sub(place, sql)
    reads = _CHANGES.match(sql) is not None or (
        sql.lstrip()[:4].upper() == "WITH" and _CHANGING_PART.search(sql) is None
    )
    return Translated(text.encode(), tuple(names), not reads)


class _WholeNumberLoader(NumericBinaryLoader):
    """A sum of integers is an integer, as in SQLite."""

    def load(self, data: Any) -> Any:
        """See psycopg."""
        number = super().load(data)
        return int(number) if number == number.to_integral_value() else float(number)


class _BoolDumper(Int8BinaryDumper):
    """A truth value is 0 or 1, as in SQLite."""

    def dump(self, obj: Any) -> Any:
        """See psycopg."""
        return super().dump(int(obj))


def register_types(raw: RawConnection[Any]) -> None:
    """Let a connection send and receive values as SQLite's does."""
    raw.adapters.register_loader("numeric", _WholeNumberLoader)
    raw.adapters.register_dumper(bool, _BoolDumper)
    send_typed(raw)


def send_typed(raw: RawConnection[Any]) -> None:
    """Send integers as bigint and texts as text: for the statements of the library."""
    raw.adapters.register_dumper(int, Int8BinaryDumper)
    raw.adapters.register_dumper(str, StrDumper)


def send_untyped(raw: RawConnection[Any]) -> None:
    """Send integers and texts so that they fit columns of many types: for the SQL of users."""
    raw.adapters.register_dumper(int, IntDumper)
    raw.adapters.register_dumper(str, StrDumperUnknown)
