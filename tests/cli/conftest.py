"""The command line for tests: in this process, where that is enough, and a directory with a stream in it."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from eventproc.cli.main import run
from tests.cli.support import EVENTS, GROUP, Result, numbers, started


def run_here(address: Path | str | None, *arguments: object, stdin: bytes = b"") -> int:
    """Run a command on a directory, or the URL of a store, in this process; return its exit code. None: without -C."""
    library = logging.getLogger("eventproc")
    handlers, level, library_level = logging.root.handlers[:], logging.root.level, library.level
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        given = [] if address is None else ["-C", str(address)]
        code = run([*given, *map(str, arguments)])
    # A command prepares the log of a process of its own; here there is a life after it.
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)
    library.setLevel(library_level)
    return code


class Cli:
    """Runs commands on one directory, or one URL, in this process, and gives back what they printed."""

    def __init__(self, directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.directory = directory
        self.url: str | None = None
        """The address of a store on a server, instead of a directory."""
        self._capsys = capsys

    def __call__(self, *arguments: object, stdin: bytes = b"") -> Result:
        self._capsys.readouterr()
        code = run_here(self.url or self.directory, *arguments, stdin=stdin)
        printed = self._capsys.readouterr()
        return Result(code, printed.out, printed.err)


class Templates:
    """Directories made once; a test works on a copy, which takes less time than the commands that made it."""

    def __init__(self, folder: Path) -> None:
        self.empty = folder / "empty"
        self.shop = folder / "shop"
        self.billing = folder / "billing"
        # Most commands sync what they commit, unless the directory leaves that to the system.
        self._make(self.empty, ["init", "--durability", "os"])
        shutil.copytree(self.empty, self.shop)
        rows = b"".join(b'{"k":"customer-42","n":%d}\n' % number for number in range(EVENTS))
        self._make(self.shop, ["scope", "create", "shop"])
        self._make(self.shop, ["stream", "create", "shop/orders", "--segments", 2])
        self._make(self.shop, ["write", "shop/orders", "--format", "jsonl", "--key", "k"], rows)
        shutil.copytree(self.shop, self.billing)
        self._make(self.billing, ["group", "create", "billing", "--stream", "shop/orders"])

    def _make(self, directory: Path, command: list[object], stdin: bytes = b"") -> None:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as errors:
            code = run_here(directory, *command, stdin=stdin)
        assert code == 0, errors.getvalue()


@pytest.fixture(scope="session")
def templates(tmp_path_factory: pytest.TempPathFactory) -> Templates:
    return Templates(tmp_path_factory.mktemp("templates"))


def _copy(template: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(shutil.copytree(template, tmp_path / "home"), capsys)


@pytest.fixture
def cli(tmp_path: Path, capsys: pytest.CaptureFixture[str], templates: Templates) -> Cli:
    """A directory without scopes."""
    return _copy(templates.empty, tmp_path, capsys)


@pytest.fixture
def shop(tmp_path: Path, capsys: pytest.CaptureFixture[str], templates: Templates) -> Cli:
    """A directory with shop/orders: two segments, EVENTS events of the key customer-42."""
    return _copy(templates.shop, tmp_path, capsys)


@pytest.fixture
def billing(tmp_path: Path, capsys: pytest.CaptureFixture[str], templates: Templates) -> Cli:
    """A directory with shop/orders, see `shop`, and the group shop/billing that has read nothing."""
    return _copy(templates.billing, tmp_path, capsys)


@pytest.fixture
def as_reader(billing: Cli) -> Iterator[subprocess.Popen[bytes]]:
    """A process that reads as "r1" and waits for more, having read all."""
    with started("-C", billing.directory, "read", "--group", GROUP, "--reader", "r1", "--follow") as reader:
        try:
            assert reader.stdout is not None
            for number in range(EVENTS):
                assert numbers([json.loads(reader.stdout.readline())]) == [number]
            yield reader
        finally:
            reader.kill()
