"""Commands that are ended from outside, by a signal or by what stands at their descriptors."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys

import pytest

from tests.cli.conftest import Cli
from tests.cli.support import COMMAND, PATIENCE_S, Result, environment, started

pytestmark = pytest.mark.subprocess

INTERRUPTED_AT = """
import os, signal, sys
module = sys.argv.pop(1)
class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == module:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupts())
from eventproc.cli.entry import main
sys.exit(main())
"""
"""A command line that gets Ctrl-C when it is about to import a module."""


def bash(cli: Cli, script: str) -> Result:
    """Run a line of shell, with `ev` for the command line on the directory."""
    ev = shlex.join([*COMMAND, "-C", str(cli.directory)])
    done = subprocess.run(
        ["bash", "-c", f'ev() {{ {ev} "$@"; }}\n{script}'],
        capture_output=True,
        env=environment(),
        timeout=PATIENCE_S,
        check=False,
    )
    return Result(done.returncode, done.stdout.decode(), done.stderr.decode())


@pytest.mark.parametrize(
    "module", ["click", "eventproc.cli.stream", "eventproc.runtime", "aiosqlite", "asyncio"]
)
def test_ctrl_c_during_the_imports_is_quiet(shop: Cli, module: str) -> None:
    command = [sys.executable, "-c", INTERRUPTED_AT, module, "-C", str(shop.directory), "stream", "list"]
    done = subprocess.run(command, env=environment(), capture_output=True, timeout=PATIENCE_S, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


def test_python_dash_m_is_quiet_at_ctrl_c_too(shop: Cli) -> None:
    command = [sys.executable, "-m", "eventproc", "-C", str(shop.directory), "run"]
    with subprocess.Popen(command, env=environment(), stderr=subprocess.PIPE) as server:
        assert server.stderr is not None
        assert b" INFO    eventproc.run: serving " in server.stderr.readline()
        server.send_signal(signal.SIGINT)
        _, err = server.communicate(timeout=PATIENCE_S)
    assert (server.returncode, err) == (0, b"")


ENDINGS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_follower_ends_with_the_number_of_its_signal(shop: Cli, ending: signal.Signals) -> None:
    with started("-C", shop.directory, "read", "shop/orders", "--follow") as reader:
        assert reader.stdout is not None
        reader.stdout.readline()
        reader.send_signal(ending)
        _, err = reader.communicate(timeout=PATIENCE_S)
    assert (reader.returncode, err) == (128 + ending, b"")
    assert list((shop.directory / "instances").iterdir()) == []


@pytest.mark.parametrize("ending", ENDINGS)
def test_last_number_of_an_ended_writer_is_what_it_wrote(shop: Cli, ending: signal.Signals) -> None:
    shop("stream", "create", "shop/x").ok()
    with (
        subprocess.Popen(["seq", "1000000000"], stdout=subprocess.PIPE) as endless,
        subprocess.Popen(
            [*COMMAND, "-C", str(shop.directory), "write", "shop/x"],
            stdin=endless.stdout,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(),
        ) as writer,
    ):
        assert writer.stdout is not None
        writer.stdout.readline()
        writer.send_signal(ending)
        out, err = writer.communicate(timeout=PATIENCE_S)
        endless.kill()
    assert (writer.returncode, err) == (128 + ending, b"")
    said = int(out.split()[-1]) if out else None
    stored = shop("stream", "describe", "shop/x", "-o", "json").json()["events"]
    assert said in (stored, None)
    assert [int(row["payload"]) for row in shop("read", "shop/x", "--max", 5).rows()] == [1, 2, 3, 4, 5]


def test_second_signal_ends_a_reader_with_a_stuck_pipe(shop: Cli) -> None:
    shop("write", "shop/orders", stdin=b"row\n" * 20_000).ok()  # more than a pipe holds
    with started("-C", shop.directory, "read", "shop/orders") as reader:
        assert reader.stdout is not None
        reader.stdout.read(1)
        for _ in range(PATIENCE_S):
            reader.send_signal(signal.SIGTERM)
            try:
                reader.wait(0.1)
            except subprocess.TimeoutExpired:
                continue
            break
        assert reader.stderr is not None
        assert (reader.returncode, reader.stderr.read()) == (143, b"")


def test_a_signal_that_the_caller_ignores_ends_nothing(shop: Cli) -> None:
    script = "trap '' HUP; exec " + shlex.join([*COMMAND, "-C", str(shop.directory), "write", "shop/orders"])
    with subprocess.Popen(
        ["bash", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment()
    ) as writer:
        assert writer.stdin is not None
        assert writer.stdout is not None
        for number in (1, 2):
            writer.stdin.write(b"row\n")
            writer.stdin.flush()
            assert writer.stdout.readline() == b"written %d\n" % number
            os.kill(writer.pid, signal.SIGHUP)
        writer.stdin.close()
        assert writer.wait(PATIENCE_S) == 0


@pytest.mark.parametrize(
    "line",
    [
        "ev stream list >&-",
        "ev read shop/orders >&-",
        "ev --help >&-",
        "ev stream list >/dev/full",
        "ev read shop/orders >/dev/full",
        "PYTHONUNBUFFERED=1 ev read shop/orders >/dev/full",
        "ev write shop/orders <&-",
        "seq 9 | ev write shop/orders >/dev/full",
    ],
)
def test_a_descriptor_that_cannot_be_used_is_named_in_one_line(shop: Cli, line: str) -> None:
    said = bash(shop, line).refused(1)
    assert "standard input" in said if "<" in line else "standard output" in said


@pytest.mark.parametrize("line", ["ev scope create t >&- <&-", "ev scope create t >&- 2>&- <&-"])
def test_descriptors_that_are_not_needed_may_be_closed(shop: Cli, line: str) -> None:
    assert bash(shop, line).code == 0
    assert shop("doctor", "-o", "json").json()["healthy"]


@pytest.mark.parametrize("nowhere", ["2>&-", "2>/dev/full"])
def test_error_that_cannot_be_printed_keeps_its_exit_code(shop: Cli, nowhere: str) -> None:
    assert bash(shop, f"ev stream describe shop/none {nowhere}") == (3, "", "")
    assert bash(shop, f"ev init {nowhere}") == (0, "", "")


def test_a_reader_of_help_that_has_enough_is_not_answered(shop: Cli) -> None:
    for words in ("--help", "stream list", "read shop/orders"):
        done = bash(shop, f"set -o pipefail; ev {words} | head -c 0")
        assert (done.code in (0, 141), done.out, done.err) == (True, "", "")
