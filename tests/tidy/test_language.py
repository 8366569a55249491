"""Phrases that are hard to read do not occur in shipped code and documents."""

from __future__ import annotations

import re

from tests.tidy.source import SHIPPED, files, name_of

PHRASES = re.compile(
    r"\bwhoever\b|\banew\b|\bin vain\b|\bis fine\b|\bis told\b|\bgood-bye\b|\bis not there\b|\bso much comes\b"
    r"|(?<!user )(?<!person )(?<!of )"
    r"\bwho (?:is|was|has|does|did|comes|goes|dies|waits|wants|writes|reads|asks|slept)\b",
    re.IGNORECASE,
)
"""Write the thing that acts, "again", "without effect", "is allowed", "not found" instead."""


def test_no_sentence_has_a_phrase_that_is_hard_to_read() -> None:
    paths = {*files(*SHIPPED, "docs", suffix=".py"), *files("docs", suffix=".md")}
    assert [
        f"{name_of(path)}:{number}: {line.strip()}"
        for path in sorted(paths)
        if not name_of(path).startswith("docs/reference/")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if PHRASES.search(line)
    ] == []
