"""What every command of the command line has: help, examples that parse, and suggestions for a mistyped name."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
import pytest

from eventproc.cli.help_texts import DocumentedCommand
from eventproc.cli.main import root, run
from tests.cli.conftest import Cli


def walk(command: click.Command = root, path: str = "") -> Iterator[tuple[str, DocumentedCommand]]:
    """Yield every command and group of commands, with its full name; that of the root is empty."""
    assert isinstance(command, DocumentedCommand), f"{path} has no examples"
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from walk(found, f"{path} {name}".strip())


TREE: Final = dict(walk())
LEAVES: Final = {name: each for name, each in TREE.items() if not isinstance(each, click.Group)}


@pytest.mark.parametrize("name", TREE)
def test_every_command_has_help_in_three_spellings_which_ends_with_its_examples(cli: Cli, name: str) -> None:
    examples = TREE[name].examples
    assert TREE[name].help
    assert examples
    shown = cli(*name.split(), "--help").ok()
    assert shown.startswith(f"Usage: eventproc {name}".rstrip())
    assert shown.endswith("Examples:\n" + "".join(f"  {line}\n" for line in examples))
    assert name in ("", "help") or f"eventproc {name} " in f"{examples[0]} "
    assert cli(*name.split(), "-h").ok() == shown
    assert cli("help", *name.split()).ok() == shown


@pytest.mark.parametrize("line", sorted({line for each in TREE.values() for line in each.examples}))
def test_every_example_is_accepted_by_its_command(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in re.findall(r"[\w-]+\.(?:arrow|csv|json|jsonl|parquet|pem|txt|yaml)\b", line):
        Path(name).touch()
    called: list[str] = []
    for name, command in LEAVES.items():
        if name != "help":
            monkeypatch.setattr(command, "callback", lambda name=name, **_: called.append(name))
    found = re.search(r"\beventproc [^()|]*", line)
    assert found, line
    words = shlex.split(re.sub(r" [<>] [\w.]+$", "", found[0]))[1:]
    assert run(words) == 0
    assert called == [] if words[0] == "help" else len(called) == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["strem", "list"], "no command 'strem'; did you mean 'stream'"),
        (["stream", "crate", "a/b"], "no command 'crate'; did you mean 'create'"),
        (["help", "stream", "lst"], "no command 'lst'; did you mean 'list'?"),
        (["stream", "create", "a/b", "--segmnts", "3"], "'--segmnts'"),
    ],
)
def test_mistyped_command_or_option_is_refused_with_suggestions(
    cli: Cli, words: list[str], message: str
) -> None:
    why = cli(*words).refused(2)
    assert message in why
    assert "--segments" in why or "--segmnts" not in words


def test_command_like_no_other_is_refused_without_suggestions(cli: Cli) -> None:
    assert cli("xyzzy").refused(2) == "eventproc: no command 'xyzzy' (see `eventproc --help`)\n"
