"""Every document that code or a page cites exists in the repository, with the section or item that is named."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.tidy.source import CODE, ROOT, files, name_of

PAGES = {path.name: path for path in files("docs", suffix=".md")} | {
    name: ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
}
"""Cited by name only, wherever they lie below docs/; README.md alone means the one at the top."""

CITED = re.compile(r"(?<![\w/*-])(?:[\w.-]+/)*([\w-]+\.md)\b")
NUMBERED = re.compile(
    r"(?P<page>pravega|pitfalls)\.md[`,]*\s+(?P<numbers>(?:items?\s+)?S?\d+(?:\.\d+)?"
    r"(?:(?:,\s*(?:and\s+)?|\s+and\s+)S?\d+(?:\.\d+)?)*)"
)
NAMES_PAGES = {"site.py", "test_citations.py", "test_site.py"}
"""Modules whose business is the names of pages; they cite nothing."""


def test_every_document_that_is_cited_exists() -> None:
    lost = [f"{name}: {page}" for name, text in texts() for page in CITED.findall(text) if page not in PAGES]
    assert lost == []


def test_every_numbered_citation_resolves() -> None:
    known = {"pravega": sections(), "pitfalls": items()}
    lost = [
        f"{name}: {match['page']}.md {number}"
        for name, text in texts()
        for match in NUMBERED.finditer(text)
        for number in re.findall(r"S?\d+(?:\.\d+)?", match["numbers"])
        if number not in known[match["page"]]
    ]
    assert lost == []


def test_the_numbered_citations_are_recognised() -> None:
    examples = {
        "pravega.md 1.3 and 1.10.": ["1.3", "1.10"],
        "pitfalls.md item 26": ["26"],
        "pitfalls.md, items 4 and 14": ["4", "14"],
        "pitfalls.md S1.4, S1.8 and S1.9": ["S1.4", "S1.8", "S1.9"],
    }
    for text, numbers in examples.items():
        match = NUMBERED.search(text)
        assert match is not None
        assert re.findall(r"S?\d+(?:\.\d+)?", match["numbers"]) == numbers


def test_no_text_points_outside_the_repository() -> None:
    outside = "../" + "shared"
    assert [name for name, text in texts() if outside in text] == []


def texts() -> Iterator[tuple[str, str]]:
    """Yield the name and the text of every module and every page, line breaks in prose removed."""
    pages = [*files(suffix=".md"), *files(*CODE, suffix=".py"), *files(suffix=".toml")]
    for path in pages:
        if path.name not in NAMES_PAGES:
            yield name_of(path), re.sub(r"\n[ #]*", " ", path.read_text(encoding="utf-8"))


def sections() -> set[str]:
    """Return the numbers of the sections of pravega.md."""
    text = PAGES["pravega.md"].read_text(encoding="utf-8")
    return set(re.findall(r"^##+ (\d+(?:\.\d+)?)\.? ", text, re.MULTILINE))


def items() -> set[str]:
    """Return the items of pitfalls.md, by number alone and as section.number."""
    text = PAGES["pitfalls.md"].read_text(encoding="utf-8")
    found: set[str] = set()
    for section, body in re.findall(r"^## (S\d)\. .*?\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL):
        for number in re.findall(r"^\*\*(\d+)\. ", body, re.MULTILINE):
            found |= {number, f"{section}.{number}"}
    return found
