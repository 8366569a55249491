"""The README's first program: short, quiet and fast.

Its time is CPU time, in relation to that of a program which only imports the same libraries: so a slow machine, or one
whose other core is busy, does not fail it.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.docs.page import README, blocks

pytestmark = pytest.mark.subprocess

CPU_RATIO_MAX: Final = 5.0
"""CPU time from start to exit, in times of FLOOR's: on an idle machine of 2026 it takes 4.3, which is 0.28 s."""

ROUNDS_MIN: Final = 3
ROUNDS_MAX: Final = 10
"""Pairs of runs to compare the shortest of: what a busy neighbour core adds to one, the next may be spared."""

FLOOR: Final = (
    "import aiosqlite, anyio, asyncio, attrs, cattrs, inspect, json, logging, sqlite3, tenacity, uuid"
)
"""What a program with these libraries cannot avoid."""

MODULES_MAX: Final = 390
"""Modules that it imports, beside Python's own: their number depends on its version. Each costs some 0.5 ms."""

NEVER: Final = {
    "click",
    "eventproc.cluster.compaction",
    "eventproc.store.backup",
    "eventproc.store.database.memory_database",
    "eventproc.streams.offload",
    "hypothesis",
    "msgspec",
    "numpy",
    "pandas",
    "pyarrow",
    "pydantic",
    "pyspark",
    "rich",
    "trio",
}
"""What it must not import, because it is heavy, and the program uses none of it."""

HELLO: Final = blocks(README)[[block.title for block in blocks(README)].index("hello.py")].code
ASYNC: Final = """
import asyncio
import eventproc

async def main():
    async with eventproc.open("hello/") as ep:
        await ep.create_scope("shop")
        orders = await ep.create_stream("shop/orders", payload=str)
        async with orders.writer() as writer, orders.reader() as reader:
            await writer.write("2 apples", key="ana")
            print((await anext(aiter(reader))).payload)

asyncio.run(main())
"""
REPORT: Final = """
import resource, sys
used = resource.getrusage(resource.RUSAGE_SELF)
print(used.ru_utime + used.ru_stime, *sys.modules, file=sys.stderr)
"""


def run(code: str, folder: Path) -> tuple[str, str]:
    """Run the program in the folder; return its output and what it wrote to stderr."""
    environment = os.environ | {"PYTHONPATH": str(README.parent)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout, done.stderr


def test_the_readme_begins_with_a_program_of_less_than_ten_lines() -> None:
    assert next(block.title for block in blocks(README) if block.language == "python") == "hello.py"
    assert len([line for line in HELLO.splitlines() if line.strip()]) < 10


@pytest.mark.parametrize("code", [HELLO, ASYNC], ids=["blocking", "async"])
def test_it_prints_one_line_and_nothing_else_however_often_it_runs(tmp_path: Path, code: str) -> None:
    for _ in range(2):
        assert run(code, tmp_path) == ("2 apples\n", "")


@pytest.mark.parametrize("code", [HELLO, ASYNC], ids=["blocking", "async"])
def test_it_imports_little_and_ends_within_its_time(tmp_path: Path, code: str) -> None:
    run(code, tmp_path)  # compiles what was not compiled yet
    floor_s = program_s = math.inf
    for number in range(1, ROUNDS_MAX + 1):
        floor_s = min(floor_s, float(run(FLOOR + REPORT, tmp_path)[1].split()[0]))
        used_s, *modules = run(code + REPORT, tmp_path)[1].split()
        program_s = min(program_s, float(used_s))
        assert NEVER.isdisjoint(modules)
        packages = (name.partition(".")[0] for name in modules)
        assert sum(name not in sys.stdlib_module_names for name in packages) < MODULES_MAX
        if number >= ROUNDS_MIN and program_s < CPU_RATIO_MAX * floor_s:
            break
    assert program_s < CPU_RATIO_MAX * floor_s
