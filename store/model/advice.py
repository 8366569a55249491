"""The four kinds of error, by what the caller should do next, and how an error keeps its fields.

The errors themselves are in `errors`, which is where everyone imports these from too.
Source: architecture.md section 4.
"""

from __future__ import annotations

from typing import TypeVar, dataclass_transform

import attrs

_E = TypeVar("_E", bound="EventprocError")


def _rebuild(kind: type[EventprocError], fields: dict[str, object]) -> EventprocError:
    return kind(**fields)


class EventprocError(Exception):
    """Root of everything raised on purpose; pickles, fields and all."""

    def __reduce__(self) -> tuple[object, ...]:
        kind = type(self)
        names = [field.name for field in attrs.fields(kind)] if attrs.has(kind) else []
        return (_rebuild, (kind, {name: getattr(self, name) for name in names}))


class Retryable(EventprocError):
    """Nothing changed. Read again and retry within a bounded budget."""


class Rejected(EventprocError):
    """Wrong in the present state. Repeating cannot help."""


class Fenced(EventprocError):
    """A newer owner exists. Stop at once; do not write, do not retry."""


class Corrupt(EventprocError):
    """Stored bytes break an invariant. Stop; a person must look."""


@dataclass_transform(kw_only_default=True, eq_default=False, field_specifiers=(attrs.field,))
def error(kind: type[_E]) -> type[_E]:
    """Decorator of every concrete error: keyword-only fields, identity equality, pickles."""
    return attrs.define(kind, kw_only=True, eq=False, slots=False)
