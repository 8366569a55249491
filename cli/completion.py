"""What a shell completes beside commands and options: the names in the directory, found with one short query."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType
from typing import Final

import click
from click.shell_completion import CompletionItem

from eventproc.cli.texts import TextParam


class NameParam(TextParam):
    """A text that a shell completes from what the directory has.

    find: returns the texts that begin with what was typed, of the directory and of the context of the command.
    """

    def __init__(self, find: Callable[[Path, click.Context, str], list[str]]) -> None:
        self._find = find

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the names; nothing if the directory cannot be read."""
        from eventproc.name_lookup import UNREADABLE

        directory = Path(ctx.obj.directory or ".")  # of the `Settings` of the command line so far
        try:
            return [CompletionItem(each) for each in self._find(directory, ctx, incomplete)]
        except UNREADABLE:
            return []


def _names(kind: str) -> NameParam:
    def find(directory: Path, _: click.Context, incomplete: str) -> list[str]:
        from eventproc.name_lookup import stored_names

        return stored_names(directory, kind, incomplete)

    return NameParam(find)


def _segments(directory: Path, ctx: click.Context, incomplete: str) -> list[str]:
    from eventproc.name_lookup import stored_segments

    # Before an option that is not complete yet, click leaves the arguments where they are.
    stream = ctx.params.get("name") or next((each for each in ctx.args if "/" in each), "")
    before, comma, last = incomplete.rpartition(",")
    found = stored_segments(directory, str(stream))
    return [f"{before}{comma}{each}" for each in found if each.startswith(last)]


SEGMENT: Final = NameParam(_segments)
"""Segments of the stream that the command names; several are separated by commas."""

COMPLETED: Final = MappingProxyType(
    {
        metavar: _names(kind)
        for kind, metavars in {
            "scope": ["SCOPE", "[SCOPE]"],
            "stream": ["SCOPE/STREAM", "[SCOPE/STREAM]"],
            "topic": ["SCOPE/TOPIC"],
            "group": ["SCOPE/GROUP", "SCOPE/SHARE"],
            "supervisor": ["SUPERVISOR", "[SUPERVISOR]"],
        }.items()
        for metavar in metavars
    }
)
"""The type of a parameter with this placeholder."""
