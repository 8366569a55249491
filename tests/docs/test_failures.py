"""Each failure in the table of failures names a test that exists."""

from __future__ import annotations

import re

from tests.tidy.source import ROOT

ROW = re.compile(r"^\| (?!failure|---)", re.MULTILINE)
NAMED = re.compile(r"\| `(tests/[\w/]+\.py)::(test_\w+)` \|$", re.MULTILINE)


def test_each_failure_names_a_test_that_exists() -> None:
    text = (ROOT / "docs" / "failures.md").read_text(encoding="utf-8")
    named = NAMED.findall(text)
    assert len(named) == len(ROW.findall(text))
    assert [
        f"{file}::{test}"
        for file, test in named
        if f"def {test}(" not in (ROOT / file).read_text(encoding="utf-8")
    ] == []
