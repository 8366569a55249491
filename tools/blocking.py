"""Write the delegating methods of the blocking twin from the async classes: `python -m tools.blocking`.

Every public coroutine method of a class in TWINS becomes a method of the same signature and docstring that hands the
call to the loop. A method that returns a handle, or works on the caller's side, is written by hand in
`eventproc/blocking/` instead and named in BY_HAND.
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
from eventproc.groups import ReaderGroup
from eventproc.processors import Running
from eventproc.runtime import Eventproc
from eventproc.runtime.requests import Requests
from eventproc.streams import Stream

ROOT = Path(__file__).resolve().parents[1]
PATH = ROOT / "eventproc" / "blocking" / "_generated.py"

TWINS: Final[tuple[type, ...]] = (Eventproc, Requests, Stream, ReaderGroup, DeadLetters, Running)

BY_HAND: Final = {
    "Eventproc": {"create_stream", "stream", "create_reader_group", "reader_group", "synchronizer"},
    "Stream": {"begin"},
}
"""Coroutine methods that return a handle, which has a blocking twin of its own."""

HEAD = '''"""Methods of the blocking twin that only hand a call to the loop. Written by `python -m tools.blocking`."""

from __future__ import annotations

from functools import partial
from typing import Any

from eventproc.blocking.loop import Loop
'''


def render() -> str:
    """Return the module as text, formatted."""
    imports: dict[str, str] = {}
    classes = [_class(kind, imports) for kind in TWINS]
    text = HEAD + "\n".join(sorted(imports.values())) + "\n\n" + "\n\n".join(classes)
    ruff = Path(sys.executable).with_name("ruff")
    for arguments in (["check", "-q", "--select", "I", "--fix"], ["format", "-q"]):
        command = [str(ruff), *arguments, "--stdin-filename", str(PATH), "-"]
        text = subprocess.run(
            command, input=text, capture_output=True, text=True, check=True, cwd=ROOT
        ).stdout
    return text


def _class(kind: type, imports: dict[str, str]) -> str:
    tree = ast.parse(inspect.getsource(kind)).body[0]
    module = ast.parse(Path(inspect.getfile(kind)).read_text(encoding="utf-8"))
    assert isinstance(tree, ast.ClassDef)
    generic = any("Generic" in ast.unparse(base) for base in tree.bases)
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
    for method in _methods(tree, BY_HAND.get(kind.__name__, set())):
        lines += ["", *_method(method)]
        used = {node.id for node in ast.walk(_signature(method)) if isinstance(node, ast.Name)}
        for name, statement in _imports_of(module, kind.__module__, used):
            imports.setdefault(name, statement)
    return "\n".join(lines) + "\n"


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
    for node in module.body:
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
