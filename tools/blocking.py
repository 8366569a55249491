"""Write what type checkers know of the blocking twin, from the async classes: `python -m tools.blocking`.

Every public member of an async class is one of its twin. A coroutine method becomes a plain one, an async iterator an
iterator, a handle the twin of the handle. Overloads stay; a default other than a literal is written as `...`.
"""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Final, TypeVar

import typing_extensions

from eventproc import DeadLetters
from eventproc.blocking.twins import name_of_twin
from eventproc.cluster import Cluster
from eventproc.groups import GroupReader
from eventproc.ingestion.supervisor import Supervisor
from eventproc.jobs.jobs import Job, Jobs
from eventproc.processors import Running
from eventproc.processors.key_states import KeyStates
from eventproc.runtime import Eventproc
from eventproc.runtime.requests import Requests
from eventproc.runtime.tasks import Tasks
from eventproc.runtime.users import Users
from eventproc.shares import ShareConsumer, ShareGroup
from eventproc.store.openable import Openable
from eventproc.store.replicated import StateSynchronizer
from eventproc.streams import EventWriter, JointTransaction, Stream, StreamReader, Transaction
from eventproc.streams.delayed_events import DelayedEvents
from eventproc.streams.schedules import Schedules
from eventproc.topics import Consumer, Group, Topic

ROOT = Path(__file__).resolve().parents[1]
PATH = ROOT / "eventproc" / "blocking" / "__init__.pyi"

KINDS: Final[tuple[type, ...]] = (
    Eventproc,
    Requests,
    Tasks,
    DelayedEvents,
    KeyStates,
    Schedules,
    Jobs,
    Job,
    Users,
    Cluster,
    Stream,
    Topic,
    EventWriter,
    StreamReader,
    Transaction,
    JointTransaction,
    Group,
    GroupReader,
    Consumer,
    ShareGroup,
    ShareConsumer,
    Supervisor,
    DeadLetters,
    Running,
    StateSynchronizer,
)

ATTRIBUTES: Final = {
    "Eventproc": {"requests": "BlockingRequests", "cluster": "BlockingCluster", "tasks": "BlockingTasks"},
    "Stream": {"name": "str", "stream_id": "int", "codec": "PayloadCodec[T]"},
    "Topic": {"partitioner": "Partitioner[T] | None"},
    "EventWriter": {"events_written": "int"},
    "Transaction": {"id": "str", "stream": "str"},
    "JointTransaction": {"id": "str"},
    "Group": {"name": "str"},
    "GroupReader": {"reader": "str"},
    "ShareGroup": {"name": "str"},
    "ShareConsumer": {"consumer": "str"},
    "Supervisor": {"id": "str"},
}
"""What `__init__` sets."""

LEFT_OUT: Final = {"db", "hold_progress"}
"""What only extensions use."""

OTHER: Final = {
    "AsyncGenerator": "Iterator",
    "AsyncIterator": "Iterator",
    "ProgressSource": "BlockingGroupReader[Any] | BlockingConsumer[Any] | BlockingShareConsumer[Any]",
    "PartitionsCallback": "Callable[[tuple[TopicPartition, ...]], object]",
} | {kind.__name__: name_of_twin(kind) for kind in KINDS}
"""What a name in a type of the async class is in that of the twin."""

HEAD = '''"""The blocking twin, as type checkers know it. Written by `python -m tools.blocking`."""

from collections.abc import Callable, Iterator
from os import PathLike
from typing import Any, Generic, overload

from typing_extensions import TypeVar

from eventproc.blocking.loop import Block, Loop, Opened
from eventproc.base.clock import Clock
from eventproc.store.database import Durability
from eventproc.store.faults import Faults
from eventproc.topics.partition import TopicPartition
'''

TWIN = """
__all__: tuple[str, ...]

class _Twin:
    _loop: Loop
    _twin: Any
    def __init__(self, loop: Loop, twin: Any) -> None: ...
"""

