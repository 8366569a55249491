"""Every program, fragment and command of the guide runs as written, page by page, in an empty folder.

A block of Python with a title is a file of that name: it is run if it has a `__main__`, and tested if it is a test.
Other blocks of Python are fragments of one program, in which `ep` is an open directory. Blocks of sh are run.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tidy.source import ROOT

pytestmark = pytest.mark.subprocess

PAGES = sorted((ROOT / "docs" / "guide").glob("*.md"))
BLOCK = re.compile(r'^```(python|sh)(?: title="([\w.]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
TIMEOUT_S = 120
"""Of one block; the slowest takes 2 s on an idle machine, that of Spark 20 s."""

RUN_FRAGMENTS = """\
import ast, asyncio, inspect, pathlib, eventproc

async def main():
    async with eventproc.open("data/") as ep:
        names = {"ep": ep, "eventproc": eventproc}
        source = pathlib.Path("fragments.py").read_text()
        code = compile(source, "fragments.py", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        result = eval(code, names)
        if inspect.iscoroutine(result):
            await result

asyncio.run(main())
"""


@pytest.mark.subprocess
@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=pytest.mark.spark if page.stem == "spark" else ()) for page in PAGES],
    ids=lambda page: page.stem,
)
def test_the_code_of_the_page_runs(page: Path, tmp_path: Path) -> None:
    fragments: list[str] = []
    for language, title, code in BLOCK.findall(page.read_text(encoding="utf-8")):
        if language == "python" and not title:
            fragments.append(code)
            continue
        run_fragments(fragments, tmp_path)
        fragments = []
        if language == "sh":
            run(["bash", "-eu", "-o", "pipefail", "-c", code], tmp_path)
        else:
            (tmp_path / title).write_text(code, encoding="utf-8")
            if title.startswith("test_"):
                run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", title], tmp_path)
            elif "__main__" in code:
                run([sys.executable, "-W", "error", title], tmp_path)
    run_fragments(fragments, tmp_path)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_page_uses_the_public_api_only(page: Path) -> None:
    imported = re.findall(
        r"^(?:from|import) (eventproc[\w.]*)", page.read_text(encoding="utf-8"), re.MULTILINE
    )
    public = {"eventproc", "eventproc.errors", "eventproc.testing", "eventproc.spark"}
    assert set(imported) <= public


def run_fragments(fragments: list[str], folder: Path) -> None:
    if fragments:
        (folder / "fragments.py").write_text("\n".join(fragments), encoding="utf-8")
        run([sys.executable, "-W", "error", "-c", RUN_FRAGMENTS], folder)


def run(command: list[str], folder: Path) -> None:
    scripts = str(Path(sys.executable).parent)
    environment = {**os.environ, "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}"}
    environment.pop("EVENTPROC_DIR", None)
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
