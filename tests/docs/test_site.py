"""The site's navigation lists every page, and its reference every public name. `make docs` builds it, strictly."""

from __future__ import annotations

import importlib
import re

import pytest

from tests.tidy.source import ROOT, files
from tools.docs.site import API, COPIED, api_page

LINES_MAX = 60
"""Of a comparison."""

NAV = re.findall(
    r"^ +- (?:[^:\n]+: )?([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.M
)


def test_every_page_is_in_the_navigation_once() -> None:
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in files("docs", suffix=".md")}
    assert sorted(NAV) == sorted(pages | set(COPIED) | set(API))


@pytest.mark.parametrize("module", API.values())
def test_every_public_name_has_an_entry(module: str) -> None:
    page = api_page(module)
    names = {name for name in importlib.import_module(module).__all__ if not name.startswith("__")}
    assert {name for name in names if f"::: {module}.{name}\n" not in page} == set()


def test_the_pages_of_the_top_level_exist() -> None:
    assert [source for source in COPIED.values() if not (ROOT / source).exists()] == []


def test_the_guides_have_the_order_of_the_navigation() -> None:
    listed = re.findall(r"\]\(([\w-]+\.md)\)", (ROOT / "docs/guide/README.md").read_text(encoding="utf-8"))
    guides = [
        page.removeprefix("guide/") for page in NAV if page.startswith("guide/") and page != "guide/README.md"
    ]
    assert listed == guides


def test_a_comparison_is_short_and_says_what_was_measured() -> None:
    pages = {path: path.read_text(encoding="utf-8") for path in files("docs/compare", suffix=".md")}
    peers = {path: text for path, text in pages.items() if path.name != "README.md"}
    assert [path.name for path, text in peers.items() if text.count("\n") > LINES_MAX] == []
    parts = ("**Take eventproc**", "## What differs", "## Words", "## Moving", "<!-- figures: ", "Sources: ")
    assert [(path.name, each) for path, text in peers.items() for each in parts if each not in text] == []
    linked = set(
        re.findall(r"\]\(([\w-]+\.md)\)", (ROOT / "docs/compare/README.md").read_text(encoding="utf-8"))
    )
    assert linked == {path.name for path in peers}
