"""Checks of the types of arguments: the error names the argument and says which values are possible.

The public functions call them; internal calls are typed and not checked again. The checks take `object`, because a
caller that needs them does not use a type checker.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from operator import index
from typing import Any, Final, SupportsIndex, TypeVar

from eventproc.store.model.errors import InvalidArgument

T = TypeVar("T")

INT_MAX: Final = 2**63 - 1
"""Largest int that can be stored: the database has signed 64-bit integers."""

SHOWN_CHARS_MAX: Final = 80
"""Characters of an invalid value that the error shows."""


def invalid_argument(what: str, value: object, reason: str) -> InvalidArgument:
    """Return the error for an invalid value. what: name of the argument. reason: which values are possible."""
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
    """Return `value` if it is a str that can be stored: without half of a surrogate pair. Raises InvalidArgument."""
    text = check_instance(str, what, value, "it must be str")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise invalid_argument(
                what, text, "it contains half of a surrogate pair, which no text does"
            ) from None
    return text


def storable(text: str, chars_max: int) -> str:
    """Return the text of an error as any database keeps it: cut, and without NUL and lone surrogates."""
    return text[:chars_max].replace("\0", "\\x00").encode("utf-8", "backslashreplace").decode()


def check_int(what: str, value: object, *, least: int = -INT_MAX, most: int = INT_MAX, unit: str = "") -> int:
    """Return `value` as an int in [least, most]. It may be an int or have `__index__`; a bool or a float is invalid.

    unit: what the number counts, for the text of the error.
    Raises InvalidArgument.
    """
    if (
        type(value) is int and least <= value <= most
    ):  # the common case; the check of a protocol takes microseconds
        return value
    number = index(value) if isinstance(value, SupportsIndex) and not isinstance(value, bool) else None
    if number is not None and least <= number <= most:
        return number
    reason = f"it must be an int of {unit}" if unit else "it must be an int"
    if most < INT_MAX or (number is not None and abs(number) > INT_MAX):
        reason += f", {least} to {most}"
    elif least > -INT_MAX:
        reason += f", at least {least}"
    shown = _repr(value) if type(value) is int else value  # the type of an int is not worth showing
    raise invalid_argument(what, shown, reason)


def check_choice(what: str, value: object, known: Iterable[T]) -> T:
    """Return the known value that `value` equals, such as a member of a StrEnum. Raises InvalidArgument."""
    choices = tuple(known)
    for each in choices:
        if each == value:
            return each
    *most, last = [f"'{each}'" if isinstance(each, str) else repr(each) for each in choices]
    raise invalid_argument(what, value, f"it must be {', '.join(most)} or {last}")


def check_iterable(what: str, value: object, reason: str) -> Iterable[Any]:
    """Return `value` if it is iterable and neither str nor bytes. Raises InvalidArgument with `reason`."""
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise invalid_argument(what, value, reason)
    return value


def check_mapping(what: str, value: object, reason: str) -> Mapping[Any, Any]:
    """Return `value` if it is a mapping; its items are not checked. Raises InvalidArgument with `reason`."""
    if isinstance(value, Mapping):
        return value
    raise invalid_argument(what, value, reason)


def _repr(value: object) -> str:
    try:
        shown = repr(value)
    except Exception:  # the repr of a user's class may fail
        return "?"
    return shown if len(shown) <= SHOWN_CHARS_MAX else f"{shown[:SHOWN_CHARS_MAX]}…"


def check_function(what: str, function: object) -> None:
    """Raise InvalidArgument unless it is a plain function; nothing would await the result of an `async def`."""
    if not callable(function):
        raise invalid_argument(what, function, "it must be a function")
    if any(inspect.iscoroutinefunction(each) for each in (function, type(function).__call__)):
        reason = "it must be a plain function: it runs in a transaction, or decides without waiting"
        raise invalid_argument(what, function, reason)
