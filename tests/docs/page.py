"""Runs a page of the documentation as a reader does: in one shell, from top to bottom, in an empty folder.

| block | what the reader does with it |
| --- | --- |
| `python` with a title | saves it as a file of that name, then runs it; a file `test_*.py` is run by pytest |
| `python` without a title | a fragment of one program, in which `ep` is the open directory `data/` |
| `sh` | types all of it |
| `console` | types the lines that begin with "$ " |

A command that ends with the comment `# until Ctrl-C` is interrupted when it serves. Blocks of other languages are not
run, and neither are those whose title is one of `ELSEWHERE`.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import attrs
import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
README: Final = ROOT / "README.md"
GUIDE: Final = sorted((ROOT / "docs" / "guide").glob("*.md"))
COMPARISONS: Final = sorted((ROOT / "docs" / "compare").glob("*.md"))

CHECKOUT: Final = "in a checkout"
SPARK: Final = "in a checkout, with Spark"
INSTALL: Final = "install"

ELSEWHERE: Final = (CHECKOUT, SPARK, INSTALL)
"""Titles of blocks that do not run in an empty folder. Other tests run them."""

PROGRAMS: Final = Path(sys.executable).parent
"""The programs of this environment."""

THE_README_PRINTS: Final = (
    *("customer-42 b'2 apples'", "customer-7 b'a pear'", "customer-42 b'3 plums'"),
    *("bill to customer-42", "bill to customer-7", "mail to customer-42", "mail to customer-7"),
    "['start', 'apples', 'basket']",
)

TIMEOUT_S: Final = 900
"""Of one page or command; the slowest take 20 s on an idle machine, with Spark one to three minutes."""

NOT_OF_A_READER: Final = frozenset(
    {"EVENTPROC_DIR", "ARGS", "MAKEFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "MFLAGS"}
)
"""Variables that a reader's shell does not have: with those of `make test ARGS=...`, `make demo` took its arguments."""

_BLOCK: Final = re.compile(r'^```(\w+)(?: title="([^"\n]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
_UNTIL_INTERRUPT: Final = re.compile(r"^(eventproc .*?)\s+# until Ctrl-C.*$", re.MULTILINE)
_HELPERS: Final = Path(__file__).parent / "run_block.py"


@attrs.frozen
class CodeBlock:
    """A block of code. title: the text of its caption, or the name of its file; "" if it has none."""

    language: str
    title: str
    code: str
    line: int

    @property
    def commands(self) -> str:
        """What the reader types at the shell; empty if nothing."""
        if self.language == "console":
            lines = self.code.splitlines()
            return "".join(f"{line[2:]}\n" for line in lines if line.startswith("$ "))
        return self.code if self.language == "sh" else ""


def blocks(page: Path) -> list[CodeBlock]:
    """Return the blocks of code of a page, in order."""
    text = page.read_text(encoding="utf-8")
    return [
        CodeBlock(found[1], found[2] or "", found[3], line=text.count("\n", 0, found.start()) + 1)
        for found in _BLOCK.finditer(text)
    ]


def script(page: Path) -> str:
    """Return the page as one program for bash."""
    parts: list[str] = []
    fragments: list[str] = []

    def run_fragments() -> None:
        if fragments:
            parts.append(_saved("fragments.py", "\n".join(fragments)))
            parts.append(f"python -W error {_HELPERS} fragments fragments.py\n")
            fragments.clear()

    for block in blocks(page):
        if block.title in ELSEWHERE or not (block.language == "python" or block.commands):
            continue
        if block.language == "python" and not block.title:
            fragments.append(block.code)
            continue
        run_fragments()
        parts.append(f"echo '--- {page.name}, line {block.line}'\n")
        parts.append(_until_interrupt(block.commands) if block.commands else _program(block))
    run_fragments()
    return "".join(parts)


def turns(config: pytest.Config) -> int:
    """Return how often a page runs in its folder: twice in a hunt, which finds what the first run leaves in the way."""
    factor = config.getoption("--hunt", default=1.0)
    return 2 if factor is not None and factor > 1 else 1


def run_page(page: Path, folder: Path, programs: Path = PROGRAMS) -> str:
    """Run the page in a folder and return what it printed. Raises AssertionError if a command fails."""
    return run_bash(script(page), folder, programs)


def check_readme(printed: str) -> None:
    """Check what the tours of the README printed."""
    assert set(THE_README_PRINTS) <= set(printed.splitlines())
    assert printed.count('"payload"') == 8
    assert '"{\\"customer\\":\\"ana\\",\\"item\\":\\"plums\\"}"' in printed


def run_bash(commands: str, folder: Path, programs: Path = PROGRAMS) -> str:
    """Run commands with `bash -e` in a folder, with the programs of an environment first: by default of this one."""
    inherited = {name: value for name, value in os.environ.items() if name not in NOT_OF_A_READER}
    environment = {**inherited, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    with subprocess.Popen(
        ["bash", "-eu", "-o", "pipefail", "-c", commands],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=folder,
        env=environment,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            printed, errors = process.communicate(timeout=TIMEOUT_S)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)  # with the services that it started
            raise
    assert process.returncode == 0, f"{printed}\n{errors}"
    return printed


def _saved(name: str, code: str) -> str:
    return f"cat > {name} <<'END OF {name}'\n{code}END OF {name}\n"


def _program(block: CodeBlock) -> str:
    is_test = block.title.startswith("test_")
    run = "python -m pytest -q -p no:cacheprovider" if is_test else "python -W error"
    return f"{_saved(block.title, block.code)}{run} {block.title}\n"


def _until_interrupt(commands: str) -> str:
    return _UNTIL_INTERRUPT.sub(rf"python {_HELPERS} until-interrupt \1", commands)
