"""What is wrong with a value or a payload: one wording for every library that converts payloads.

`amount: expected int, got str 'x'; lines[0].sku: missing` names each bad field, its path, and what it has to be.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from typing import Any, Final

MISMATCHES_SHOWN_MAX: Final = 5
"""Bad fields that an error names. More: a log line that nobody reads; fewer: more runs until all are corrected."""

REASON_CHARS_MAX: Final = 600
"""Characters of the reason in an error, because fields, keys and messages of users may have any length."""

VALUE_CHARS_MAX: Final = 40
"""Characters of a bad value that an error shows."""


class ValueMismatch(ValueError):
    """A value is not what its type says. The message has the form `expected int, got str 'x'`."""


class UnsupportedPayloadType(TypeError):
    """Values of a type cannot be read back from their JSON. The message says why, and what to use instead."""


def mismatch(expected: str, value: object) -> ValueMismatch:
    """Return the error for a value of a JSON document or of a writer."""
    return ValueMismatch(f"expected {expected}, got {_shown(value)}")


def type_name(kind: object) -> str:
    """Return a type as its user writes it, without modules."""
    name = getattr(kind, "__name__", None)
    if isinstance(kind, type) and name is not None and not getattr(kind, "__args__", ()):
        return str(name)
    return re.sub(r"[\w<>]+\.(?=[\w<])", "", str(kind))


def joined(errors: Iterable[tuple[str, str]]) -> str:
    """Return one line for errors, which are (path, what is wrong) each; the path is empty for the payload itself."""
    lines = [f"{path.removeprefix('.')}: {text}" if path else text for path, text in errors]
    more = len(lines) - MISMATCHES_SHOWN_MAX
    shown = "; ".join(lines[:MISMATCHES_SHOWN_MAX]) + (f"; and {more} more" if more > 0 else "")
    return shown if len(shown) <= REASON_CHARS_MAX else f"{shown[:REASON_CHARS_MAX]}…"


def describe(error: BaseException) -> str:
    """Return what is wrong, with the path of each field, for an error of cattrs, pydantic, msgspec or a user."""
    return joined(_errors(error, ""))


def _errors(error: BaseException, path: str) -> Iterator[tuple[str, str]]:
    libraries: Any = map(sys.modules.get, ("cattrs.errors", "pydantic", "msgspec"))
    cattrs, pydantic, msgspec = libraries
    if cattrs is not None and isinstance(error, cattrs.BaseValidationError):
        group: Any = error
        noted, others = group.group_exceptions()
        for inner, note in noted:
            yield from _errors(
                inner, path + (f".{note.name}" if hasattr(note, "name") else f"[{note.index!r}]")
            )
        for inner in others:
            yield from _errors(inner, path)
    elif pydantic is not None and isinstance(error, pydantic.ValidationError):
        yield from _pydantic_errors(error, path)
    elif msgspec is not None and isinstance(error, msgspec.ValidationError):
        yield msgspec_error(error, path)
    elif isinstance(error, KeyError) and path.endswith(f".{error.args[0]}"):
        yield path, "missing"
    else:
        yield path, str(error) or type(error).__name__


_PYDANTIC_NAMES: Final = {"string": "str", "dict": "an object", "model": "an object", "list": "an array"}


def _pydantic_errors(error: Any, path: str) -> Iterator[tuple[str, str]]:
    for each in error.errors(include_url=False, include_context=False):
        where = path + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in each["loc"])
        subject, _, problem = each["type"].rpartition("_")
        if each["type"] == "missing":
            text = "missing"
        elif each["type"] == "json_invalid":
            text = f"not JSON: {each['msg'].removeprefix('Invalid JSON: ')}"
        elif problem in ("type", "parsing") and "_" not in subject:
            text = f"expected {_PYDANTIC_NAMES.get(subject, subject)}, got {_shown(each['input'])}"
        else:
            text = f"{each['msg']}, got {_shown(each['input'])}"
        yield where, text


_MSGSPEC_MISSING: Final = re.compile(r"Object missing required field `(.*)`")


def msgspec_error(error: BaseException, path: str) -> tuple[str, str]:
    """Return the path of a bad field and what is wrong with it. path: of the value that msgspec converted."""
    text, _, inner = str(error).partition(" - at `$")
    path += inner.removesuffix("`")
    if missing := _MSGSPEC_MISSING.fullmatch(text):
        return f"{path}.{missing[1]}", "missing"
    return path, (text[:1].lower() + text[1:]).replace("`", "").replace(
        "expected object", "expected an object"
    )


def _shown(value: object) -> str:
    if value is None:
        return "None"
    if isinstance(value, (list, dict)):
        return {list: "an array", dict: "an object"}[list if isinstance(value, list) else dict]
    try:
        shown = repr(value)
    except Exception:  # the repr of a user's class may fail
        shown = "?"
    shown = shown if len(shown) <= VALUE_CHARS_MAX else f"{shown[:VALUE_CHARS_MAX]}…"
    return f"{type(value).__name__} {shown}"
