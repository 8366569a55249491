"""Support for the tests of the command line: run commands as processes, and read what they printed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

REPOSITORY = Path(__file__).parents[2]
PATIENCE_S = 60
COMMAND = [sys.executable, "-c", "import sys; from eventproc.cli.entry import main; sys.exit(main())"]


class Result(NamedTuple):
    """What a command came to."""

    code: int
    out: str
    err: str

    def ok(self) -> str:
        """Return what it printed, asserting that it went well."""
        assert self.code == 0, self.err
        return self.out

    def json(self) -> Any:
        return json.loads(self.ok())

    def rows(self) -> list[Any]:
        """Return its JSON lines."""
        return [json.loads(line) for line in self.ok().split("\n") if line]

    def refused(self, code: int) -> str:
        """Return the one line on stderr, asserting the exit code and that nothing else was printed."""
        assert (self.code, self.out, self.err.count("\n")) == (code, "", 1), self
        assert self.err.startswith("eventproc: ")
        return self.err


def environment(**changes: str) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(REPOSITORY)} | changes


def shell(*arguments: object, stdin: bytes = b"", before: Sequence[str] = (), prepare: str = "") -> Result:
    """Run a command to its end. before: what it is run by, such as `unshare`. prepare: Python to run first."""
    python, option, code = COMMAND
    done = subprocess.run(
        [*before, python, option, f"{prepare}\n{code}", *map(str, arguments)],
        input=stdin,
        capture_output=True,
        env=environment(),
        timeout=PATIENCE_S,
        check=False,
    )
    return Result(done.returncode, done.stdout.decode(), done.stderr.decode())


class StartedCommand(subprocess.Popen[bytes]):
    """A process that a failing test kills; Popen itself would wait for its end, and hang."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is not None:
            self.kill()
        super().__exit__(kind, error, traceback)


def started(*arguments: object) -> StartedCommand:
    """Start a command with pipes for all it says and hears; the caller ends it."""
    return StartedCommand(
        [*COMMAND, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )


class RunProcess:
    """`eventproc run` as a process, in a folder with the module shop. Its log is read line by line."""

    def __init__(self, directory: Path, folder: Path, *arguments: object) -> None:
        self.heard: list[str] = []
        self.process = subprocess.Popen(
            [*COMMAND, "-C", str(directory), "run", *map(str, arguments)],
            cwd=folder,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def hear(self, *texts: str) -> str:
        """Return the next line of the log that contains all texts; without any, the one that says that it serves."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.heard.append(line)
            if all(text in line for text in texts or ("serving ",)):
                return line
        raise AssertionError(f"it ended without {texts}: {self.heard}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()  # workers drain when their supervisor is gone
        self.process.communicate()


GROUP = "shop/billing"
"""The group of the fixture `billing`, which reads the EVENTS events of shop/orders."""

EVENTS = 3


def numbers(rows: Sequence[Mapping[str, str]]) -> list[int]:
    """Return the numbers in the payloads of printed rows."""
    return [json.loads(row["payload"])["n"] for row in rows]


def rows_of(*values: int) -> bytes:
    """Return JSON lines for events of shop/orders, all of one key."""
    return b"".join(b'{"k":"customer-42","n":%d}\n' % value for value in values)
