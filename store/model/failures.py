"""Errors as plain values, so that one process can store an outcome and another one can raise it."""

from __future__ import annotations

from typing import Final

import attrs

from eventproc.store.model import errors, group_errors, metadata_errors
from eventproc.store.model.errors import EventprocError

_ERROR: Final = "error"

_KINDS: Final[dict[str, type[EventprocError]]] = {
    name: kind
    for module in (errors, group_errors, metadata_errors)
    for name, kind in vars(module).items()
    if isinstance(kind, type) and issubclass(kind, EventprocError)
}


def error_to_plain(error: EventprocError) -> dict[str, object]:
    """Return the error's class name and fields, made of JSON's types."""
    return {_ERROR: type(error).__name__, **attrs.asdict(error, recurse=False)}  # type: ignore[arg-type]


def error_from_plain(plain: dict[str, object]) -> EventprocError:
    """Return the error that `error_to_plain` described. Raises ValueError for an unknown class."""
    name = plain.get(_ERROR)
    if not isinstance(name, str) or name not in _KINDS:
        raise ValueError(f"unknown kind of error: {name!r}")
    fields = {key: tuple(value) if isinstance(value, list) else value for key, value in plain.items()}
    del fields[_ERROR]
    return _KINDS[name](**fields)
