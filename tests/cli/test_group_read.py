"""A shell that is a reader of a group: what it printed is finished, however it ends, and the rest is read again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cli.conftest import Cli
from tests.cli.support import COMMAND, EVENTS, GROUP, PATIENCE_S, environment, numbers, started
from tests.cli.test_groups import append, left

pytestmark = pytest.mark.subprocess


def _into(path: Path, cli: Cli, *arguments: str) -> subprocess.Popen[bytes]:
    """Start a shell that reads as the group into a file."""
    command = [*COMMAND, "-C", str(cli.directory), "read", "--group", GROUP, *arguments]
    with path.open("wb") as out:
        return subprocess.Popen(command, stdout=out, env=environment())


def _printed(path: Path) -> list[int]:
    return numbers([json.loads(line) for line in path.read_text().splitlines()])


def test_events_are_printed_as_reading_a_stream_prints_them(billing: Cli) -> None:
    rows = billing("read", "shop/orders").rows()
    assert billing("read", "--group", GROUP).rows() == rows
    assert billing("read", "--group", GROUP).rows() == []
    for form in ("json", "table"):
        billing("group", "reset", GROUP, "--to", "head").ok()
        printed = billing("read", "--group", GROUP, "-o", form).ok()
        assert printed == billing("read", "shop/orders", "-o", form).ok()
    assert billing("read", "--group", GROUP, "-o", "json").json() == []


def test_max_leaves_the_other_events_for_the_next_reader(billing: Cli) -> None:
    assert numbers(billing("read", "--group", GROUP, "--max", 2).rows()) == [0, 1]
    assert left(billing) == 1
    assert numbers(billing("read", "--group", GROUP, "--reader", "another").rows()) == [2]


def test_a_reader_that_follows_ends_with_its_streams(
    billing: Cli, as_reader: subprocess.Popen[bytes]
) -> None:
    append(billing, 3)
    billing("stream", "seal", "shop/orders", "--yes").ok()
    out, err = as_reader.communicate(timeout=PATIENCE_S)
    assert (as_reader.returncode, err) == (0, b"")
    assert numbers([json.loads(line) for line in out.splitlines()]) == [3]
    assert left(billing) == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_events_printed_before_a_signal_are_finished(
    billing: Cli, as_reader: subprocess.Popen[bytes], number: signal.Signals
) -> None:
    append(billing, 3)
    assert as_reader.stdout is not None
    assert numbers([json.loads(as_reader.stdout.readline())]) == [3]
    as_reader.send_signal(number)
    out, err = as_reader.communicate(timeout=PATIENCE_S)
    assert (as_reader.returncode, out, err) == (128 + number, b"", b"")
    assert left(billing) == 0
    assert billing("group", "describe", GROUP, "-o", "json").json()["members"] == []


def test_a_signal_in_the_midst_of_many_events_loses_and_repeats_none(billing: Cli, tmp_path: Path) -> None:
    append(billing, *range(EVENTS, 30_000))
    with _into(tmp_path / "out", billing) as reader:
        while not (tmp_path / "out").stat().st_size:
            os.sched_yield()
        reader.send_signal(signal.SIGINT)
        assert reader.wait(PATIENCE_S) == 130
    printed = _printed(tmp_path / "out")
    assert 0 < len(printed) < 30_000
    rest = billing("read", "--group", GROUP).rows()
    assert printed + numbers(rest) == list(range(30_000))


def test_events_lost_in_a_broken_pipe_are_read_again(billing: Cli) -> None:
    append(billing, *range(EVENTS, 20_000))
    with started("-C", billing.directory, "read", "--group", GROUP) as reader:
        assert reader.stdout is not None
        taken = numbers([json.loads(reader.stdout.readline()) for _ in range(10)])
        reader.stdout.close()
        reader.stdout = None
        _, err = reader.communicate(timeout=PATIENCE_S)
    assert (reader.returncode, err) == (141, b"")
    rest = numbers(billing("read", "--group", GROUP).rows())
    assert taken == list(range(10))
    assert rest == list(range(20_000 - len(rest), 20_000))
    assert 10 < len(rest) <= 20_000 - 10  # the pipe may have taken some more, and not all


def test_two_shells_share_a_group_and_print_each_event_once(billing: Cli, tmp_path: Path) -> None:
    with ExitStack() as stack:
        shells = [_into(tmp_path / name, billing, "--reader", name, "--follow") for name in ("a", "b")]
        for shell in shells:
            stack.enter_context(shell)
        while len(billing("group", "describe", GROUP, "-o", "json").json()["members"]) < 2:
            pass
        rows = b"".join(b'{"k":"%d","n":%d}\n' % (number % 9, number) for number in range(EVENTS, 900))
        billing("write", "shop/orders", "--format", "jsonl", "--key", "k", stdin=rows).ok()
        billing("stream", "seal", "shop/orders", "--yes").ok()
        assert [shell.wait(PATIENCE_S) for shell in shells] == [0, 0]
    printed = [_printed(tmp_path / name) for name in ("a", "b")]
    assert all(printed)
    assert sorted(printed[0] + printed[1]) == list(range(900))


def test_events_of_a_killed_reader_go_to_the_next_one(
    billing: Cli, as_reader: subprocess.Popen[bytes]
) -> None:
    as_reader.kill()
    as_reader.wait()
    append(billing, 3)
    rest = numbers(billing("read", "--group", GROUP, "--reader", "r1").rows())
    assert rest[-1] == 3
    assert rest == list(range(4 - len(rest), 4))
