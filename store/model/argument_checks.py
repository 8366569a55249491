"""What callers hand over, checked for its type: a wrong one is refused by name, with what to give instead.

For the doors that people call. What the system hands to itself is typed, and is not asked again. The checks take
`object`: whoever comes here wrongly has no type checker.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import index
from typing import Any, Final, SupportsIndex, TypeVar

from eventproc.store.model.errors import InvalidArgument

T = TypeVar("T")

INT_MAX: Final = 2**63 - 1
"""Largest int that is kept: the database has 64 bits."""

SHOWN_CHARS_MAX: Final = 80
"""Characters of a refused value that its error shows."""


def invalid_argument(what: str, value: object, reason: str) -> InvalidArgument:
    """Return the error of a value that is not what was asked for: `what` it was given as, and the remedy."""
    # Escaped, so that the error itself can be printed and encoded.
    shown = value[:SHOWN_CHARS_MAX] if isinstance(value, str) else _repr(value)
    if value is not None and not isinstance(value, str):
        shown = f"{shown} ({type(value).__name__})"
    shown = shown.encode("utf-8", "backslashreplace").decode()
    return InvalidArgument(what=what, value=shown, reason=reason)


def check_instance(kind: type[T], what: str, value: object, reason: str) -> T:
    """Return `value` if it is a `kind`. Raises InvalidArgument with `reason`."""
    if isinstance(value, kind):
        return value
    raise invalid_argument(what, value, reason)


def check_str(what: str, value: object) -> str:
    """Return `value` if it is a str. Raises InvalidArgument."""
    return check_instance(str, what, value, "it must be str")


def check_int(what: str, value: object, *, least: int = -INT_MAX, most: int = INT_MAX, unit: str = "") -> int:
    """Return `value` if it is an int of [least, most], or of a type that stands for one exactly.

    A bool is none, nor a float. Raises InvalidArgument. unit: what it counts, for the error.
    """
    if type(value) is int and least <= value <= most:  # nearly always; asking for a protocol is dear
        return value
    number = index(value) if isinstance(value, SupportsIndex) and not isinstance(value, bool) else None
    if number is not None and least <= number <= most:
        return number
    reason = f"it must be an int of {unit}" if unit else "it must be an int"
    if most < INT_MAX or (number is not None and abs(number) > INT_MAX):
        reason += f", {least} to {most}"
    elif least > -INT_MAX:
        reason += f", at least {least}"
    shown = _repr(value) if type(value) is int else value  # a number of the right type needs no name of it
    raise invalid_argument(what, shown, reason)


def check_iterable(what: str, value: object, reason: str) -> Iterable[Any]:
    """Return `value` if it can be iterated over and is no text. Raises InvalidArgument with `reason`."""
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise invalid_argument(what, value, reason)
    return value


def check_mapping(what: str, value: object, reason: str) -> Mapping[Any, Any]:
    """Return `value` if it is a mapping, whatever it holds. Raises InvalidArgument with `reason`."""
    if isinstance(value, Mapping):
        return value
    raise invalid_argument(what, value, reason)


def _repr(value: object) -> str:
    try:
        shown = repr(value)
    except Exception:  # it cannot even be shown
        return "?"
    return shown if len(shown) <= SHOWN_CHARS_MAX else f"{shown[:SHOWN_CHARS_MAX]}…"
