"""docs/acceptance.md: which tests show which case of Pravega, Kafka or Druid, from the `acceptance` marks of the tests.

The marks are read from the source, so nothing has to be imported or collected:

    @pytest.mark.acceptance("A6", differs="cuts of ten segments: a hundred add time and no path")
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from tools.docs.acceptance_cases import AREAS, REQUIRED

HEAD = """\
# Acceptance

The cases of Pravega's own tests that hold here, and the tests that show each; and after them the cases by which users
of Kafka judge consumer groups, users of Druid judge ingestion supervisors, and users of Spark judge connectors.
`make docs` writes this page from the `acceptance` marks of the tests; edit those. A test without a remark asserts the
case as in the original.
"""


@dataclass(frozen=True, order=True)
class Mark:
    """One `acceptance` mark: the case, the test that carries it (path::name), what differs from the reference."""

    case: str
    test: str
    differs: str


def render(root: Path) -> str:
    """Return the whole document."""
    marks = sorted(collect(root / "tests"), key=lambda mark: (mark.case[0], int(mark.case[1:]), mark.test))
    return HEAD + "".join(_sections(marks))


def problems(root: Path) -> list[str]:
    """Return one line per required case that no test shows, and per mark that names no case we know."""
    found = {mark.case for mark in collect(root / "tests")}
    return [f"acceptance case {case} has no test" for case in REQUIRED if case not in found] + [
        f"acceptance case {case} is not described in tools/docs/acceptance_cases.py"
        for case in sorted(found - set(REQUIRED))
    ]


def collect(tests: Path) -> list[Mark]:
    """Return every mark below `tests`."""
    return [mark for path in sorted(tests.rglob("test_*.py")) for mark in _marks_of(path, tests.parent)]


def _marks_of(path: Path, root: Path) -> Iterator[Mark]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        for decorator in node.decorator_list:
            if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.acceptance":
                words = {keyword.arg: ast.literal_eval(keyword.value) for keyword in decorator.keywords}
                test = f"{path.relative_to(root)}::{node.name}"
                for case in decorator.args:
                    yield Mark(ast.literal_eval(case), test, words.get("differs", ""))


def _sections(marks: list[Mark]) -> Iterator[str]:
    for area, of_area in groupby(marks, key=lambda mark: mark.case[0]):
        yield f"\n## {area}. {AREAS.get(area, area)}\n"
        for case, of_case in groupby(of_area, key=lambda mark: mark.case):
            names, asserts = REQUIRED.get(case, ("", ""))
            yield f"\n**{case}.** {asserts}" + (f" (`{names}`)" if names else "") + "\n\n"
            yield from _tests(list(of_case))


def _tests(marks: list[Mark]) -> Iterator[str]:
    """Yield a line per test, or one line for tests that differ from the original in the same way."""
    for differs in dict.fromkeys(mark.differs for mark in marks):
        links = ", ".join(_link(mark) for mark in marks if mark.differs == differs)
        yield f"- {links}\n" if not differs else f"- {links}. Differs: {differs}\n"


def _link(mark: Mark) -> str:
    file, function = mark.test.split("::")
    return f"[{function.removeprefix('test_').replace('_', ' ')}](../{file})"
