"""Apps run from the shell, by a process of their own; and what other shells see of their processors and do to them."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Cli
from tests.cli.support import PATIENCE_S, RunProcess, Terminal

pytestmark = pytest.mark.subprocess

SHOP = """
import pathlib
import anyio
import eventproc
from eventproc.processors.engine import commit

commit.COMMIT_MS = 200  # other processes see the progress sooner

app = eventproc.App()
other = eventproc.App()
strict = eventproc.App()
empty = eventproc.App()
lost = eventproc.App()
number = 3

@app.processor("shop/orders", group="mailer", retry=eventproc.RetryPolicy(attempts=2, wait_ms=1))
async def mail(event):
    if b"bad" in event.payload:
        raise ValueError("no such address")
    while b"gate" in event.payload and not pathlib.Path("gate").exists():
        await anyio.sleep(0.005)
    with open("handled", "ab") as handled:
        handled.write(event.payload + b"\\n")

@other.processor("shop/orders")
def count(event):
    print(event.payload.decode(), flush=True)

@strict.processor("shop/orders", on_failure="stop", retry=eventproc.RetryPolicy(attempts=1))
async def check(event):
    raise ValueError("no such customer")

@lost.processor("shop/none")
async def find(event):
    pass
"""


class ServingProcess(RunProcess):
    """`eventproc run` with apps of the module SHOP."""

    def end(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        """Send a signal; return the exit code, and what else it said, as `wait` does."""
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> tuple[int, str]:
        """Wait for its end; return the exit code, and what else it said, without messages of level INFO."""
        _, said = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, above_info(said)


def above_info(log: str) -> str:
    """Return the lines of a log without those of level INFO."""
    return "".join(line for line in log.splitlines(keepends=True) if " INFO    " not in line)


Serve = Callable[..., ServingProcess]


@pytest.fixture
def serve(shop: Cli, tmp_path: Path) -> Serve:
    (tmp_path / "shop.py").write_text(SHOP)
    return lambda *arguments: ServingProcess(shop.directory, tmp_path, *arguments)


def described(shop: Cli, wanted: Callable[[Any], bool], group: str = "shop/mailer") -> Any:
    """Return the description of a processor as soon as it is as wanted."""
    found = shop("processor", "describe", group, "-o", "json")
    for _ in range(PATIENCE_S * 50):
        if found.code == 0 and wanted(json.loads(found.out)):
            return json.loads(found.out)
        found = shop("processor", "describe", group, "-o", "json")
    raise AssertionError(found)


def test_description_shows_every_process_that_runs_the_processor(shop: Cli, serve: Serve) -> None:
    with serve("shop:app") as one, serve("shop:app") as two:
        pids = {one.process.pid, two.process.pid}
        found = described(shop, lambda found: {each["pid"] for each in found["members"]} == pids)
        assert (found["alive"], found["state"]) == (2, "running")
        table = shop("processor", "describe", "shop/mailer").ok()
        assert all(f"  {pid}  " in table for pid in pids)
        assert [each["alive"] for each in shop("processor", "list", "-o", "jsonl").rows()] == [2]


def test_a_server_runs_apps_until_a_signal_and_names_them(shop: Cli, serve: Serve) -> None:
    with serve("shop:app", "shop:other") as server:
        assert "INFO    eventproc.processors: running mail (group shop/mailer" in server.hear("running")
        assert "running count (group shop/count" in server.hear("running")
        serving = server.hear().partition(" INFO    eventproc.run: ")[2]
        assert serving == f"serving {shop.directory} (durability os, pid {server.process.pid})\n"
        found = described(shop, lambda found: found["group"]["events"] == 0)
        described(shop, lambda found: found["group"]["events"] == 0, "shop/count")
        assert (found["state"], found["alive"]) == ("running", 1)
        assert [each["pid"] for each in found["members"]] == [server.process.pid]
        assert {each["owner"] for each in found["group"]["segments"]} == {found["members"][0]["reader"]}
        server.process.send_signal(signal.SIGTERM)
        out, err = server.process.communicate(timeout=PATIENCE_S)
        assert (server.process.returncode, above_info(err), out.count("customer-42")) == (0, "", 3)
    found = shop("processor", "describe", "shop/mailer", "-o", "json").json()
    assert (found["state"], found["members"], found["group"]["events"]) == ("stopped", [], 0)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_handlers_that_run_finish(
    shop: Cli, serve: Serve, tmp_path: Path, number: signal.Signals
) -> None:
    shop("write", "shop/orders", stdin=b"gate\n" * 3).ok()
    with serve("shop:app") as server:
        server.hear()
        described(shop, lambda found: found["group"]["events"] == 3)
        server.process.send_signal(number)
        server.hear("draining: 3 handler calls may run for at most 30 s")
        (tmp_path / "gate").touch()
        assert server.wait() == (0, "")
    assert described(shop, lambda found: found["state"] == "stopped")["group"]["events"] == 0
    shop("write", "shop/orders", stdin=b"after\n").ok()
    with serve("shop:app") as server:
        server.hear()
        described(shop, lambda found: found["group"]["events"] == 0)
        assert server.end() == (0, "")
    lines = (tmp_path / "handled").read_bytes().splitlines()
    assert (lines.count(b"gate"), lines[-1]) == (3, b"after"), "what had finished was handled again"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_calls_beyond_the_grace_period_are_cancelled_with_an_exit_code(
    shop: Cli, serve: Serve, number: signal.Signals
) -> None:
    shop("write", "shop/orders", stdin=b"gate\n").ok()
    with serve("shop:app", "--grace", "0.01") as server:
        server.hear()
        described(shop, lambda found: found["group"]["events"] == 1)
        code, said = server.end(number)
        assert (code, "cancelled: 1 handler call" in said) == (128 + number, True)
    found = described(shop, lambda found: found["state"] == "stopped")
    assert (found["group"]["events"], found["members"]) == (1, [])


def test_second_signal_stops_a_server_immediately(shop: Cli, serve: Serve) -> None:
    shop("write", "shop/orders", stdin=b"gate\n").ok()
    with serve("shop:app") as server:
        server.hear()
        described(shop, lambda found: found["group"]["events"] == 1)
        server.process.send_signal(signal.SIGINT)
        server.hear("draining: ")
        assert server.end() == (-signal.SIGTERM, "")
    found = shop("processor", "describe", "shop/mailer", "-o", "json").json()
    assert (found["state"], [each["alive"] for each in found["members"]]) == ("stopped", [False])
    with serve("shop:app") as server:
        server.hear()
        assert described(shop, lambda found: found["alive"] == 1)["group"]["events"] == 1


def test_a_processor_that_fails_ends_its_server_with_one_line_and_the_frames(shop: Cli, serve: Serve) -> None:
    with serve("shop:strict", "shop:app") as server:
        server.hear()
        code, said = server.wait()
    line, *frames, error = said.splitlines()
    assert code == 1
    assert " ERROR   eventproc.processors: processor check stopped: shop/orders segment 0." in line
    assert line.endswith("ValueError: no such customer")
    assert [each.rpartition(", ")[2] for each in frames if "File" in each] == ["in check"], said
    assert error == "ValueError: no such customer"


@pytest.mark.parametrize(
    "app, code, said",
    [
        ("shop", 2, "use MODULE:NAME"),
        ("nowhere:app", 3, "module 'nowhere' not found"),
        ("shop:nobody", 3, "module shop has no 'nobody'"),
        ("shop:number", 2, "shop:number is of type int; it must be an eventproc.App"),
        ("shop:empty", 2, "shop:empty is empty"),
        ("shop:lost", 3, "no stream 'shop/none'"),
        ("broken:app", 1, "importing broken failed: ModuleNotFoundError: No module named 'no_such_thing'"),
        ("wrong:app", 1, "importing wrong failed: InvalidArgument: order 'backwards'"),
    ],
)
def test_invalid_app_is_refused_in_one_line(
    serve: Serve, tmp_path: Path, app: str, code: int, said: str
) -> None:
    (tmp_path / "broken.py").write_text("import no_such_thing\n")
    wrong = "import eventproc\neventproc.App().add(print, 's/x', order='backwards')\n"
    (tmp_path / "wrong.py").write_text(wrong)
    with serve(app) as server:
        found, line = server.wait()
    assert (found, line.count("\n"), line.startswith("eventproc: ")) == (code, 1, True), line
    assert said in line


def test_run_without_app_and_host_is_refused(shop: Cli) -> None:
    shop("run", "--no-host").refused(2)


def test_a_failing_event_is_named_in_the_log_and_becomes_a_dead_letter(shop: Cli, serve: Serve) -> None:
    shop("write", "shop/orders", stdin=b"bad\n").ok()
    with serve("shop:app") as server:
        server.hear()
        found = described(shop, lambda found: found["group"]["events"] == 0 and found["dead_letters"] == 1)
        code, said = server.end()
    attempt, letter, *frames, error = said.splitlines()
    assert " WARNING eventproc.processors: processor mail: attempt 1 of 2 failed for shop/orders " in attempt
    assert attempt.endswith(": ValueError: no such address")
    assert letter.endswith(" became a dead letter after 2 attempts: ValueError: no such address")
    assert [each.rpartition(", ")[2] for each in frames if "File" in each] == ["in mail"], said
    assert error == "ValueError: no such address"
    assert (code, found["blocker"]) == (0, None)


def test_a_processor_is_paused_and_goes_on_while_its_server_runs(shop: Cli, serve: Serve) -> None:
    with serve("shop:app") as server:
        server.hear()
        described(shop, lambda found: found["group"]["events"] == 0)
        assert shop("processor", "pause", "shop/mailer") == (0, "", "shop/mailer is paused\n")
        shop("processor", "pause", "shop/mailer").ok()
        described(shop, lambda found: (found["members"][0]["status"] or {}).get("state") == "paused")
        shop("write", "shop/orders", stdin=b"gate\n").ok()
        assert [each["state"] for each in shop("processor", "list", "-o", "jsonl").rows()] == ["paused"]
        assert shop("processor", "describe", "shop/mailer", "-o", "json").json()["group"]["events"] == 1
        shop("processor", "resume", "shop/mailer").ok()
        found = described(shop, lambda found: found["blocker"] is not None)
        assert (found["blocker"]["stream"], found["blocker"]["key"]) == ("shop/orders", None)
        assert found["blocker"]["since_ms"] > found["group"]["created_ms"]
        table = shop("processor", "describe", "shop/mailer").ok()
        assert re.search(r"^blocker +shop/orders ", table, re.MULTILINE)
        assert table.count(found["members"][0]["reader"]) == 3  # itself, and the owner of two segments


@pytest.mark.parametrize("state", ["stopped", "paused"])
def test_group_of_a_processor_cannot_be_read_by_a_shell(shop: Cli, serve: Serve, state: str) -> None:
    with serve("shop:app") as server:
        server.hear()
        described(shop, lambda found: found["group"]["events"] == 0)
        server.end()
    if state == "paused":
        shop("processor", "pause", "shop/mailer").ok()
    shop("write", "shop/orders", stdin=b"more\n").ok()
    said = shop("read", "--group", "shop/mailer").refused(4)
    assert "belongs to a processor" in said
    assert "read shop/orders" in said
    assert described(shop, lambda found: True)["group"]["events"] == 1


@pytest.mark.parametrize("verb", ["describe", "pause", "resume"])
def test_an_unknown_processor_is_not_found(shop: Cli, verb: str) -> None:
    assert "shop/none" in shop("processor", verb, "shop/none").refused(3)


def test_processors_are_listed_as_none_before_any_ran(shop: Cli) -> None:
    assert shop("processor", "list", "-o", "json").json() == []


def test_a_terminal_shows_the_processors_live(
    shop: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "limited.py").write_text(
        "import os, signal, shop\n"
        "app = shop.app\n"
        "from eventproc.cli import live_status\n"
        "known = live_status.status_cells\n"
        "def cells(status, rate):\n"
        "    if status.finished == 3:\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n"
        "    return known(status, rate)\n"
        "live_status.status_cells = cells\n"
    )
    monkeypatch.chdir(tmp_path)
    terminal = Terminal(shop.directory, "run", "limited:app", width=160, piped=True)
    assert terminal.end() == 0
    for word in (b"serving", b"PROCESSOR", b"HELD UP BY", b"mail", b"running"):
        assert word in terminal.shown
