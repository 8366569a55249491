"""`--watch` shows the result of a command again and again, and Ctrl-C ends it with success."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

import click
import pytest

from tests.cli.conftest import Cli
from tests.cli.support import COMMAND, GROUP, Terminal, environment
from tests.cli.test_command_tree import LEAVES

WATCHED = [name for name in LEAVES if name.split()[-1] in ("list", "describe")]


@contextmanager
def watching(cli: Cli, *arguments: str) -> Iterator[IO[bytes]]:
    """Run a command that watches, yield its output, and end it as Ctrl-C does."""
    command = [*COMMAND, "-C", str(cli.directory), *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        yield process.stdout
        process.send_signal(signal.SIGINT)
        process.stdout.read()
        assert (process.wait(), process.stderr.read()) == (0, b"")
    finally:
        process.kill()
        process.stdout.close()
        process.stderr.close()
        process.wait()


@pytest.mark.parametrize("name", WATCHED)
def test_every_list_and_describe_can_watch(name: str) -> None:
    (option,) = (each for each in LEAVES[name].params if "--watch" in each.opts)
    assert isinstance(option, click.Option)
    assert option.help is not None


@pytest.mark.subprocess
def test_list_in_json_is_one_object_on_a_line_each_time(shop: Cli) -> None:
    with watching(shop, "stream", "list", "--watch", "0.1", "-o", "json") as out:
        first = json.loads(out.readline())
        assert [row["events"] for row in first["rows"]] == [3]
        shop("write", "shop/orders", stdin=b"1\n").ok()
        while json.loads(out.readline())["rows"][0]["events"] == 3:
            pass


@pytest.mark.subprocess
def test_describe_in_json_is_its_object_on_a_line_each_time(billing: Cli) -> None:
    with watching(billing, "group", "describe", GROUP, "--watch", "0.1", "-o", "json") as out:
        assert [json.loads(out.readline())["name"] for _ in range(3)] == [GROUP] * 3


@pytest.mark.subprocess
def test_tables_in_a_pipe_follow_each_other_after_an_empty_line(shop: Cli) -> None:
    with watching(shop, "scope", "list", "--watch=0.1") as out:
        lines = [out.readline().split() for _ in range(5)]
    assert [line[:1] for line in lines] == [[b"SCOPE"], [b"shop"], [], [b"SCOPE"], [b"shop"]]


@pytest.mark.subprocess
def test_name_after_watch_is_not_taken_for_its_seconds(shop: Cli) -> None:
    with watching(shop, "stream", "describe", "--watch", "shop/orders", "-o", "json") as out:
        assert json.loads(out.readline())["name"] == "shop/orders"


@pytest.mark.subprocess
def test_terminal_shows_each_result_in_place_of_the_one_before(billing: Cli) -> None:
    terminal = Terminal(billing.directory, "stream", "list", "--watch", "0.1")
    terminal.until(b"\x1b[J\x1b[H")
    terminal.type(b"\x03")
    assert terminal.end() == 0
    shown = terminal.shown.decode()
    assert shown.startswith("\x1b[H\x1b[2J")
    first, second, *_ = shown.split("\x1b[J")
    assert "every 0.1 s, Ctrl-C ends" in first
    assert "shop/orders" in first
    assert "shop/orders" in second
    assert "\x1b[2J" not in second


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "1e99"])
def test_impossible_interval_is_refused(shop: Cli, seconds: str) -> None:
    assert "--watch" in shop("stream", "list", f"--watch={seconds}").refused(2)


def test_object_that_does_not_exist_ends_the_watch(shop: Cli) -> None:
    assert "no stream" in shop("stream", "describe", "shop/zz", "--watch").refused(3)
