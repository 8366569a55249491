"""What a shell completes: commands and options from a generated table, and names from the directory.

Importing the commands takes half a second, which is too long for each press of the tab key. So completion works on a
tree of commands without their code, made from `completion_table.py`, and reads names with one short query.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

import click
from click.shell_completion import CompletionItem

from eventproc.cli.completion_table import COMMANDS

TAKES_NOTHING: Final = "flag"
"""What an option without a value takes."""

NAMED: Final = ("scope", "stream", "topic", "group", "supervisor")
SEGMENT: Final = "segment"
FILE: Final = "file"
DIRECTORY: Final = "directory"

METAVARS: Final = {
    "SCOPE": "scope",
    "[SCOPE]": "scope",
    "SCOPE/STREAM": "stream",
    "[SCOPE/STREAM]": "stream",
    "SCOPE/TOPIC": "topic",
    "SCOPE/GROUP": "group",
    "SCOPE/SHARE": "share group",
    "SUPERVISOR": "supervisor",
    "DIR": DIRECTORY,
    "[DIR]": DIRECTORY,
}
"""What a parameter with this placeholder takes."""


def completion_root() -> click.Group:
    """Return the tree of commands, with parameters and without code."""
    root = click.Group(params=[_parameter(*each) for each in COMMANDS[""][1]])
    groups = {"": root}
    for path, (line, parameters) in COMMANDS.items():
        parent, _, name = path.rpartition(" ")
        params = [*(_parameter(*each) for each in parameters), *root.params]
        if path == "":
            continue
        if any(each.startswith(f"{path} ") for each in COMMANDS):
            groups[path] = click.Group(name, short_help=line, params=params)
            groups[parent].add_command(groups[path])
        else:
            groups[parent].add_command(click.Command(name, short_help=line, params=params))
    return root


def describe_command(command: click.Command) -> tuple[str, list[tuple[str, str, bool]]]:
    """Return a command's row of the table: its one-line help, and for each parameter its names, values and repetition.

    The options of the root, which every command accepts, are in its row only.

    What a parameter takes: "flag", "scope", "stream", "topic", "group", "supervisor", "segment", "file", "directory",
    choices with "|", or empty for another value.
    """
    return command.get_short_help_str(limit=80), [
        (" ".join(_names(each)), _takes(each), each.nargs == -1 or getattr(each, "multiple", False))
        for each in command.params
        if not (isinstance(each, click.Option) and each.hidden)
    ]


def _names(parameter: click.Parameter) -> list[str]:
    if isinstance(parameter, click.Option):
        return [*parameter.opts, *parameter.secondary_opts]
    assert parameter.name is not None, "an argument has a name"
    return [parameter.name]


def _takes(parameter: click.Parameter) -> str:
    if isinstance(parameter, click.Option) and parameter.is_flag:
        return TAKES_NOTHING
    if isinstance(parameter.type, click.Choice):
        return "|".join(map(str, parameter.type.choices))
    if isinstance(parameter.type, click.Path):
        return FILE
    if parameter.metavar in ("ID", "IDS", "ID ID...") and parameter.name in ("segment", "segments", "sealed"):
        return SEGMENT
    return METAVARS.get(parameter.metavar or "", "")


def _parameter(names: str, takes: str, repeated: bool) -> click.Parameter:
    options = names.split()
    found = _complete(takes)
    if not names.startswith("-"):
        return click.Argument(
            [names], required=False, nargs=-1 if repeated else 1, type=_type(takes), shell_complete=found
        )
    if takes == TAKES_NOTHING:
        # Several names of a switch are alternatives, such as --host and --no-host.
        return click.Option([options[-1], *options[:-1]], is_flag=True, flag_value=True)
    return click.Option(options, multiple=repeated, type=_type(takes), shell_complete=found)


def _type(takes: str) -> click.Path | click.Choice[str] | None:
    if takes in (FILE, DIRECTORY):
        return click.Path(file_okay=takes == FILE)
    return click.Choice(takes.split("|")) if "|" in takes else None


Complete = Callable[[click.Context, click.Parameter, str], list[str | CompletionItem]]


def _complete(takes: str) -> Complete | None:
    """Return the function that completes such a value, None where the parameter's type does it."""
    if takes in NAMED:
        return partial(_complete_name, takes)
    return _complete_segment if takes == SEGMENT else None


def _complete_name(
    kind: str, context: click.Context, _: click.Parameter, incomplete: str
) -> list[str | CompletionItem]:
    from eventproc.store.name_lookup import UNREADABLE, stored_names

    try:
        return list(stored_names(_directory(context), kind, incomplete))
    except UNREADABLE:
        return []


def _complete_segment(
    context: click.Context, _: click.Parameter, incomplete: str
) -> list[str | CompletionItem]:
    from eventproc.store.name_lookup import UNREADABLE, stored_segments

    # Before an option that is not complete yet, click leaves the arguments where they are.
    stream = context.params.get("name") or next((each for each in context.args if "/" in each), "")
    before, comma, last = incomplete.rpartition(",")
    try:
        found = stored_segments(_directory(context), str(stream))
    except UNREADABLE:
        return []
    return [f"{before}{comma}{each}" for each in found if each.startswith(last)]


def _directory(context: click.Context) -> Path:
    """Return the directory of the command line so far: -C nearest to the command counts, then EVENTPROC_DIR."""
    found: Mapping[str, object] = context.params
    inner: click.Context | None = context
    while inner is not None and not (found := inner.params).get("c"):
        inner = inner.parent
    return Path(str(found.get("c") or os.environ.get("EVENTPROC_DIR") or "."))
