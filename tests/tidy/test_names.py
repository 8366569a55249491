"""Class names: one class per name in the repository, so that a name can be looked up."""

from __future__ import annotations

import ast
from collections import defaultdict

from tests.tidy.source import CODE, files, name_of, parsed


def test_a_class_name_is_unique_outside_test_modules() -> None:
    assert _shared_names() == {}


def _shared_names() -> dict[str, list[str]]:
    """Return each name of two or more classes, and where they are.

    Test modules may have local classes of the same name, if no class outside test modules has it.
    """
    places: defaultdict[str, list[str]] = defaultdict(list)
    local: defaultdict[str, list[str]] = defaultdict(list)
    for path in files(*CODE, suffix=".py"):
        own = local if path.name.startswith("test_") else places
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.ClassDef):
                own[node.name].append(f"{name_of(path)}:{node.lineno}")
    return {name: found + local[name] for name, found in places.items() if len(found) > 1 or local[name]}
