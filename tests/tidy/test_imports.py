"""Who may import what, where the layers' contract (pyproject.toml) and ruff's list of banned names are too coarse."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tidy.source import ROOT, SHIPPED, files, name_of, parsed

CONFINED = {
    "aiosqlite": ("store/database/connections.py",),
    "asyncio": ("store/database/", "eventproc/base/tasks.py", "eventproc/testing/virtual_loop.py"),
    "pyspark": ("eventproc/spark/",),
    "rich": ("cli/",),
    # The file guard must know of every connection of the process; one that completes names has no other.
    "sqlite3": ("store/database/", "store/name_lookup.py"),
}
"""Each of these modules, and the only places that import it."""

PRIVATE = ("eventproc.store", "eventproc.workflows")
"""What only the layers above may import; a test that does so breaks when the structure changes."""

PURE = "eventproc.store.model"
"""Decisions without I/O, which are tested from inside."""


@pytest.mark.parametrize("module", CONFINED)
def test_what_is_confined_to_a_place_is_imported_there_only(module: str) -> None:
    assert [
        f"{name_of(path)}:{line}"
        for path in files(*SHIPPED, suffix=".py")
        for line, imported in _imports(path)
        if imported.split(".")[0] == module and not name_of(path).startswith(CONFINED[module])
    ] == []


def test_one_module_reads_the_files_that_only_linux_has() -> None:
    assert {
        name_of(path)
        for path in files(*SHIPPED, suffix=".py")
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Constant) and str(node.value).startswith(("/proc/", "/dev/shm"))
    } == {"eventproc/base/kernel.py"}


def test_nothing_below_the_command_line_imports_the_package_s_front_door() -> None:
    """`eventproc/__init__.py` imports every layer: a layer that imported it back would make a circle."""
    assert [
        f"{name_of(path)}:{line}"
        for path in files("eventproc", "store", "workflows", suffix=".py")
        for line, imported in _imports(path)
        if imported == "eventproc"
    ] == []


def test_only_the_listed_tests_import_private_rooms() -> None:
    """A new test goes through the public API, the command line or REST: the list may only shrink."""
    listed = (ROOT / "tests/tidy/private_imports.txt").read_text(encoding="utf-8").splitlines()
    importing = [
        name_of(path)
        for path in files("tests", suffix=".py")
        if any(_within(module, *PRIVATE) and not _within(module, PURE) for _, module in _imports(path))
    ]
    assert listed == importing


def _within(module: str, *packages: str) -> bool:
    """Return whether `module` is one of `packages` or lies below one."""
    return f"{module}.".startswith(tuple(f"{package}." for package in packages))


def _imports(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the line and the module of each import, those within functions too."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.lineno, node.module
