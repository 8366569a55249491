"""Plant known bugs, one at a time, and require that a test finds each: `python -m tools.mutants [NAME ...]`.

Each patch of `tests/mutations/` begins with the lines `# what the bug is` and `# test: path::name`; a unified diff
follows. The patch is applied to a temporary copy of the working tree. The run fails if a patch no longer applies, if
its test passes with the bug, or if its test fails without it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import attrs

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "tests" / "mutations"

TEST_TIMEOUT_S: Final = 120
"""How long a test may take with the bug planted; one that hangs has found it, too."""

COPIED: Final = ("cli", "eventproc", "store", "tests", "tools", "workflows", "pyproject.toml")


@attrs.frozen
class Mutation:
    """A planted bug. test: what must fail with it. path: its patch file."""

    name: str
    bug: str
    test: str
    path: Path


def mutations() -> list[Mutation]:
    """Return all planted bugs, by name. Raises ValueError for a file without the two lines."""
    return [_read(path) for path in sorted(FOLDER.glob("*.patch"))]


def _read(path: Path) -> Mutation:
    bug, test = [*path.read_text().splitlines(), "", ""][:2]
    if not bug.startswith("# ") or not test.startswith("# test: "):
        raise ValueError(f"{path}: it must begin with `# what the bug is` and `# test: path::name`")
    return Mutation(path.stem, bug.removeprefix("# "), test.removeprefix("# test: "), path)


def apply(mutation: Mutation, tree: Path) -> str | None:
    """Plant the bug in a copy of the repository; return why the patch does not apply, None if it does."""
    done = subprocess.run(
        ["git", "apply", "--unsafe-paths", f"--directory={tree}", str(mutation.path)],
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stderr.strip() if done.returncode else None


def copy_tree(to: Path) -> Path:
    """Copy what the tests need; return the copy."""
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, to / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, to / name)
    return to


def _passes(test: str, tree: Path) -> bool:
    # The copy comes before the installed package: pytest puts its own root first.
    environment = os.environ | {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", test]
    try:
        done = subprocess.run(
            command, cwd=tree, env=environment, capture_output=True, timeout=TEST_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return False
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{test}: {done.stdout.decode()}{done.stderr.decode()}")
    return done.returncode == 0


def _problem(mutation: Mutation) -> str | None:
    """Return why a planted bug is not found, None if it is."""
    with tempfile.TemporaryDirectory() as folder:
        tree = copy_tree(Path(folder))
        if not _passes(mutation.test, tree):
            return f"{mutation.test} fails without the bug"
        if (why := apply(mutation, tree)) is not None:
            return f"the patch no longer applies: {why}"
        if _passes(mutation.test, tree):
            return f"{mutation.test} passes with the bug"
    return None


def main(names: list[str]) -> int:
    """Plant the bugs of these names, or all; return 1 if one was not found."""
    failed = 0
    for mutation in mutations():
        if names and mutation.name not in names:
            continue
        problem = _problem(mutation)
        failed += problem is not None
        sys.stdout.write(f"{mutation.name}: {problem or 'found'} ({mutation.bug})\n")
        sys.stdout.flush()
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
