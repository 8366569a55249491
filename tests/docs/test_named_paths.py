"""The paths and commands that the pages for contributors name exist."""

from __future__ import annotations

import re

from tests.tidy.source import ROOT

PAGE = "\n".join(
    (ROOT / name).read_text(encoding="utf-8")
    for name in ("CONTRIBUTING.md", "SECURITY.md", "docs/where-to-change-what.md")
)


def test_every_path_exists() -> None:
    paths = re.findall(r"`((?:cli|eventproc|store|workflows|tests|tools)/[\w./-]*)`", PAGE)
    assert len(paths) > 12
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_what_the_table_names_in_a_file_is_in_it() -> None:
    named = re.findall(r"`([\w/]+\.py)` \(`([\w ]+)`\)", PAGE)
    assert named != []
    assert [
        (path, name) for path, name in named if name not in (ROOT / path).read_text(encoding="utf-8")
    ] == []


def test_every_target_is_in_the_makefile() -> None:
    targets = re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    named = re.findall(r"(?:^|`)make ([a-z-]+)", PAGE, re.MULTILINE)
    assert named != []
    assert set(named) <= set(targets)
