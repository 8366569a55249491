"""The files of the repository, parsed once, for the tests in this folder."""

from __future__ import annotations

import ast
import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = ("cli", "eventproc", "store", "workflows")
CODE = (*SHIPPED, "benchmarks", "docs", "tests", "tools")


def _listed() -> tuple[Path, ...]:
    """Return the files of the repository that are or could be committed, without links."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        paths = {ROOT / name for name in done.stdout.split("\0") if name}
    except (OSError, subprocess.CalledProcessError):  # an unpacked archive has no git
        paths = {path for folder in CODE for path in (ROOT / folder).rglob("*")}
    return tuple(sorted(path for path in paths if path.is_file() and not path.is_symlink()))


_FILES = _listed()
"""Listed once, while tests are collected: a test itself may not start a process without a mark."""


@cache
def files(*folders: str, suffix: str = "") -> tuple[Path, ...]:
    """Return the files below `folders` (all files, if no folder is named) whose names end with `suffix`."""
    places = tuple(f"{folder}/" for folder in folders) or ("",)
    return tuple(path for path in _FILES if name_of(path).startswith(places) and path.name.endswith(suffix))


@cache
def parsed(path: Path) -> ast.Module:
    """Return the syntax tree of `path`."""
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def name_of(path: Path) -> str:
    """Return the path as people write it, from the root of the repository."""
    return path.relative_to(ROOT).as_posix()
