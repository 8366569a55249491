"""The tours of the README run as written, twice in a row, and all links between documents resolve."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.subprocess

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """Return the README's blocks of code in a language, except those that set up the project."""
    found = re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    return [block for block in found if not block.startswith("make ")]


def run(command: list[str], folder: Path) -> str:
    scripts = str(Path(sys.executable).parent)
    environment = {**os.environ, "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.parametrize(
    "number, printed",
    [
        (
            0,
            {
                *("customer-42 b'2 apples'", "customer-7 b'a pear'", "customer-42 b'3 plums'"),
                *("bill to customer-42", "bill to customer-7", "mail to customer-42", "mail to customer-7"),
            },
        ),
        (1, {"['start', 'apples', 'basket']"}),
    ],
)
def test_the_python_tour_runs_twice(number: int, printed: set[str], tmp_path: Path) -> None:
    (tmp_path / "tour.py").write_text(blocks("python")[number])
    for _ in range(2):
        assert set(run([sys.executable, "-W", "error", "tour.py"], tmp_path).splitlines()) == printed


def test_the_python_tours_share_a_directory(tmp_path: Path) -> None:
    for number, block in enumerate(blocks("python")):
        (tmp_path / f"tour{number}.py").write_text(block)
        run([sys.executable, f"tour{number}.py"], tmp_path)


def test_the_shell_tour_runs_twice(tmp_path: Path) -> None:
    (tour,) = blocks("sh")
    for _ in range(2):
        printed = run(["bash", "-eu", "-c", tour], tmp_path)
        assert printed.count('"payload"') == 8
        assert '"{\\"customer\\":\\"ana\\",\\"item\\":\\"plums\\"}"' in printed


def test_the_commands_that_set_up_are_targets_of_the_makefile() -> None:
    targets = re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    named = re.findall(r"\bmake ([a-z-]+)", README)
    assert {"demo", "test"} <= set(named) <= set(targets)


@pytest.mark.parametrize(
    "document",
    ["README.md", *(str(path.relative_to(ROOT)) for path in sorted((ROOT / "docs").rglob("*.md")))],
)
def test_links_resolve(document: str) -> None:
    path = ROOT / document
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8"))
    assert [link for link in links if not (path.parent / link).exists()] == []
