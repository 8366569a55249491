"""One rule for commands that destroy data: they ask on a terminal, need --yes elsewhere, and have --dry-run."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import anyio
import click
import pytest

import eventproc
from eventproc.runtime import Eventproc
from eventproc.store.access.users import list_users
from tests.cli.conftest import Cli
from tests.cli.support import GROUP, Terminal
from tests.cli.test_command_tree import LEAVES
from tests.cli.test_output import INVOCATIONS, MAILER, NEEDS_SPARK, add_dead_letter
from tests.cli.test_transactions import begin
from tests.support.reading import payloads_of

T = TypeVar("T")

DESTRUCTIVE: Final = frozenset(
    {
        *("scope delete", "stream truncate", "stream seal", "stream delete"),
        *("topic truncate", "topic delete"),
        *("group delete", "share delete", "txn abort", "dead-letter drop"),
        *("table drop", "table overwrite", "user delete", "schedule delete"),
        "state drop",
    }
)

FINAL_VERBS: Final = frozenset({"abort", "delete", "drop", "purge", "remove", "seal", "truncate"})
"""Names of commands that say that something will be gone."""

CHANGING_ONLY: Final = frozenset(
    {
        *("backup", "restore", "group reset", "share reset", "dead-letter redrive"),
        *("supervisor submit", "supervisor reset", "supervisor backfill"),
    }
)
"""Commands with --dry-run that destroy nothing, and do not ask."""


def options(command: click.Command) -> set[str]:
    return {option for parameter in command.params for option in parameter.opts}


def look(cli: Cli, what: Callable[[Eventproc], Awaitable[T]]) -> T:
    """Return what is found in the directory, which is opened once; a dozen commands would open it each."""

    async def run() -> T:
        async with eventproc.open(cli.directory, create=False, host=False) as ep:
            return await what(ep)

    return anyio.run(run)


async def stored(ep: Eventproc) -> dict[str, object]:
    """Return all that a destructive command could destroy, and what it would leave behind."""
    streams, groups = await ep.streams(), await ep.groups()
    return {
        "scopes": [each.name for each in await ep.scopes()],
        "streams": [(each.name, each.stream_id, each.state) for each in streams],
        "groups": [each.name for each in groups],
        "shares": [each.name for each in await ep.share_groups()],
        "requests": [(each.id, each.status) for each in await ep.requests.list()],
        "heads": {each.name: await (await ep.stream(each.name)).head() for each in streams},
        "events": {each.name: await payloads_of(await ep.stream(each.name)) for each in streams},
        "transactions": {
            each.name: [(txn.id, txn.state) for txn in await (await ep.stream(each.name)).transactions()]
            for each in streams
        },
        "positions": [(await (await ep.group(each.name)).describe()).events for each in groups],
        "letters": [each.id for each in await ep.dead_letters(MAILER).list()],
        "users": await ep.db.read(list_users),
        "schedules": await ep.schedules.list(),
        "states": await ep.db.read(lambda tx: tx.execute("SELECT key, value FROM key_state").fetchall()),
    }


def prepared(cli: Cli, name: str) -> list[str]:
    """Return the command line of a command from the table of `test_output`, without --yes."""
    add_dead_letter(cli)
    made = [each if isinstance(each, str) else each(cli) for each in INVOCATIONS[name]]
    return [*name.split(), *(each for each in made if each != "--yes")]


def test_the_commands_that_ask_are_exactly_those_that_destroy() -> None:
    asking = {name for name, command in LEAVES.items() if "--yes" in options(command)}
    assert asking == DESTRUCTIVE
    assert {name for name in LEAVES if FINAL_VERBS & set(name.split())} <= DESTRUCTIVE
    dry = {name for name, command in LEAVES.items() if "--dry-run" in options(command)}
    assert dry == DESTRUCTIVE | CHANGING_ONLY


@pytest.mark.parametrize("name", sorted(DESTRUCTIVE - NEEDS_SPARK))
def test_without_a_terminal_it_needs_yes_and_changes_nothing(billing: Cli, name: str) -> None:
    command = prepared(billing, name)
    before = look(billing, stored)
    line = billing(*command, stdin=b"y\n").refused(2)
    assert "use --yes to act without it, or --dry-run" in line
    assert look(billing, stored) == before


@pytest.mark.parametrize("name", sorted((DESTRUCTIVE | CHANGING_ONLY) - NEEDS_SPARK))
def test_dry_run_changes_nothing(billing: Cli, name: str) -> None:
    command = prepared(billing, name)
    before = look(billing, stored)
    found = billing(*command, "--dry-run", "-o", "json").json()
    assert found["dry_run"] is True
    if name in ("stream truncate", "scope delete"):
        assert found["bytes"] > 0
    assert billing(*command, "--dry-run").ok()
    if name in DESTRUCTIVE:
        assert billing(*command, "--dry-run", "--yes", "-o", "json").json() == found
    assert look(billing, stored) == before


@pytest.mark.parametrize("name", sorted(DESTRUCTIVE - NEEDS_SPARK))
def test_with_yes_it_destroys(billing: Cli, name: str) -> None:
    command = prepared(billing, name)
    billing(*command, "-y").ok()
    assert billing(*command, "--dry-run").code in (0, 3)  # found and already done, or not found any more


@pytest.mark.parametrize("name", sorted(set(INVOCATIONS) - DESTRUCTIVE - {"demo", "group offline"}))
def test_a_command_that_does_not_ask_loses_nothing(billing: Cli, name: str) -> None:
    begin(billing, b"staged\n")
    command = prepared(billing, name)
    before = look(billing, kept)
    billing(*command, stdin=b"1\n").ok()
    after = look(billing, kept)
    assert all(before[what] <= after[what] for what in before), (before, after)


async def kept(ep: Eventproc) -> dict[str, Counter[object]]:
    """Return how often each name and payload must still be found after a command that does not ask."""
    streams = [each.name for each in await ep.streams()]
    transactions = [
        txn
        for name in streams
        for finished in (False, True)
        for txn in await (await ep.stream(name)).transactions(finished=finished)
    ]
    return {
        "streams": Counter(streams),
        "events": Counter(
            [payload for name in streams for payload in await payloads_of(await ep.stream(name))]
        ),
        "transactions": Counter(txn.id for txn in transactions if txn.state != "aborted"),
        "groups": Counter(each.name for each in await ep.groups()),
    }


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
    terminal = Terminal(shop.directory, "stream", "delete", "shop/orders")
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
    terminal = Terminal(billing.directory, *prepare(billing))
    assert terminal.answer(b"n\n") == 1
    assert question in terminal.shown.decode()


@pytest.mark.subprocess
def test_what_was_confirmed_is_what_is_truncated(shop: Cli) -> None:
    terminal = Terminal(shop.directory, "stream", "truncate", "shop/orders", "--cut", "tail")
    terminal.until(b"[y/N] ")
    shop("write", "shop/orders", stdin=b"written while the question was open\n").ok()
    assert terminal.answer(b"y\n") == 0
    assert [row["payload"] for row in shop("read", "shop/orders").rows()] == [
        "written while the question was open"
    ]


@pytest.mark.subprocess
def test_a_refusal_comes_before_the_question(shop: Cli) -> None:
    terminal = Terminal(shop.directory, "stream", "delete", "shop/orders")
    assert terminal.end() == 4
    assert b"is not sealed" in terminal.shown
    assert b"[y/N]" not in terminal.shown
