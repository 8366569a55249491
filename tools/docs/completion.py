"""cli/completion_table.py: the commands and their parameters, as the completion of a shell needs them."""

from __future__ import annotations

from collections.abc import Iterator

import click

from eventproc.cli.completion_tree import describe_command
from eventproc.cli.main import root

HEAD = '''\
"""Every command with its one-line help and its parameters. `make docs` writes this module from the commands."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

COMMANDS: Final[Mapping[str, tuple[str, list[tuple[str, str, bool]]]]] = MappingProxyType(
    {
'''


def render() -> str:
    """Return the module: for each parameter its names, what it takes, and whether it may be repeated."""
    lines = [HEAD.rstrip("\n")]
    for path, command in _walk(root, ""):
        text, parameters = describe_command(command)
        lines.append(f"        {_quoted(path)}: (")
        lines.append(f"            {_quoted(text)},")
        rows = [
            f"                ({_quoted(names)}, {_quoted(takes)}, {repeated}),"
            for names, takes, repeated in parameters
        ]
        lines += ["            [", *rows, "            ],"] if rows else ["            [],"]
        lines.append("        ),")
    return "\n".join([*lines, "    }", ")", ""])


def _walk(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None, f"{path} {name}"
            yield from _walk(found, f"{path} {name}".strip())


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
