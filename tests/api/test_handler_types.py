"""Type checkers refuse a handler that does not fit its processor, and accept every form of one that does."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

SNIPPET = """
from __future__ import annotations

import functools
from collections.abc import Sequence

import eventproc
from eventproc import AppTx, Context, Event


class A: ...


class B: ...


class CodecOfA:
    def encode(self, value: A, /) -> bytes:
        return b""

    def decode(self, payload: bytes, /) -> A:
        return A()


app = eventproc.App()


def commit_a(tx: AppTx, events: Sequence[Event[A]]) -> None: ...
def commit_bytes(tx: AppTx, events: Sequence[Event]) -> None: ...


@app.processor("s/t")
async def of_bytes(event: Event) -> None: ...
@app.processor("s/t", payload=A)
async def of_a(event: Event[A], context: Context) -> None: ...
@app.processor("s/t", payload=A)
def on_a_thread(event: Event[A]) -> None: ...
@app.processor("s/t", payload=A, batch=5)
async def a_list(events: list[Event[A]], context: Context) -> None: ...
@app.processor("s/t", payload=A, batch=5)
def a_sequence(events: Sequence[Event[A]]) -> None: ...
@app.processor("s/t", batch=5)
def a_sequence_of_bytes(events: Sequence[Event]) -> None: ...
@app.processor("s/t", codec=CodecOfA())
def by_codec(event: Event[A]) -> None: ...
@app.processor("s/t", payload=A, codec=CodecOfA(), exactly_once=True, on_commit=commit_a)
def with_hook(event: Event[A]) -> None: ...
@app.processor("s/t", exactly_once=True, on_commit=commit_bytes)
def with_hook_of_bytes(event: Event) -> None: ...
@app.processor("s/t", payload=str)
def of_text(event: Event[str]) -> None: ...


@app.processor("s/t", payload=A)
class Stateful:
    count = 0

    async def process(self, event: Event[A]) -> None:
        self.count += 1


class Holder:
    def handle(self, factor: int, event: Event[A]) -> None: ...
    def handle_one(self, event: Event[A]) -> None: ...
    async def __call__(self, event: Event[A]) -> None: ...


def declare_by_size(size: int | None) -> None:
    @app.processor("s/t", batch=size)
    async def either(events: Event | list[Event]) -> None: ...


async def call_directly(event: Event[A], context: Context) -> int:
    await of_a(event, context)
    return Stateful().count


app.processor("s/t", payload=A)(functools.partial(Holder().handle, 3))
app.processor("s/t", payload=A)(Holder().handle_one)
app.processor("s/t", payload=A)(Holder())
app.add(of_bytes, "s/t")
app.add(of_a, "s/t", payload=A)
app.add(a_list, "s/t", payload=A, batch=3)
app.add(Stateful, "s/t", payload=A)
app.add(Holder().handle_one, "s/t", payload=A)


@app.processor("s/t", payload=A)  # refused
async def wrong_payload(event: Event[B]) -> None: ...
@app.processor("s/t", payload=A, batch=10)  # refused
async def no_list(event: Event[A]) -> None: ...
@app.processor("s/t", payload=A)  # refused
async def no_batch(events: list[Event[A]]) -> None: ...
@app.processor("s/t", payload=A)  # refused
async def bytes_expected(event: Event) -> None: ...
@app.processor("s/t")  # refused
async def no_payload_type(event: Event[A]) -> None: ...
@app.processor("s/t", payload=B, batch=10)  # refused
async def wrong_list(events: list[Event[A]]) -> None: ...
@app.processor("s/t", codec=CodecOfA())  # refused
async def wrong_codec(event: Event[B]) -> None: ...
@app.processor  # refused
async def bare(event: Event) -> None: ...
@app.processor("s/t", payload=A, exactly_once=True, on_commit=commit_bytes)  # refused
async def wrong_hook(event: Event[A]) -> None: ...


class WithoutProcess:
    async def proces(self, event: Event[A]) -> None: ...


app.processor("s/t", payload=A)(WithoutProcess)  # refused
app.processor("s/t", payload=B)(Holder())  # refused
app.add(of_a, "s/t", payload=B)  # refused
app.add(of_a, "s/t", payload=A, batch=10)  # refused
app.add(a_list, "s/t", payload=A)  # refused
app.add(Stateful, "s/t", payload=B)  # refused
"""

EXPECTED = [number for number, line in enumerate(SNIPPET.splitlines(), 1) if line.endswith("# refused")]


@pytest.fixture
def snippet(tmp_path: Path) -> Path:
    path = tmp_path / "declares_handlers.py"
    path.write_text(SNIPPET, encoding="utf-8")
    return path


@pytest.mark.subprocess
def test_mypy_refuses_handlers_that_do_not_fit(snippet: Path) -> None:
    options: list[str | Path] = [
        "--config-file",
        ROOT / "pyproject.toml",
        "--no-error-summary",
        "--no-pretty",
    ]
    done = _run("mypy", *options, snippet)
    found = re.findall(rf"{snippet.name}:(\d+): error: .*\[([\w-]+)\]", done)
    assert sorted({int(line) for line, _ in found}) == EXPECTED, done


@pytest.mark.subprocess
def test_basedpyright_refuses_handlers_that_do_not_fit(snippet: Path) -> None:
    config = {"extraPaths": [str(ROOT)], "typeCheckingMode": "standard", "include": [snippet.name]}
    (snippet.parent / "pyrightconfig.json").write_text(json.dumps(config), encoding="utf-8")
    options: list[str | Path] = ["--pythonpath", sys.executable, "--outputjson", "--project", snippet.parent]
    found = json.loads(_run("basedpyright", *options))
    wrong = [each for each in found["generalDiagnostics"] if each["severity"] == "error"]
    assert sorted({each["range"]["start"]["line"] + 1 for each in wrong}) == EXPECTED, found


def _run(tool: str, *options: str | Path) -> str:
    """Return what a type checker prints about a snippet, which has errors."""
    command = [sys.executable, "-m", tool, *map(str, options)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout
