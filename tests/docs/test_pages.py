"""Every block of the guides and comparisons runs as written, in an empty folder; twice in `make pages`.

Those of the README run with the wheel alone: tests/packaging/test_distribution.py.
"""

from __future__ import annotations

import lzma
import re
import shutil
import tomllib
from pathlib import Path

import pytest

from tests.docs.page import (
    CHECKOUT,
    COMPARISONS,
    GUIDE,
    INSTALL,
    README,
    ROOT,
    SPARK,
    blocks,
    run_bash,
    run_page,
    turns,
)
from tests.spark.conftest import CHEAP

pytestmark = pytest.mark.subprocess

PAGES = [README, *GUIDE, *(page for page in COMPARISONS if blocks(page))]

RUN_ELSEWHERE = {
    "make test": "it is this suite",
    "pip install .": "tests/packaging",
    "pip install 'eventproc[spark]'": "tests/packaging",
}
"""Commands that the documents name and no test of this file runs, and where they are run."""

FLIGHTS = "data/flights.csv.xz"

EVERY = 40
"""One in so many flights is read by the commands of a checkout, unless in a hunt: they read the file several times."""


@pytest.fixture(autouse=True)
def _java_for_a_short_life(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_LAUNCHER_OPTS", CHEAP)
    monkeypatch.setenv("JDK_JAVA_OPTIONS", CHEAP)


@pytest.fixture
def times(pytestconfig: pytest.Config) -> int:
    return turns(pytestconfig)


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=pytest.mark.spark if page.stem == "spark" else ()) for page in PAGES[1:]],
    ids=lambda page: page.stem,
)
def test_the_page_runs_from_top_to_bottom(page: Path, tmp_path: Path, times: int) -> None:
    for turn in range(times):
        printed = run_page(page, tmp_path)
        if page.stem == "state-recipes" and not turn:  # the next turn finds the events of the first one
            shown = re.findall(r"^```text\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
            assert len(shown) == 6
            assert [each for each in shown if each not in printed] == []


def commands_of(title: str) -> list[str]:
    found = [block.commands for page in PAGES for block in blocks(page) if block.title == title]
    return [re.sub(r"\s*# .*", "", line) for commands in found for line in commands.splitlines()]


@pytest.fixture
def checkout(tmp_path: Path, times: int) -> Path:
    """Return a folder with links to what a checkout has, so that commands leave nothing in this one.

    The data are some of the flights, in a hunt all. The examples look for them beside themselves, so they are copied.
    """
    for entry in ROOT.iterdir():
        if entry.name not in (".git", "build", "data", "docs"):
            (tmp_path / entry.name).symlink_to(entry)
    for folder in ("data", "docs/examples"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    if times == 1:
        with lzma.open(ROOT / FLIGHTS, "rt", encoding="utf-8") as whole:
            header, *rows = whole
        with lzma.open(tmp_path / FLIGHTS, "wt", encoding="utf-8", preset=0) as some:
            some.writelines([header, *rows[::EVERY]])
    return tmp_path


def test_the_commands_of_a_checkout_run(checkout: Path, times: int) -> None:
    commands = [each for each in commands_of(CHECKOUT) if each not in RUN_ELSEWHERE]
    assert commands == ["make demo"]
    for _ in range(times):
        assert "order violations   0" in run_bash("\n".join(commands), checkout)


@pytest.mark.spark
def test_the_commands_that_need_spark_run(checkout: Path, times: int) -> None:
    both, plotting = commands_of(SPARK)
    assert both.split()[:2] == plotting.split()[:2] == ["make", "example"]
    *_, first, second = run_bash(f"{both} --dry-run", checkout).splitlines()
    assert first in run_bash(f"{plotting} --dry-run", checkout)
    # The first program is run by the command that plots.
    printed = run_bash(second if times == 1 else both, checkout)
    for expected in ("killed worker", "2 groups, 4 tasks", "rows, equal to the direct computation"):
        assert expected in printed
    run_bash(plotting, checkout)
    assert (checkout / "delays.png").read_bytes().startswith(b"\x89PNG")


def test_what_is_installed_is_installed_by_a_test_of_the_package() -> None:
    assert {each for each in commands_of(INSTALL) if each not in RUN_ELSEWHERE} == set()


def test_the_readme_names_every_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    text = README.read_text(encoding="utf-8")
    (sentence,) = re.findall(r"Its extras are (.*?)\.\n", text, re.DOTALL)
    assert set(re.findall(r"`(\w+)`", sentence)) == set(project["optional-dependencies"])


def test_commands_with_make_are_targets_of_the_makefile() -> None:
    targets = re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    named = re.findall(r"\bmake ([a-z-]+)", README.read_text(encoding="utf-8"))
    assert {"demo", "test"} <= set(named) <= set(targets)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_page_uses_the_public_api_only(page: Path) -> None:
    imported = re.findall(
        r"^(?:from|import) (eventproc[\w.]*)", page.read_text(encoding="utf-8"), re.MULTILINE
    )
    modules = ("blocking", "errors", "testing", "spark", "windows")
    public = {"eventproc", *(f"eventproc.{each}" for each in modules)}
    assert set(imported) <= public


@pytest.mark.parametrize(
    "document",
    [
        *sorted(path.name for path in ROOT.glob("*.md")),
        *(str(path.relative_to(ROOT)) for path in sorted((ROOT / "docs").rglob("*.md"))),
    ],
)
def test_links_resolve(document: str) -> None:
    path = ROOT / document
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8"))
    assert [link for link in links if not (path.parent / link).exists()] == []
