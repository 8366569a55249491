"""One rule for commands that destroy data: they ask on a terminal, need --yes elsewhere, and have --dry-run."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import subprocess
import termios
from collections import Counter
from collections.abc import Callable
from typing import Final

import click
import pytest

from tests.cli.conftest import Cli
from tests.cli.support import COMMAND, GROUP, PATIENCE_S, environment
from tests.cli.test_output import COMMANDS, INVOCATIONS, MAILER, NEEDS_SPARK, add_dead_letter
from tests.cli.test_transactions import begin

DESTRUCTIVE: Final = frozenset(
    {
        *("scope delete", "stream truncate", "stream seal", "stream delete"),
        *("topic truncate", "topic delete"),
        *("group delete", "share delete", "txn abort", "dead-letter drop"),
        *("table drop", "table overwrite"),
    }
)

FINAL_VERBS: Final = frozenset({"abort", "delete", "drop", "purge", "remove", "seal", "truncate"})
"""Names of commands that say that something will be gone."""

CHANGING_ONLY: Final = frozenset(
    {
        *("backup", "restore", "group reset", "share reset", "dead-letter redrive"),
        *("supervisor submit", "supervisor reset"),
    }
)
"""Commands with --dry-run that destroy nothing, and do not ask."""


def options(command: click.Command) -> set[str]:
    return {option for parameter in command.params for option in parameter.opts}


def stored(cli: Cli) -> dict[str, object]:
    """Return all that a destructive command could destroy, and what it would leave behind."""
    listed = {
        noun: cli(noun, "list", "-o", "json").json()
        for noun in ("scope", "stream", "group", "share", "request")
    }
    streams = [row["name"] for row in listed["stream"]]
    return {
        **{
            noun: [(row.get("name"), row.get("scope"), row.get("state")) for row in rows]
            for noun, rows in listed.items()
        },
        "events": {name: cli("read", name).out for name in streams},
        "transactions": {
            name: [(row["id"], row["state"]) for row in cli("txn", "list", name, "-o", "json").json()]
            for name in streams
        },
        "positions": [row["lag_events"] for row in listed["group"]],
        "letters": [row["id"] for row in cli("dead-letter", "list", MAILER, "-o", "json").json()],
    }


def prepared(cli: Cli, name: str) -> list[str]:
    """Return the command line of a command from the table of `test_output`, without --yes."""
    add_dead_letter(cli)
    made = [each if isinstance(each, str) else each(cli) for each in INVOCATIONS[name]]
    return [*name.split(), *(each for each in made if each != "--yes")]


def test_the_commands_that_ask_are_exactly_those_that_destroy() -> None:
    asking = {name for name, command in COMMANDS.items() if "--yes" in options(command)}
    assert asking == DESTRUCTIVE
    assert {name for name in COMMANDS if FINAL_VERBS & set(name.split())} <= DESTRUCTIVE
    dry = {name for name, command in COMMANDS.items() if "--dry-run" in options(command)}
    assert dry == DESTRUCTIVE | CHANGING_ONLY


@pytest.mark.parametrize("name", sorted(DESTRUCTIVE - NEEDS_SPARK))
def test_without_a_terminal_it_needs_yes_and_changes_nothing(billing: Cli, name: str) -> None:
    command = prepared(billing, name)
    before = stored(billing)
    line = billing(*command, stdin=b"y\n").refused(2)
    assert "use --yes to act without it, or --dry-run" in line
    assert stored(billing) == before


@pytest.mark.parametrize("name", sorted((DESTRUCTIVE | CHANGING_ONLY) - NEEDS_SPARK))
def test_dry_run_changes_nothing(billing: Cli, name: str) -> None:
    command = prepared(billing, name)
    before = stored(billing)
    found = billing(*command, "--dry-run", "-o", "json").json()
    assert found["dry_run"] is True
    assert billing(*command, "--dry-run").ok()
    if name in DESTRUCTIVE:
        assert billing(*command, "--dry-run", "--yes", "-o", "json").json() == found
    assert stored(billing) == before


@pytest.mark.parametrize("name", sorted(DESTRUCTIVE - NEEDS_SPARK))
def test_with_yes_it_destroys(billing: Cli, name: str) -> None:
    command = prepared(billing, name)
    billing(*command, "-y").ok()
    assert billing(*command, "--dry-run").code in (0, 3)  # found and already done, or not found any more


@pytest.mark.parametrize("name", sorted(set(INVOCATIONS) - DESTRUCTIVE - {"demo", "group offline"}))
def test_a_command_that_does_not_ask_loses_nothing(billing: Cli, name: str) -> None:
    begin(billing, b"staged\n")
    command = prepared(billing, name)
    before = kept(billing)
    billing(*command, stdin=b"1\n").ok()
    after = kept(billing)
    assert all(before[what] <= after[what] for what in before), (before, after)


def kept(cli: Cli) -> dict[str, Counter[str]]:
    """Return how often each name and payload must still be found after a command that does not ask."""
    streams = [row["name"] for row in cli("stream", "list", "-o", "json").json()]
    transactions = [
        row
        for name in streams
        for option in ((), ("--finished",))
        for row in cli("txn", "list", name, *option, "-o", "json").json()
    ]
    return {
        "streams": Counter(streams),
        "events": Counter(
            row["payload"] for name in streams for row in cli("read", name).rows() if "payload" in row
        ),
        "transactions": Counter(row["id"] for row in transactions if row["state"] != "aborted"),
        "groups": Counter(row["name"] for row in cli("group", "list", "-o", "json").json()),
    }


class Terminal:
    """A command whose standard streams are a terminal of its own, as a person uses it."""

    def __init__(self, cli: Cli, *arguments: object) -> None:
        self._ours, theirs = pty.openpty()
        modes = termios.tcgetattr(theirs)
        modes[3] |= termios.NOFLSH  # Ctrl-C must not discard what was printed and not read yet
        termios.tcsetattr(theirs, termios.TCSANOW, modes)
        self.shown = b""
        self._process = subprocess.Popen(
            [*COMMAND, "-C", str(cli.directory), *map(str, arguments)],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environment(TERM="xterm"),
            start_new_session=True,
            preexec_fn=own_terminal,
        )
        os.close(theirs)

    def until(self, text: bytes) -> None:
        """Read what it shows until `text` appears."""
        while text not in self.shown:
            self.shown += os.read(self._ours, 65536)

    def answer(self, keys: bytes) -> int:
        """Type `keys` at the question, and return the exit code."""
        self.until(b"[y/N] ")
        os.write(self._ours, keys)
        return self.end()

    def end(self) -> int:
        """Read what it shows until it ends, and return the exit code."""
        try:
            while block := os.read(self._ours, 65536):
                self.shown += block
        except OSError:  # what Linux says when the last one closed the other side
            pass
        os.close(self._ours)
        return self._process.wait(PATIENCE_S)


def own_terminal() -> None:
    """Make standard input the controlling terminal, so that Ctrl-C typed there becomes a signal."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


