"""Errors as plain values, so that an outcome can be stored by one process and raised by another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import attrs

from eventproc.store.model.errors import EventprocError

_ERROR: Final = "error"


def error_to_plain(error: EventprocError) -> dict[str, object]:
    """Return the error's class name and fields, made of JSON's types."""
    return {_ERROR: type(error).__name__, **attrs.asdict(error, recurse=False)}  # type: ignore[arg-type]


def error_from_plain(plain: dict[str, object]) -> EventprocError:
    """Return the error that `error_to_plain` described. Raises ValueError for a class not known here."""
    name = plain.get(_ERROR)
    for kind in _kinds(EventprocError):
        if kind.__name__ == name:
            fields = {key: tuple(value) if isinstance(value, list) else value for key, value in plain.items()}
            del fields[_ERROR]
            return kind(**fields)
    raise ValueError(f"an error of kind {name!r} is not known here")


def _kinds(kind: type[EventprocError]) -> Iterator[type[EventprocError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from _kinds(child)
