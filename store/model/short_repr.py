"""Short texts for people: the `repr` of values that may hold a large payload or many segments."""

from __future__ import annotations

from reprlib import Repr
from types import MappingProxyType
from typing import Any, Final

import attrs

PAYLOAD_MAX: Final = 100
"""Bytes or characters of a payload that a `repr` shows. Higher: a log line with many events is unreadable."""

FIELD_CHARS_MAX: Final = 300
"""Characters of a field within a `repr`."""

ELEMENTS_MAX: Final = 4
"""Elements of a collection that a `repr` shows."""


class _ShortRepr(Repr):
    """Shows the beginning of long values, and says how long they are."""

    def __init__(self) -> None:
        super().__init__()
        self.maxtuple = self.maxlist = self.maxdict = self.maxset = self.maxfrozenset = ELEMENTS_MAX
        self.maxother = FIELD_CHARS_MAX

    def repr_bytes(self, x: bytes, level: int) -> str:
        """Return the beginning of the bytes and their number."""
        return repr(x) if len(x) <= PAYLOAD_MAX else f"{x[:PAYLOAD_MAX]!r}... ({len(x)} bytes)"

    def repr_str(self, x: str, level: int) -> str:
        """Return the beginning of the text and its length."""
        return repr(x) if len(x) <= PAYLOAD_MAX else f"{x[:PAYLOAD_MAX]!r}... ({len(x)} characters)"

    def repr_mappingproxy(self, x: MappingProxyType[Any, Any], level: int) -> str:
        """Return it as a dict."""
        return self.repr_dict(dict(x), level)


_SHORT: Final = _ShortRepr()


def short_repr(value: object) -> str:
    """Return a `repr` of at most FIELD_CHARS_MAX characters and "...", of any value."""
    text = _SHORT.repr(value)
    return text if len(text) <= FIELD_CHARS_MAX else f"{text[:FIELD_CHARS_MAX]}..."


def short_repr_of_fields(self: attrs.AttrsInstance) -> str:
    """Return a `repr` of an attrs object in which every field is short. Use it as `__repr__`.

    A field that is a secret (`attrs.field(repr=False)`) is left out.
    """
    shown = ", ".join(
        f"{each.name}={short_repr(getattr(self, each.name))}"
        for each in attrs.fields(type(self))
        if each.repr
    )
    return f"{type(self).__qualname__}({shown})"
