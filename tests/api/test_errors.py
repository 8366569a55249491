"""Every error that a user can meet is in `eventproc.errors`, prints as one line, pickles, and is documented."""

from __future__ import annotations

import ast
import importlib
import pickle
import subprocess
import sys
from collections.abc import Iterator
from inspect import get_annotations
from pathlib import Path

import attrs
import pytest

from eventproc import errors
from eventproc.errors import EventprocError
from eventproc.ingestion import SpecProblem
from tools.docs.errors import concrete_errors, when_and_what

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = {"cli": "eventproc.cli", "store": "eventproc.store", "workflows": "eventproc.workflows"}
SAMPLES: dict[str, object] = {
    "str": "text",
    "int": 7,
    "int | None": None,
    "str | None": None,
    "tuple[int, ...]": (1, 2),
    "tuple[str, ...]": ("one", "two"),
    "tuple[SpecProblem, ...]": (SpecProblem("io.period", "required"), SpecProblem("io.streams", "empty")),
}


def modules_that_define_errors() -> Iterator[str]:
    """Yield the shipped modules with a class whose base is, by its name, one of ours."""
    for folder in ("eventproc", *SHIPPED):
        for path in sorted((ROOT / folder).rglob("*.py")):
            below = path.relative_to(ROOT).with_suffix("").parts
            if folder == "eventproc" and below[1:2] and below[1] in SHIPPED:
                continue  # the links
            if any(_is_error(node) for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))):
                yield ".".join((SHIPPED.get(below[0], below[0]), *below[1:])).removesuffix(".__init__")


def _is_error(node: ast.AST) -> bool:
    return isinstance(node, ast.ClassDef) and any(
        (isinstance(base, ast.Name) and base.id in errors.__all__)
        or (isinstance(base, ast.Attribute) and base.attr in errors.__all__)
        for base in node.bases
    )


def all_subclasses(kind: type[EventprocError]) -> Iterator[type[EventprocError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from all_subclasses(child)


def sample(kind: type[EventprocError]) -> EventprocError:
    names = {name: text for each in reversed(kind.__mro__) for name, text in get_annotations(each).items()}
    return kind(**{field.name: SAMPLES[names[field.name]] for field in attrs.fields(kind)})  # type: ignore[arg-type]


def test_every_shipped_error_is_importable_from_the_module_of_errors() -> None:
    for module in modules_that_define_errors():
        importlib.import_module(module)
    shipped = {kind for kind in all_subclasses(EventprocError) if kind.__module__.startswith("eventproc.")}
    assert {kind.__name__ for kind in shipped if not kind.__name__.startswith("_")} == set(errors.__all__)
    assert all(getattr(errors, kind.__name__) is kind for kind in shipped)


@pytest.mark.parametrize("kind", list(concrete_errors()))
def test_an_error_pickles_and_prints_as_one_line(kind: type[EventprocError]) -> None:
    made = sample(kind)
    copy = pickle.loads(pickle.dumps(made))
    assert type(copy) is kind
    assert attrs.asdict(copy) == attrs.asdict(made)  # type: ignore[arg-type]
    assert str(copy) == str(made) != ""
    assert "\n" not in str(made)


@pytest.mark.parametrize("kind", list(concrete_errors()))
def test_the_docstring_of_an_error_says_when_and_what_to_do(kind: type[EventprocError]) -> None:
    assert all(text.endswith(".") for text in when_and_what(kind))


@pytest.mark.subprocess
def test_importing_an_error_loads_no_database() -> None:
    program = (
        "import sys; from eventproc.errors import StreamSealed\n"
        "print({'aiosqlite', 'sqlite3', 'trio', 'asyncio'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
