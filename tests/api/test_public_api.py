"""The front door: what is public is listed, documented, importable, and speaks of public types only."""

from __future__ import annotations

import ast
import inspect
import re
import sys
import typing
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import attrs
import pytest

import eventproc
from eventproc import blocking, describe, errors, ingestion, windows

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "public-api.md").read_text(encoding="utf-8")

FOR_TESTS_AND_EXTENSIONS = {"Clock", "Cursor", "Faults", "Database", "Tx"}
"""Named in signatures, and not part of what is kept stable; the page says so."""

FOR_THE_ENGINE = {
    "App.processors",
    "App.schedules",
    "Context.end",
    "Request.deadline",
    "ReplicatedType.decode",
    "Request.ended",
    "StreamTarget.codec",
}
"""Members of public classes that only the library uses."""


PUBLIC: Final = {
    prefix + name: getattr(module, name)
    for prefix, module in {
        "": eventproc,
        "describe.": describe,
        "ingestion.": ingestion,
        "blocking.": blocking,
        "windows.": windows,
    }.items()
    for name in module.__all__
    if name != "__version__"
}


def public_classes() -> list[type]:
    return [found for found in PUBLIC.values() if inspect.isclass(found)]


def test_the_top_level_stays_small_enough_to_be_read() -> None:
    assert len(eventproc._WHERE) <= 110


def test_type_checkers_know_the_names_of_the_top_level() -> None:
    source = ast.parse(inspect.getsource(eventproc))
    imports = [node for node in ast.walk(source) if isinstance(node, ast.ImportFrom)]
    known = {each.asname: node.module for node in imports for each in node.names if each.asname}
    assert known == {"__version__": "eventproc._version", **eventproc._WHERE}


def test_the_page_of_the_public_api_names_exactly_what_is_public() -> None:
    named = {
        name for row in re.findall(r"^\| (`.*?`) \|", PAGE, re.M) for name in re.findall(r"`([\w.]+)`", row)
    }
    assert named == {name for name in PUBLIC if not name.startswith("blocking.")}


def test_a_blocking_twin_has_the_name_of_its_handle() -> None:
    twins = {
        name.removeprefix("blocking.Blocking") for name in PUBLIC if name.startswith("blocking.Blocking")
    }
    assert twins - {"Reader", "Writer"} <= PUBLIC.keys()


@pytest.mark.parametrize("kind", public_classes())
def test_a_public_class_and_its_public_methods_say_what_they_do(kind: type) -> None:
    assert inspect.getdoc(kind)
    silent = [
        name for name, member in vars(kind).items() if _is_public_method(name, member) and not member.__doc__
    ]
    assert silent == []


@pytest.mark.parametrize("kind", public_classes())
def test_the_signatures_of_a_public_class_name_public_types_only(kind: type) -> None:
    public = {*PUBLIC.values(), *(getattr(errors, name) for name in errors.__all__)}
    hidden = {
        f"{where}: {found.__name__}"
        for where, hint in _hints(kind)
        for found in _classes_in(hint)
        if where.partition("(")[0] not in FOR_THE_ENGINE
        and found.__module__.startswith("eventproc")
        and found not in public
        and found.__name__ not in FOR_TESTS_AND_EXTENSIONS
    }
    assert hidden == set()


def _is_public_method(name: str, member: object) -> bool:
    return not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, property))


def _hints(kind: type) -> Iterator[tuple[str, object]]:
    """Yield where a type is named, and the type: of parameters, results, properties, and fields of values."""
    for name, member in inspect.getmembers(kind):
        function = member.fget if isinstance(member, property) else member
        if not name.startswith("_") and inspect.isfunction(function):
            for parameter, hint in typing.get_type_hints(
                function, localns=_names_for_hints(function.__module__)
            ).items():
                yield f"{kind.__name__}.{name}({parameter})", hint
    if attrs.has(kind) or hasattr(kind, "_fields"):
        for name, hint in typing.get_type_hints(kind).items():
            if not name.startswith("_"):
                yield f"{kind.__name__}.{name}", hint


@cache
def _names_for_hints(module: str) -> dict[str, object]:
    """Return what a module imports for type checkers only."""
    found: dict[str, object] = {}
    for node in ast.parse(inspect.getsource(sys.modules[module])).body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            exec(compile(ast.Module(node.body, []), module, "exec"), found)
    return found


def _classes_in(hint: object) -> Iterator[type]:
    found = typing.get_origin(hint) or hint
    if isinstance(found, type):
        yield found
    arguments = typing.get_args(hint)
    for argument in arguments:
        for each in argument if isinstance(argument, list) else [argument]:
            yield from _classes_in(each)
