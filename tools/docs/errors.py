"""docs/errors.md: every error that a user can meet, from the docstrings of the classes."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import attrs

from eventproc import errors
from eventproc.errors import Corrupt, EventprocError, Fenced, Pending, Rejected, Retryable

HEAD = """\
# Errors

Every error is importable from `eventproc.errors`, for instance `from eventproc.errors import StreamSealed`. The base
class says what to do: catch `Retryable` to try again, `Pending` to wait again, `Rejected` to report, `Fenced` to stop.
All derive from `EventprocError`, keep their details as fields, and pickle.

`make docs` writes this page from the docstrings of the classes; edit those.
"""


def render() -> str:
    """Return the document as text."""
    lines = [HEAD]
    for base in (Rejected, Retryable, Pending, Fenced, Corrupt):
        lines += [
            f"## {base.__name__}\n",
            *(each + "\n" for each in _paragraphs(base)),
            "| error | when | what to do | fields |",
            "| --- | --- | --- | --- |",
            *_rows(base),
            "",
        ]
    return "\n".join(lines)


def concrete_errors() -> Iterator[type[EventprocError]]:
    """Yield the public errors that are raised, by name."""
    for name in errors.__all__:
        kind: type[EventprocError] = getattr(errors, name)
        if "__attrs_attrs__" in vars(kind):
            yield kind


def when_and_what(kind: type[EventprocError]) -> tuple[str, str]:
    """Return the first two paragraphs of an error's docstring: when it is raised, and what to do."""
    when, what, *_ = [*_paragraphs(kind), "", ""]
    return when, what


def _rows(base: type[EventprocError]) -> Iterator[str]:
    for kind in concrete_errors():
        if issubclass(kind, base):
            when, what = when_and_what(kind)
            fields = ", ".join(f"`{field.name}`" for field in attrs.fields(kind))  # type: ignore[arg-type]
            yield f"| `{kind.__name__}` | {when} | {what} | {fields} |"


def _paragraphs(kind: type[EventprocError]) -> list[str]:
    return [" ".join(each.split()) for each in (inspect.getdoc(kind) or "").split("\n\n")]
