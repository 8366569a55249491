"""SQL statements lie in store/ only, so that a change of a table has one place to look for its readers."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.tidy.source import files, name_of, parsed

STATEMENT = re.compile(
    r"\s*(?:SELECT\s|INSERT (?:OR \w+ )?INTO\s|UPDATE \w+ SET\s|DELETE FROM\s|CREATE (?:TABLE|INDEX)\s|PRAGMA\s)"
)


def test_sql_statements_lie_in_the_store_only() -> None:
    assert [
        f"{name_of(path)}: {statement}"
        for path in files("cli", "eventproc", "workflows", suffix=".py")
        for statement in _statements(path)
    ] == []


def _statements(path: Path) -> Iterator[str]:
    """Yield each string of the module, other than a docstring, that begins like a statement."""
    tree = parsed(path)
    prose = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str) or id(node) in prose:
            continue
        if STATEMENT.match(node.value):
            yield node.value
