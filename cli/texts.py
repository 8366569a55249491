"""Texts among the arguments of a command: UTF-8, but for payloads, which may be any bytes."""

from __future__ import annotations

from typing import Any

import click


class TextParam(click.types.StringParamType):
    """A text. An argument whose bytes are not UTF-8 is refused with the name of the option."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text unchanged."""
        text = str(super().convert(value, param, ctx))
        try:
            text.encode()
        except UnicodeEncodeError:
            shown = as_given(text).decode(errors="backslashreplace")
            self.fail(f"'{shown}' is not UTF-8.", param, ctx)
        return text


class BytesParam(click.types.StringParamType):
    """A payload: the bytes of an argument."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the bytes."""
        return value if isinstance(value, bytes) else as_given(str(value))


def as_given(text: str) -> bytes:
    """Return the bytes of an argument: those that are not UTF-8, too."""
    return text.encode(errors="surrogateescape")
