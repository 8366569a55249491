"""SQL statements lie in store/ only, so that a change of a table has one place to look for its readers.

They are what SQLite and PostgreSQL both understand, except in what opens, migrates and copies the file of SQLite.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.tidy.source import files, name_of, parsed

STATEMENT = re.compile(
    r"\s*(?:SELECT\s|INSERT (?:OR \w+ )?INTO\s|UPDATE \w+ SET\s|DELETE FROM\s|CREATE (?:TABLE|INDEX)\s|PRAGMA\s)"
)

ONLY_SQLITE = re.compile(
    r"INSERT OR|REPLACE INTO|ON CONFLICT DO UPDATE|INDEXED BY|LIMIT -1|PRAGMA|\bGLOB\b|\bIS (?:NOT )?\?|\bx'"
    r"|\? IS (?:NOT )?NULL"  # PostgreSQL does not know the type of such a parameter
    r"|\browid\b|\bAS BLOB\b"
    r"|(?<![\"\w])offset(?:, | = )"  # reserved by PostgreSQL: quote it
    r"|\b(?:pragma_\w+|json_\w+|total|total_changes|iif|ifnull|instr|typeof|printf|hex|quote)\("
)
OWN_ROOMS = ("store/database/", "store/postgres/", "store/backup/", "store/schema.py", "store/name_lookup.py")
LEFT = [
    "store/inspection/database_file.py",  # describes the file
    "store/segments/free_pages.py",  # counts the pages of the file
]
"""Modules with a statement for SQLite only. The list may only shrink."""


def test_sql_statements_lie_in_the_store_only() -> None:
    assert [
        f"{name_of(path)}: {statement}"
        for path in files("cli", "eventproc", "workflows", suffix=".py")
        for statement in _statements(path)
    ] == []


def test_statements_are_of_both_engines() -> None:
    shared = [path for path in files("store", suffix=".py") if not name_of(path).startswith(OWN_ROOMS)]
    assert [name_of(path) for path in shared if any(map(ONLY_SQLITE.search, _texts(path)))] == LEFT
    assert [name_of(path) for path in shared if ".lastrowid" in path.read_text()] == [], "use RETURNING"


def _statements(path: Path) -> Iterator[str]:
    """Yield each string of the module that begins like a statement."""
    return filter(STATEMENT.match, _texts(path))


def _texts(path: Path) -> Iterator[str]:
    """Yield each string of the module that is not a docstring."""
    tree = parsed(path)
    prose = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            yield node.value
