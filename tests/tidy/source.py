"""The files of the repository, parsed once, for the tests in this folder."""

from __future__ import annotations

import ast
import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = ("cli", "eventproc", "store", "workflows")
CODE = (*SHIPPED, "benchmarks", "docs", "tests", "tools")


@cache
def files(*folders: str, suffix: str = "") -> tuple[Path, ...]:
    """Return the files below `folders` (all, when none is named) that are or could be committed; links are left out."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *folders]
    try:
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split(
            "\0"
        )
    except (OSError, subprocess.CalledProcessError):  # an unpacked archive has no git
        found = (path for folder in folders or CODE for path in sorted((ROOT / folder).rglob("*")))
        listed = [str(path.relative_to(ROOT)) for path in found]
    paths = (ROOT / name for name in sorted(set(listed)) if name)
    return tuple(
        path for path in paths if path.is_file() and not path.is_symlink() and path.name.endswith(suffix)
    )


@cache
def parsed(path: Path) -> ast.Module:
    """Return the syntax tree of `path`."""
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def name_of(path: Path) -> str:
    """Return the path as people write it, from the root of the repository."""
    return path.relative_to(ROOT).as_posix()
