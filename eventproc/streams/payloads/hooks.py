"""Readers and writers of parts of a type, also of a type that contains itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from cattrs import Converter

Read = Callable[[Any, Any], Any]
"""Returns the value of parsed JSON. The second argument is the type, which cattrs passes."""
Write = Callable[[Any], Any]
"""Returns what `json` can write for a value."""


_in_progress: Final = ContextVar[frozenset[Any]]("in_progress", default=frozenset())


@contextmanager
def generating(kind: Any) -> Iterator[None]:
    """Raise RecursionError if the reader or writer of a type is being made already."""
    if kind in (before := _in_progress.get()):
        raise RecursionError
    token = _in_progress.set(before | {kind})
    try:
        yield
    finally:
        _in_progress.reset(token)


def reader_of(converter: Converter, kind: Any) -> Read:
    """Return what reads a part; a part whose reader is being made is looked up when it is used."""
    try:
        return converter.get_structure_hook(kind)
    except RecursionError:
        return converter.structure


def writer_of(converter: Converter, kind: Any) -> Write:
    """Return what writes a part; a part whose writer is being made is looked up when it is used."""
    try:
        return converter.get_unstructure_hook(kind)
    except RecursionError:
        return lambda value: converter.unstructure(value, kind)
