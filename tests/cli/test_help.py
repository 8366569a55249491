"""What the command line says about itself, and how quickly."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

from eventproc.cli.main import COMMANDS
from tests.cli.conftest import Cli
from tests.cli.support import COMMAND, environment, shell

pytestmark = pytest.mark.subprocess

HEAVY = ("aiosqlite", "anyio", "asyncio", "attrs", "cattrs", "rich", "sqlite3", "trio", "eventproc.store")


def test_help_takes_less_than_a_fifth_of_a_second_of_cpu() -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert shell("--help").code == 0  # whatever the machine does beside it, the second is warm
    between = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert shell("--help").code == 0
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    first = between.ru_utime + between.ru_stime - before.ru_utime - before.ru_stime
    second = after.ru_utime + after.ru_stime - between.ru_utime - between.ru_stime
    assert min(first, second) < 0.2


def test_help_loads_nothing_of_the_store() -> None:
    code = (
        "import sys; from eventproc.cli.main import run; code = run(['--help']);"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, env=environment(), check=True, text=True
    )
    assert done.stderr == "[]\n"
    assert all(name in done.stdout for name in COMMANDS)


def test_a_command_that_shows_no_table_on_a_terminal_does_without_rich(shop: Cli) -> None:
    code = (
        "import sys; from eventproc.cli.main import run;"
        "codes = [run([*sys.argv[1:], *words.split()]) for words in ('stream list', 'read shop/orders')];"
        "print(codes, 'rich' in sys.modules)"
    )
    command = [sys.executable, "-c", code, "-C", str(shop.directory)]
    done = subprocess.run(command, capture_output=True, env=environment(), check=True, text=True)
    assert done.stdout.endswith("\n[0, 0] False\n")


def test_command_help_lists_its_options_without_global_ones(cli: Cli) -> None:
    shown = cli("stream", "truncate", "--help").ok()
    assert "--dry-run" in shown
    assert "--debug" not in shown


@pytest.mark.parametrize("arguments", [(), ("stream",)])
def test_a_command_without_its_rest_shows_the_help(arguments: tuple[str, ...]) -> None:
    done = shell(*arguments)
    assert done.code in (0, 2)  # older releases of click call it success
    assert "Usage: eventproc" in done.out + done.err


def test_the_version_is_shown_in_each_form(cli: Cli) -> None:
    assert cli("--version").ok().startswith("eventproc ")
    assert cli("version").ok().startswith("eventproc ")
    assert set(cli("version", "-o", "json").json()) == {"eventproc", "python"}


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_of_the_shell(cli: Cli, name: str) -> None:
    assert "_EVENTPROC_COMPLETE" in cli("completion", name).ok()


@pytest.mark.parametrize("words", [{}, {"COMP_WORDS": "eventproc stream", "COMP_CWORD": "two"}])
def test_completion_that_no_shell_asked_for_is_wrong_usage(words: dict[str, str]) -> None:
    done = subprocess.run(
        COMMAND,
        capture_output=True,
        env=environment(_EVENTPROC_COMPLETE="bash_complete", **words),
        check=False,
        text=True,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "eventproc: _EVENTPROC_COMPLETE is for the scripts of `eventproc completion`; unset it\n"
    )
