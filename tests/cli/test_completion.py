"""A shell completes commands, options and the names in the directory, quickly and without a message."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from eventproc.cli.main import COMPLETE_VARIABLE
from tests.cli.conftest import Cli
from tests.cli.support import COMMAND, GROUP, environment

CPU_RATIO_MAX = 2.5
"""CPU time of a completion, beside an interpreter that only imports click. Measured: 1.2 to 1.5."""


def complete(line: str, command: Sequence[str] = COMMAND, **variables: str) -> list[str]:
    """Return what bash offers for the last word of a line, which may be empty."""
    words = line.split(" ")
    done = subprocess.run(
        command,
        capture_output=True,
        env=environment(
            **{COMPLETE_VARIABLE: "bash_complete"},
            COMP_WORDS=line,
            COMP_CWORD=str(len(words) - 1),
            **variables,
        ),
        check=True,
        text=True,
    )
    assert done.stderr == ""
    return [each.removeprefix("plain,") for each in done.stdout.splitlines() if each]


@pytest.mark.subprocess
@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("scope delete ", ["shop"]),
        ("stream list s", ["shop"]),
        ("stream describe shop/o", ["shop/orders"]),
        ("read ", ["shop/orders"]),
        ("group create more --stream ", ["shop/orders"]),
        ("group lag ", [GROUP]),
        ("read --group s", [GROUP]),
        ("stream split shop/orders ", ["0.0", "1.0"]),
        ("stream merge shop/orders 0.0 1", ["1.0"]),
        ("read shop/orders --segment 0", ["0.0"]),
        ("stream scale shop/orders --seal 0.0,1", ["0.0,1.0"]),
        ("stream describe zz", []),
        ("stream split shop/zz ", []),
        ("stream list --output j", ["json", "jsonl"]),
        ("str", ["stream"]),
        ("stream des", ["describe"]),
        ("group che", ["checkpoint", "checkpoints"]),
        ("stream describe --wat", ["--watch"]),
    ],
)
def test_names_commands_and_options_are_completed(billing: Cli, line: str, names: list[str]) -> None:
    assert complete(f"eventproc -C {billing.directory} {line}") == names
    assert complete(f"eventproc {line}", EVENTPROC_DIR=str(billing.directory)) == names


@pytest.mark.subprocess
@pytest.mark.parametrize("content", [None, b"", b"no database" * 1000])
def test_directory_that_cannot_be_read_has_no_names_and_no_message(
    tmp_path: Path, content: bytes | None
) -> None:
    if content is not None:
        (tmp_path / "eventproc.db").write_bytes(content)
    before = sorted(tmp_path.iterdir())
    assert complete(f"eventproc -C {tmp_path} stream describe ") == []
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.subprocess
def test_completion_leaves_the_directory_as_it_is(shop: Cli) -> None:
    before = sorted(shop.directory.iterdir())
    assert complete(f"eventproc -C {shop.directory} read ") == ["shop/orders"]
    assert sorted(shop.directory.iterdir()) == before
    assert len(shop("stream", "list", "-o", "json").json()) == 1


@pytest.mark.subprocess
def test_names_are_completed_while_a_process_writes(billing: Cli, as_reader: object) -> None:
    billing("stream", "create", "shop/refunds").ok()
    assert complete(f"eventproc -C {billing.directory} read shop/r") == ["shop/refunds"]


@pytest.mark.subprocess
def test_completing_a_name_takes_little_more_cpu_than_importing_click(shop: Cli) -> None:
    def cpu_seconds(action: Callable[[], object]) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        action()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    def import_click() -> None:
        subprocess.run([sys.executable, "-c", "import click"], env=environment(), check=True)

    # The lowest of several: the first may compile modules, and a loaded machine slows single runs.
    floor = min(cpu_seconds(import_click) for _ in range(4))
    line = f"eventproc -C {shop.directory} stream describe "
    assert min(cpu_seconds(lambda: complete(line)) for _ in range(4)) < CPU_RATIO_MAX * floor


@pytest.mark.subprocess
def test_completing_a_name_loads_nothing_heavy(shop: Cli) -> None:
    code = (
        "import sys; from eventproc.cli.main import run; run([]);"
        "print([name for name in ('anyio', 'rich', 'eventproc.store.database') if name in sys.modules])"
    )
    line = f"eventproc -C {shop.directory} stream describe "
    assert complete(line, [sys.executable, "-c", code]) == ["shop/orders", "[]"]