OPEN = """
def open_blocking(
    path: str | PathLike[str],
    *,
    schema: str | None = None,
    durability: Durability | str | None = None,
    create: bool = True,
    host: bool = True,
    chunks: str | PathLike[str] | None = None,
    clock: Clock | None = None,
    faults: Faults = ...,
) -> BlockingEventproc: ...
"""


def render() -> str:
    """Return the stub as text, formatted."""
    writer = _Writer()
    classes = [writer.render(kind) for kind in KINDS]
    variables = [
        f'{name} = TypeVar("{name}"{", default=bytes" if has_default else ""})'
        for name, has_default in sorted(writer.variables.items())
    ]
    text = "\n".join([HEAD, *sorted(writer.imports.values()), "", *variables, TWIN, *classes, OPEN])
    ruff = Path(sys.executable).with_name("ruff")
    for arguments in (["check", "-q", "--select", "F401,I", "--fix"], ["format", "-q"]):
        command = [str(ruff), *arguments, "--stdin-filename", str(PATH), "-"]
        text = subprocess.run(
            command, input=text, capture_output=True, text=True, check=True, cwd=ROOT
        ).stdout
    return text


class _Writer:
    """Renders twins, and collects what they need. variables: whether a type variable is `bytes` unless it is known."""

    def __init__(self) -> None:
        self.imports: dict[str, str] = {}
        self.variables: dict[str, bool] = {}

    def render(self, kind: type) -> str:
        """Return the class of a twin."""
        base, generic = _bases(kind)
        self.variables |= dict.fromkeys(generic, "S" not in generic)
        lines = [f"class {name_of_twin(kind)}({', '.join(base)}):"]
        lines += [f"    {name}: {text}" for name, text in ATTRIBUTES.get(kind.__name__, {}).items()]
        for text in ATTRIBUTES.get(kind.__name__, {}).values():
            self._need(ast.parse(text), _tree(kind)[1], kind.__module__)
        seen: set[str] = set()
        for owner in kind.__mro__:
            if owner is Openable or not owner.__module__.startswith("eventproc.") or owner in _parents(kind):
                continue
            body, module = _tree(owner)
            own = [each for each in body.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
            overloaded = {each.name for each in own if "overload" in map(ast.unparse, each.decorator_list)}
            for method in own:
                decorators = [ast.unparse(each) for each in method.decorator_list]
                if (
                    method.name in seen | LEFT_OUT
                    or (method.name.startswith("_") and method.name != "__aiter__")
                    or (method.name in overloaded and "overload" not in decorators)
                ):
                    continue
                lines.append(self._member(method, decorators, module, owner.__module__))
            seen |= {each.name for each in own}
        return "\n".join(lines) + "\n"

    def _member(
        self,
        method: ast.FunctionDef | ast.AsyncFunctionDef,
        decorators: list[str],
        module: ast.Module,
        where: str,
    ) -> str:
        arguments = _Renaming().visit(method.args)
        arguments.defaults = [_default(each) for each in arguments.defaults]
        arguments.kw_defaults = [None if each is None else _default(each) for each in arguments.kw_defaults]
        made = ast.FunctionDef(
            name="__iter__" if method.name == "__aiter__" else method.name,
            args=arguments,
            body=[ast.Expr(ast.Constant(...))],
            decorator_list=[],
            returns=_returned(method),
            lineno=0,
        )
        self._need(made, module, where)
        known = [each.replace("cached_property", "property") for each in decorators]
        return "\n".join(
            f"    {line}" for line in [*(f"@{each}" for each in known), *ast.unparse(made).split("\n")]
        )

    def _need(self, tree: ast.AST, module: ast.Module, where: str) -> None:
        """Collect imports and type variables for the names in a tree."""
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        for name in names:
            value = getattr(import_module(where), name, None)
            if isinstance(value, TypeVar | typing_extensions.TypeVar):
                self.variables.setdefault(name, name == "P")
        for name, statement in _imports_of(
            module, where, names - set(OTHER.values()) - self.variables.keys()
        ):
            known = self.imports.setdefault(name, statement)
            assert _found_by(known) is _found_by(statement), (
                f"two things are called {name}: {known}, {statement}"
            )


def _bases(kind: type) -> tuple[list[str], list[str]]:
    """Return the bases of a twin, and the type variables of the class."""
    parents = [name_of_twin(each) + "[T]" for each in kind.__bases__ if each in KINDS]
    generic = [each.__name__ for each in getattr(kind, "__parameters__", ())]
    opened = ["Opened"] if issubclass(kind, Openable) else []
    if issubclass(kind, (Transaction, JointTransaction)):
        opened = ["Block"]
    of = [f"Generic[{', '.join(generic)}]"] if generic else []
    return [*(parents or ["_Twin"]), *opened, *of], generic


def _parents(kind: type) -> set[type]:
    """Return the classes whose members the twin inherits from another twin."""
    return {each for base in kind.__bases__ if base in KINDS for each in base.__mro__}


def _tree(kind: type) -> tuple[ast.ClassDef, ast.Module]:
    body = ast.parse(inspect.getsource(kind)).body[0]
    assert isinstance(body, ast.ClassDef)
    return body, ast.parse(Path(inspect.getfile(kind)).read_text(encoding="utf-8"))


class _Renaming(ast.NodeTransformer):
    """Replaces the names of OTHER."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.parse(OTHER[node.id], mode="eval").body if node.id in OTHER else node

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        if isinstance(node.value, ast.Name):
            if node.value.id == "Opening":
                return self.visit(node.slice)  # type: ignore[no-any-return]
            if node.value.id == "DataHandler":
                return ast.parse("Callable[[list[Event[P]]], object]", mode="eval").body
            if node.value.id == "AsyncGenerator":
                assert isinstance(node.slice, ast.Tuple)
                node.slice = node.slice.elts[0]
        self.generic_visit(node)
        return node


def _returned(method: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.expr | None:
    assert method.returns is not None
    if method.name == "__aiter__" and ast.unparse(method.returns) == "Self":
        return ast.parse("Iterator[Delivery[P]]", mode="eval").body
    return _Renaming().visit(method.returns)  # type: ignore[no-any-return]


def _default(value: ast.expr) -> ast.expr:
    """Return a default as a stub states it."""
    is_literal = isinstance(value, ast.Constant) or (isinstance(value, ast.Tuple) and not value.elts)
    return value if is_literal else ast.Constant(...)


def _imports_of(module: ast.Module, name: str, used: set[str]) -> Iterator[tuple[str, str]]:
    """Yield each of the `used` names with its import: that of the module, or of the module that defines it."""
    for node in _statements(module):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if (known := alias.asname or alias.name) in used:
                    renamed = f" as {alias.asname}" if known != alias.name else ""
                    yield known, f"from {node.module} import {alias.name}{renamed}"
        elif isinstance(node, ast.Import):
            yield from ((alias.name, f"import {alias.name}") for alias in node.names if alias.name in used)
        else:
            for defined in _defined(node) & used:
                yield defined, f"from {name} import {defined}"


def _found_by(statement: str) -> object:
    """Return what an import finds."""
    found: dict[str, object] = {}
    exec(statement, found)
    found.pop("__builtins__")
    return next(iter(found.values()))


def _statements(module: ast.Module) -> Iterator[ast.stmt]:
    """Yield what stands at the top of a module, with what it imports for type checkers."""
    for node in module.body:
        if isinstance(node, ast.If):
            yield from node.body
        else:
            yield node


def _defined(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.ClassDef):
        return {node.name}
    targets = (
        node.targets
        if isinstance(node, ast.Assign)
        else [node.target]
        if isinstance(node, ast.AnnAssign)
        else []
    )
    return {target.id for target in targets if isinstance(target, ast.Name)}


if __name__ == "__main__":
    PATH.write_text(render(), encoding="utf-8")
