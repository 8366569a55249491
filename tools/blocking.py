"""Write the delegating methods of the blocking twin from the async classes: `python -m tools.blocking`.

Every public coroutine method of a class in TWINS becomes a method of the same signature and docstring that hands the
call to the loop. What only type hints name is not imported when it runs. A method that returns a handle, or works on
the caller's side, is written by hand in `eventproc/blocking/` instead and named in BY_HAND.
"""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from eventproc import DeadLetters
from eventproc.cluster import Cluster
from eventproc.groups import ReaderGroup
from eventproc.ingestion.supervisor import Supervisor
from eventproc.processors import Running
from eventproc.runtime import Eventproc
from eventproc.runtime.requests import Requests
from eventproc.runtime.tasks import Tasks
from eventproc.runtime.users import Users
from eventproc.shares import ShareConsumer, ShareGroup
from eventproc.streams import Stream
from eventproc.topics import Consumer, ConsumerGroup, Topic

ROOT = Path(__file__).resolve().parents[1]
PATH = ROOT / "eventproc" / "blocking" / "_generated.py"

TWINS: Final[tuple[type, ...]] = (
    Eventproc,
    Requests,
    Tasks,
    Users,
    Cluster,
    Stream,
    Topic,
    ReaderGroup,
    ConsumerGroup,
    Consumer,
    ShareGroup,
    ShareConsumer,
    Supervisor,
    DeadLetters,
    Running,
)

BY_HAND: Final = {
    "Cluster": {"changes"},
    "Consumer": {"close", "poll", "run"},
    "Eventproc": {
        "create_stream",
        "stream",
        "create_topic",
        "topic",
        "create_reader_group",
        "reader_group",
        "create_consumer_group",
        "consumer_group",
        "synchronizer",
    },
    "Stream": {"begin"},
    "Supervisor": {"backfill"},
}
"""Coroutine methods that return a handle, which has a blocking twin of its own, and async generators."""

PARTS: Final = ("maintenance", "processors", "queries", "topics")
"""Modules with bases of a class, whose methods are delegated too. The twins of other bases are written by hand."""

HEAD = '''"""Methods of the blocking twin that only hand a call to the loop. Written by `python -m tools.blocking`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from eventproc.blocking.loop import Loop
'''


def render() -> str:
    """Return the module as text, formatted."""
    imports: dict[str, str] = {}
    defaults: set[str] = set()
    classes = [_class(kind, imports, defaults) for kind in TWINS]
    needed = [statement for name, statement in imports.items() if name in defaults]
    hints = [f"    {statement}" for name, statement in imports.items() if name not in {*defaults, "Any"}]
    head = [HEAD, *sorted(needed), "", "if TYPE_CHECKING:", *sorted(hints)]
    text = "\n".join(head) + "\n\n" + "\n\n".join(classes)
    ruff = Path(sys.executable).with_name("ruff")
    for arguments in (["check", "-q", "--select", "I", "--fix"], ["format", "-q"]):
        command = [str(ruff), *arguments, "--stdin-filename", str(PATH), "-"]
        text = subprocess.run(
            command, input=text, capture_output=True, text=True, check=True, cwd=ROOT
        ).stdout
    return text


def _class(kind: type, imports: dict[str, str], defaults: set[str]) -> str:
    """Return the class. imports: gets the statement for each name. defaults: gets the names that run, not only hint."""
    tree = ast.parse(inspect.getsource(kind)).body[0]
    assert isinstance(tree, ast.ClassDef)
    generic = any(isinstance(base, ast.Subscript) for base in tree.bases)
    twin = f"{kind.__name__}[Any]" if generic else kind.__name__
    imports.setdefault(kind.__name__, f"from {kind.__module__} import {kind.__name__}")
    lines = [
        f"class {kind.__name__}Calls:",
        f'    """The coroutine methods of `{kind.__name__}`, without `await`."""',
        "",
        f"    def __init__(self, loop: Loop, twin: {twin}) -> None:",
        "        self._loop = loop",
        "        self._twin = twin",
    ]
    for part in _parts(kind):
        module = ast.parse(Path(inspect.getfile(part)).read_text(encoding="utf-8"))
        body = ast.parse(inspect.getsource(part)).body[0]
        assert isinstance(body, ast.ClassDef)
        for method in _methods(body, BY_HAND.get(kind.__name__, set())):
            lines += ["", *_method(method)]
            used = _names(_signature(method))
            defaults.update(*(_names(each) for each in _default_values(method.args)))
            for name, statement in _imports_of(module, part.__module__, used):
                imports.setdefault(name, statement)
    return "\n".join(lines) + "\n"


def _parts(kind: type) -> list[type]:
    """Return the class, and its bases of the same package, which are parts of it in files of their own."""
    package = kind.__module__.rpartition(".")[0]
    return [
        each
        for each in kind.__mro__
        if each is kind or each.__module__ in {f"{package}.{part}" for part in PARTS}
    ]


def _methods(tree: ast.ClassDef, by_hand: set[str]) -> Iterator[ast.AsyncFunctionDef]:
    for node in tree.body:
        if (
            isinstance(node, ast.AsyncFunctionDef)
            and not node.name.startswith("_")
            and node.name not in by_hand
        ):
            yield node


def _signature(method: ast.AsyncFunctionDef) -> ast.FunctionDef:
    """Return the method without `async`, its docstring and its body."""
    return ast.FunctionDef(
        name=method.name,
        args=method.args,
        body=[ast.Pass()],
        decorator_list=[],
        returns=method.returns,
        lineno=0,
    )


def _default_values(arguments: ast.arguments) -> Iterator[ast.expr]:
    yield from arguments.defaults
    yield from (each for each in arguments.kw_defaults if each is not None)


def _names(tree: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def _method(method: ast.AsyncFunctionDef) -> Iterator[str]:
    head = ast.unparse(_signature(method)).removesuffix("pass").rstrip()
    yield f"    {head}"
    yield '        """' + (ast.get_docstring(method, clean=False) or "") + '"""'
    arguments = method.args
    passed = [each.arg for each in (*arguments.posonlyargs, *arguments.args)][1:]
    if arguments.vararg is not None:
        passed.append(f"*{arguments.vararg.arg}")
    named = [f"{each.arg}={each.arg}" for each in arguments.kwonlyargs]
    call = f"self._twin.{method.name}"
    if named:
        call = f"partial({', '.join([call, *passed, *named])})"
        passed = []
    returns = "" if method.returns is None or ast.unparse(method.returns) == "None" else "return "
    yield f"        {returns}self._loop.call({', '.join([call, *passed])})"


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
