"""Plant known bugs, one at a time, and require that a test finds each: `python -m tools.mutants [--check] [NAME ...]`.

Each patch of `tests/mutations/` begins with the lines `# what the bug is` and `# test: path::name`; a unified diff
follows. The patch is applied to a temporary copy of the working tree. The run fails if a patch no longer applies, if
its test passes with the bug, or if its test fails without it. The last line counts the bugs and those that were found.

A test that does not end has found nothing: it may be slow, or wait for something else. Only a bug whose patch has the
third line `# hangs: why` is found by a test that runs for `HANGS_AFTER_S`.

An edit beside the planted bug does not make a patch inapplicable: the lines that it removes say where it belongs.

With `--check` no test runs: each patch must apply to the working tree, and its test must exist.
"""

from __future__ import annotations

import ast
import enum
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

import attrs

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "tests" / "mutations"

TEST_TIMEOUT_S: Final = 600
"""How long a test may take. The slowest take 20 s; higher only delays the report of one that hangs. Lower: a busy
machine makes an honest test count as one that hangs."""

HANGS_AFTER_S: Final = 120
"""How long a test must run with a bug of which its patch says that it hangs. Lower: a slow test counts as one."""

HANGS: Final = "# hangs: "
"""Begin of the line that says why the test of a bug does not end."""

COPIED: Final = ("cli", "eventproc", "store", "tests", "tools", "workflows", "pyproject.toml")


@attrs.frozen
class Mutation:
    """A planted bug. test: what must fail with it. hangs: why the test never ends instead; "". path: its patch file."""

    name: str
    bug: str
    test: str
    path: Path
    hangs: str = ""


class Ending(enum.Enum):
    """How a run of tests ended, as the reports say it."""

    PASSED = "passes"
    FAILED = "fails"
    TIMED_OUT = "timed out"


def mutations() -> list[Mutation]:
    """Return all planted bugs, by name. Raises ValueError for a file without the first two lines."""
    return [_read(path) for path in sorted(FOLDER.glob("*.patch"))]


def _read(path: Path) -> Mutation:
    bug, test, hangs = [*path.read_text().splitlines(), "", "", ""][:3]
    if not bug.startswith("# ") or not test.startswith("# test: "):
        raise ValueError(f"{path}: it must begin with `# what the bug is` and `# test: path::name`")
    why = hangs.removeprefix(HANGS) if hangs.startswith(HANGS) else ""
    return Mutation(path.stem, bug.removeprefix("# "), test.removeprefix("# test: "), path, why)


def _git_apply(mutation: Mutation) -> list[str]:
    """Return the command. It requires equal lines around a change only where the change removes no line."""
    hunks = re.split(r"^@@ .*$", mutation.path.read_text(), flags=re.MULTILINE)[1:]
    removes = [re.search(r"^-(?!--)", hunk, re.MULTILINE) is not None for hunk in hunks]
    return ["git", "apply", "-C0" if all(removes) else "-C1"]