ANSWERS: Final = [
    pytest.param(b"y\n", 0, id="y"),
    pytest.param(b"what\nYES\n", 0, id="what, then yes"),
    pytest.param(b"n\n", 1, id="n"),
    pytest.param(b"\n", 1, id="return"),
    pytest.param(b"\x04", 1, id="end of input"),
    pytest.param(b"\x03", 128 + signal.SIGINT, id="Ctrl-C"),
]


@pytest.mark.subprocess
@pytest.mark.parametrize("keys, code", ANSWERS)
def test_on_a_terminal_it_asks_and_acts_only_after_yes(shop: Cli, keys: bytes, code: int) -> None:
    shop("stream", "seal", "shop/orders", "--yes").ok()
    terminal = Terminal(shop, "stream", "delete", "shop/orders")
    assert terminal.answer(keys) == code
    assert b"Delete stream shop/orders? This destroys 1 stream, 3 events, 99 B permanently." in terminal.shown
    assert (b"not confirmed; nothing was changed" in terminal.shown) == (code == 1)
    assert shop("stream", "describe", "shop/orders").code == (3 if code == 0 else 0)
    assert terminal.shown.endswith(b"\r\n")


@pytest.mark.subprocess
@pytest.mark.parametrize(
    "prepare, question",
    [
        (
            lambda cli: ["stream", "truncate", "shop/orders", "--cut", "tail"],
            "Truncate stream shop/orders? This destroys 3 events",
        ),
        (
            lambda cli: ["scope", "delete", "shop", "--recursive"],
            "1 stream, 1 group, 0 synchronizers, 3 events",
        ),
        (
            lambda cli: ["group", "delete", GROUP],
            f"Delete group {GROUP}? This destroys 2 positions, 0 checkpoints",
        ),
        (lambda cli: ["txn", "abort", "shop/orders", begin(cli, b"1")], "This destroys 1 event, 9 B"),
    ],
)
def test_the_question_names_what_will_be_lost(
    billing: Cli, prepare: Callable[[Cli], list[str]], question: str
) -> None:
    terminal = Terminal(billing, *prepare(billing))
    assert terminal.answer(b"n\n") == 1
    assert question in terminal.shown.decode()


@pytest.mark.subprocess
def test_what_was_confirmed_is_what_is_truncated(shop: Cli) -> None:
    terminal = Terminal(shop, "stream", "truncate", "shop/orders", "--cut", "tail")
    terminal.until(b"[y/N] ")
    shop("write", "shop/orders", stdin=b"written while the question was open\n").ok()
    assert terminal.answer(b"y\n") == 0
    assert [row["payload"] for row in shop("read", "shop/orders").rows()] == [
        "written while the question was open"
    ]


@pytest.mark.subprocess
def test_a_refusal_comes_before_the_question(shop: Cli) -> None:
    terminal = Terminal(shop, "stream", "delete", "shop/orders")
    assert terminal.end() == 4
    assert b"is not sealed" in terminal.shown
    assert b"[y/N]" not in terminal.shown
