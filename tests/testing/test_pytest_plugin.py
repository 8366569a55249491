"""The pytest plugin in a project of a user: a folder with an app and its tests, and no settings."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.subprocess

APP = """
import eventproc

app = eventproc.App()
sent = []


@app.processor("shop/orders", group="mailer", retry=eventproc.RetryPolicy(attempts=3, wait_ms=10_000))
async def mail(event: eventproc.Event, context: eventproc.Context) -> None:
    if event.payload == b"never" or context.attempt < 3:
        raise ConnectionError("no answer")
    sent.append(event.payload)
"""

PYTEST_ASYNCIO = "asyncio_default_fixture_loop_scope = function"
"""It is installed beside the library here, and warns without this setting."""


def run_pytest(folder: Path, test: str, *arguments: str, settings: str = "") -> tuple[int, str]:
    (folder / "shop.py").write_text(APP)
    (folder / "test_shop.py").write_text(f"import pytest\nfrom shop import app, sent\n\n{test}")
    (folder / "pytest.ini").write_text(
        f"[pytest]\naddopts = --strict-markers -W error\n{PYTEST_ASYNCIO}\n{settings}\n"
    )
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-v", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout + done.stderr


MAIL = """
async def test_mail(eventproc_runtime):
    async with eventproc_runtime.running(app) as t:
        await t.write("shop/orders", b"2 apples", key="ana")
        await t.write("shop/orders", b"never", key="bob")
        await t.settled()
        assert sent.pop() == b"2 apples"
        assert [letter.payload for letter in await t.dead_letters("shop/mailer")] == [b"never"]
"""


def test_an_async_test_of_five_lines_needs_no_settings(tmp_path: Path) -> None:
    code, printed = run_pytest(tmp_path, MAIL)
    assert (code, "test_mail[asyncio] PASSED" in printed) == (0, True), printed


def test_the_setting_chooses_the_event_loops(tmp_path: Path) -> None:
    code, printed = run_pytest(tmp_path, MAIL, settings="eventproc_backends = asyncio trio")
    assert code == 0, printed
    assert "test_mail[asyncio] PASSED" in printed
    assert "test_mail[trio] PASSED" in printed


def test_other_plugins_for_async_tests_leave_it_alone(tmp_path: Path) -> None:
    code, printed = run_pytest(tmp_path, MAIL, settings="anyio_mode = auto")
    assert code == 0, printed


def test_methods_other_fixtures_and_plain_functions_work(tmp_path: Path) -> None:
    test = """
class TestShop:
    @pytest.mark.parametrize("number", [1, 2])
    async def test_write(self, eventproc_runtime, number, tmp_path):
        async with eventproc_runtime.running(app) as t:
            await t.write("shop/orders", b"%d" % number)
            await t.settled()
            assert [event.payload for event in await t.events("shop/orders")] == [b"%d" % number]
            assert tmp_path.exists()

def test_plain(eventproc_runtime):
    async def main():
        return 7
    assert eventproc_runtime.run(main) == 7
"""
    code, printed = run_pytest(tmp_path, test)
    assert (code, "3 passed" in printed) == (0, True), printed


FAILS_WITH_SOME_SEEDS = """
import anyio

@pytest.mark.seeds(20)
async def test_race(eventproc_runtime):
    order = []
    async def note(name):
        await anyio.lowlevel.checkpoint()
        order.append(name)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(note, "a")
        tasks.start_soon(note, "b")
    assert order == ["a", "b"]
"""


def test_a_world_may_come_by_a_fixture_of_the_user(tmp_path: Path) -> None:
    test = """
@pytest.fixture
def orders(eventproc_world):
    return eventproc_world, "shop/orders"

async def test_mail(orders):
    world, stream = orders
    await world.start(app)
    await world.write(stream, b"2 apples", key="ana")
    await world.settled()
    assert sent == [b"2 apples"]
"""
    code, printed = run_pytest(tmp_path, test)
    assert (code, "test_mail[asyncio] PASSED" in printed) == (0, True), printed


def test_a_failing_seed_is_printed_and_fails_again(tmp_path: Path) -> None:
    code, printed = run_pytest(tmp_path, FAILS_WITH_SOME_SEEDS)
    assert code == 1
    failed = [
        line.split()[0].partition("seed")[2][:-1] for line in printed.splitlines() if "] FAILED" in line
    ]
    assert 0 < len(failed) < 20
    assert (
        f"seed {failed[0]}; again: pytest 'test_shop.py::test_race' --eventproc-seed {failed[0]}" in printed
    )
    for _ in range(2):
        code, printed = run_pytest(tmp_path, FAILS_WITH_SOME_SEEDS, "--eventproc-seed", failed[0])
        assert (code, "1 failed" in printed) == (1, True), printed


def test_an_option_runs_more_seeds(tmp_path: Path) -> None:
    test = "@pytest.mark.seeds(2)\nasync def test_it(eventproc_runtime): pass\n"
    for arguments, count in (((), 2), (("--eventproc-seeds", "7"), 7)):
        code, printed = run_pytest(tmp_path, test, *arguments)
        assert (code, f"{count} passed" in printed) == (0, True), printed


@pytest.mark.parametrize(
    "test, reason",
    [
        ("@pytest.mark.seeds(3)\ndef test_it(): pass\n", "needs the fixture eventproc_runtime"),
        (
            "@pytest.mark.seeds\nasync def test_it(eventproc_runtime): pass\n",
            "with a number, such as seeds(20)",
        ),
        ("@pytest.mark.seeds('x')\nasync def test_it(eventproc_runtime): pass\n", "with a number"),
    ],
)
def test_a_wrong_marker_is_refused_with_the_remedy(test: str, reason: str, tmp_path: Path) -> None:
    code, printed = run_pytest(tmp_path, test)
    assert code != 0
    assert reason in printed


def test_loading_the_plugin_imports_nothing_of_eventproc(tmp_path: Path) -> None:
    test = """
import sys

def test_nothing():
    loaded = {name for name in sys.modules if name.startswith("eventproc.")}
    assert loaded == {"eventproc._version", "eventproc.pytest_plugin"}
"""
    (tmp_path / "test_plain.py").write_text(test)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_plain.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout


def test_the_tools_for_processes_that_die_load_neither_trio_nor_pytest() -> None:
    program = (
        "import sys, eventproc.testing; print(sorted(sys.modules.keys() & {'trio', 'pytest', 'hypothesis'}))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
