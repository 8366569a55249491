"""Citations of the architecture page resolve, and the page lists every table and every room."""

from __future__ import annotations

import re

import pytest

from eventproc.runtime import open_memory
from eventproc.store.database import Tx
from tests.tidy.source import ROOT, SHIPPED, files, name_of

ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
CITED = re.compile(r'architecture\.md,?\s+section\s+(\d)(?:,\s+["`]([^"`]+)["`])?')


def sections() -> dict[str, str]:
    """Return the numbered sections of the page, by their numbers."""
    parts = re.split(r"^## (?:(\d)\. )?.*$", ARCHITECTURE, flags=re.MULTILINE)[1:]
    return {number: text for number, text in zip(parts[::2], parts[1::2], strict=True) if number}


def code() -> dict[str, str]:
    return {name_of(path): path.read_text(encoding="utf-8") for path in files(*SHIPPED, suffix=".py")}


@pytest.mark.subprocess
def test_cited_sections_exist_and_have_the_cited_words() -> None:
    found = sections()
    lost = [
        f"{name}: section {number}, {word}"
        for name, text in code().items()
        for number, word in CITED.findall(text)
        if number not in found or (word and f"**{word}" not in found[number].replace("`", ""))
    ]
    assert lost == []


async def test_every_table_is_listed() -> None:
    def tables(tx: Tx) -> set[str]:
        return {str(name) for (name,) in tx.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}

    async with open_memory(host=False) as ep:
        there = await ep.db.read(tables)
    page = ARCHITECTURE[ARCHITECTURE.index("| table | one row is |") :]
    rows = page[: page.index("\n\n")].splitlines()[2:]
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])} == there


@pytest.mark.parametrize("layer", ["eventproc", "store"])
def test_every_room_is_listed(layer: str) -> None:
    rooms = {path.name for path in (ROOT / layer).iterdir() if path.is_dir() and not path.is_symlink()}
    assert [room for room in rooms - {"__pycache__"} if f"`{layer}/{room}/`" not in ARCHITECTURE] == []


def test_every_source_file_that_a_document_names_exists() -> None:
    named = re.compile(r"`((?:cli|eventproc|store|tests|tools|workflows)/[\w/]+\.(?:py|md))`")
    assert [
        f"{name_of(document)}: {path}"
        for document in files(suffix=".md")
        for path in named.findall(document.read_text(encoding="utf-8"))
        if not (ROOT / path).exists()
    ] == []
