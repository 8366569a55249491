"""The shape of the source: sizes, docstrings, names, and no leftovers."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.tidy.source import CODE, ROOT, SHIPPED, files, name_of, parsed

FILE_LINES_MAX = 700
"""Above this a file probably holds a second idea. Most files have 100 to 500 lines."""

FUNCTION_LINES_MAX = 60
"""What fits on a screen, without the docstring: public ones have a line for each argument and error."""

TOP_LEVEL = {
    *(".ci", ".gitignore", "LICENSE", "Makefile", "README.md", "pyproject.toml", "uv.lock"),
    *("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "mkdocs.yml"),
    *("benchmarks", "cli", "data", "docs", "eventproc", "store", "tests", "tools", "workflows"),
}

LEFTOVERS = re.compile(r"\b(?:TODO|FIXME|XXX|HACK)\b|NotImplementedError|breakpoint\(\)|pdb\.set_trace")
DISABLED = re.compile(r"pytest\.mark\.(?:skip|xfail)|pytest\.(?:skip|importorskip)\(")
BARE = re.compile(r"#\s*(?:type:\s*ignore|noqa)\s*$")
NUMBERED = re.compile(r"\?\d")
VAGUE = re.compile(r"(?:^|_)(?:manager|helper|helpers|util|utils|handle|data)$")


def test_no_file_is_longer_than_one_idea_needs() -> None:
    long = {name_of(path): _line_count(path) for path in files(*CODE, suffix=".py")}
    assert {
        name: lines
        for name, lines in long.items()
        if lines > FILE_LINES_MAX and not name.endswith("/_generated.py")
    } == {}


def test_no_function_is_longer_than_a_screen() -> None:
    long = [
        f"{name_of(path)}:{node.lineno} {node.name}"
        for path in files(*CODE, suffix=".py")
        for node in _functions(path)
        if _code_line_count(node) > FUNCTION_LINES_MAX
    ]
    assert long == []


def test_every_module_says_what_it_is_for() -> None:
    silent = [
        name_of(path)
        for path in files(*CODE, suffix=".py")
        if parsed(path).body and not ast.get_docstring(parsed(path))
    ]
    assert silent == []


def test_nothing_is_left_for_later() -> None:
    assert list(_lines_matching(LEFTOVERS, *CODE)) == []


def test_no_statement_numbers_its_parameters() -> None:
    # SQLite calls `?1` a named one, and Python 3.12.0 and 3.12.1 warn of a named one whose value comes by its place.
    assert list(_lines_matching(NUMBERED, *SHIPPED)) == []


def test_no_test_is_switched_off() -> None:
    assert list(_lines_matching(DISABLED, "tests")) == []


def test_every_exemption_names_its_rule() -> None:
    assert list(_lines_matching(BARE, *CODE)) == []


def test_no_module_or_class_has_a_name_that_says_nothing() -> None:
    names = [(name_of(path), path.stem) for path in files(*SHIPPED, suffix=".py")]
    for path in files(*SHIPPED, suffix=".py"):
        classes = (node.name for node in ast.walk(parsed(path)) if isinstance(node, ast.ClassDef))
        names += [(f"{name_of(path)} {name}", _snake(name)) for name in classes]
    assert [place for place, name in names if VAGUE.search(name)] == []


def test_the_top_level_holds_what_is_known() -> None:
    assert {name_of(path).split("/")[0] for path in files()} - TOP_LEVEL == set()


def test_the_layers_are_reached_through_links() -> None:
    for layer in ("cli", "store", "workflows"):
        link = ROOT / "eventproc" / layer
        assert link.is_symlink(), f"{link} is no link"
        assert link.readlink() == Path("..") / layer


def test_every_document_has_one_title() -> None:
    titles = {name_of(path): _titles(path.read_text(encoding="utf-8")) for path in files(suffix=".md")}
    assert {name: found for name, found in titles.items() if len(found) != 1} == {}


def test_no_two_documents_have_the_same_title() -> None:
    titles = [
        title for path in files("docs", suffix=".md") for title in _titles(path.read_text(encoding="utf-8"))
    ]
    assert sorted(set(titles)) == sorted(titles)


def _functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(parsed(path)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node


def _lines_matching(pattern: re.Pattern[str], *folders: str) -> Iterator[str]:
    here = Path(__file__)  # names what it looks for
    for path in files(*folders, suffix=".py"):
        if path == here:
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            if pattern.search(line):
                yield f"{name_of(path)}:{number}: {line.strip()}"


def _code_line_count(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return the lines of the function without its docstring."""
    first = function.body[0]
    has_docstring = ast.get_docstring(function, clean=False) is not None
    docstring = (first.end_lineno or first.lineno) - first.lineno + 1 if has_docstring else 0
    return (function.end_lineno or function.lineno) - function.lineno + 1 - docstring


def _line_count(path: Path) -> int:
    return path.read_text(encoding="utf-8").count("\n")


def _titles(markdown: str) -> list[str]:
    without_code = re.sub(r"^```.*?^```", "", markdown, flags=re.DOTALL | re.MULTILINE)
    return re.findall(r"^# (.+)$", without_code, flags=re.MULTILINE)


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