def apply(mutation: Mutation, tree: Path) -> str | None:
    """Plant the bug in a copy of the repository; return why the patch does not apply, None if it does."""
    done = subprocess.run(
        [*_git_apply(mutation), "--unsafe-paths", f"--directory={tree}", str(mutation.path)],
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stderr.strip() if done.returncode else None


def misfit(mutation: Mutation) -> str | None:
    """Return why the bug cannot be planted in the working tree, or that its test does not exist; None if all fits."""
    path, _, name = mutation.test.partition("::")
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    file = ROOT / path
    if not file.is_file() or name not in {
        node.name for node in ast.parse(file.read_text()).body if isinstance(node, functions)
    }:
        return f"its test {mutation.test} does not exist"
    done = subprocess.run(
        [*_git_apply(mutation), "--check", str(mutation.path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return f"the patch no longer applies: {done.stderr.strip()}" if done.returncode else None


def copy_tree(to: Path) -> Path:
    """Copy what the tests need; return the copy."""
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, to / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, to / name)
    return to


def run(tests: list[str], tree: Path, *, timeout_s: float = TEST_TIMEOUT_S) -> Ending:
    """Run tests of a copy of the repository. Raises RuntimeError if pytest could not run them."""
    # The copy comes before the installed package: pytest puts its own root first.
    environment = os.environ | {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    # Without the tests' own limits: a test that hangs must not count as one that failed.
    options = ["-q", "-x", "-p", "no:cacheprovider", "--timeout", "0"]
    command = [sys.executable, "-m", "pytest", *options, *tests]
    with (
        tempfile.TemporaryFile() as output,
        # A session of its own: its end also ends the processes that a test started.
        subprocess.Popen(
            command, cwd=tree, env=environment, stdout=output, stderr=output, start_new_session=True
        ) as pytest,
    ):
        try:
            code = pytest.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return Ending.TIMED_OUT
        finally:
            with suppress(ProcessLookupError):
                os.killpg(pytest.pid, signal.SIGKILL)
        output.seek(0)
        if code not in (0, 1):
            raise RuntimeError(f"{tests}: {output.read().decode()}")
    return Ending.FAILED if code else Ending.PASSED


def _endings_without_bug(chosen: list[Mutation]) -> dict[str, Ending]:
    """Return how the tests end in a copy without any bug; all of them run together, which is quicker."""
    tests = list(dict.fromkeys(mutation.test for mutation in chosen))
    with tempfile.TemporaryDirectory() as folder:
        tree = copy_tree(Path(folder))
        if run(tests, tree, timeout_s=TEST_TIMEOUT_S * len(tests)) is Ending.PASSED:
            return dict.fromkeys(tests, Ending.PASSED)
        return {test: run([test], tree) for test in tests}


def problem(mutation: Mutation, ending: Ending) -> str | None:
    """Return why a planted bug is not found if its test ends like this, None if it is found."""
    if ending is Ending.PASSED:
        return f"{mutation.test} passes with the bug"
    if mutation.hangs and ending is Ending.FAILED:
        return f"{mutation.test} ends: take the line `{HANGS}...` from the patch"
    if ending is Ending.TIMED_OUT and not mutation.hangs:
        return f"{mutation.test} timed out after {TEST_TIMEOUT_S} s"
    return None


def _plant(mutation: Mutation) -> str | None:
    """Run the test of a bug with the bug; return why it is not found, None if it is."""
    with tempfile.TemporaryDirectory() as folder:
        tree = copy_tree(Path(folder))
        if (why := apply(mutation, tree)) is not None:
            return f"the patch no longer applies: {why}"
        timeout_s = HANGS_AFTER_S if mutation.hangs else TEST_TIMEOUT_S
        return problem(mutation, run([mutation.test], tree, timeout_s=timeout_s))


def check(chosen: list[Mutation]) -> int:
    """Write to stderr which bugs cannot be planted, or whose tests do not exist; return 1 if there is one."""
    misfits = {mutation: why for mutation in chosen if (why := misfit(mutation)) is not None}
    for mutation, why in misfits.items():
        sys.stderr.write(f"{mutation.path.relative_to(ROOT)}: {why}\n")
    return int(bool(misfits))


def main(arguments: list[str]) -> int:
    """Plant the bugs of the given names, or all; return 1 if one was not found."""
    names = [argument for argument in arguments if argument != "--check"]
    chosen = [mutation for mutation in mutations() if not names or mutation.name in names]
    if "--check" in arguments:
        return check(chosen)
    without_bug = _endings_without_bug(chosen)
    found = 0
    for mutation in chosen:
        before = without_bug[mutation.test]
        passes = before is Ending.PASSED
        why = _plant(mutation) if passes else f"{mutation.test} {before.value} without the bug"
        found += why is None
        sys.stdout.write(f"{mutation.name}: {why or 'found'} ({mutation.bug})\n")
        sys.stdout.flush()
    sys.stdout.write(f"{found} of {len(chosen)} planted bugs were found\n")
    return int(found < len(chosen))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
