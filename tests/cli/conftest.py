"""The command line for tests: in this process, where that is enough, and a directory with a stream in it."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from eventproc.cli.main import run
from tests.cli.support import EVENTS, GROUP, Result, numbers, started


class Cli:
    """Runs commands on one directory in this process, and gives back what they printed."""

    def __init__(
        self, directory: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.directory = directory
        self._capsys = capsys
        self._monkeypatch = monkeypatch

    def __call__(self, *arguments: object, stdin: bytes = b"") -> Result:
        self._capsys.readouterr()
        library = logging.getLogger("eventproc")
        handlers, level, library_level = logging.root.handlers[:], logging.root.level, library.level
        with self._monkeypatch.context() as patch:
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
            code = run(["-C", str(self.directory), *map(str, arguments)])
        # A command prepares the log of a process of its own; here there is a life after it.
        logging.root.handlers[:] = handlers
        logging.root.setLevel(level)
        library.setLevel(library_level)
        printed = self._capsys.readouterr()
        return Result(code, printed.out, printed.err)


def stock(cli: Cli) -> None:
    """Make shop/orders: two segments, three events of the key customer-42."""
    cli("scope", "create", "shop").ok()
    cli("stream", "create", "shop/orders", "--segments", 2).ok()
    rows = b"".join(b'{"k":"customer-42","n":%d}\n' % number for number in range(3))
    cli("write", "shop/orders", "--format", "jsonl", "--key", "k", stdin=rows).ok()


@pytest.fixture
def cli(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    """A directory without scopes."""
    made = Cli(tmp_path / "home", capsys, monkeypatch)
    assert made("init").code == 0
    return made


@pytest.fixture
def shop(cli: Cli) -> Cli:
    """A directory with the stream shop/orders, see `stock`."""
    stock(cli)
    return cli


@pytest.fixture
def billing(shop: Cli) -> Cli:
    """A directory with the stream shop/orders, see `stock`, and the group shop/billing that has read nothing."""
    shop("group", "create", "billing", "--stream", "shop/orders").ok()
    return shop


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
