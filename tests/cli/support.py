"""Support for the tests of the command line: run commands as processes, and read what they printed."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios
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


class Terminal:
    """A command whose standard streams are a terminal of its own, as a person uses it. piped: its output is a pipe."""

    def __init__(
        self, directory: Path, *arguments: object, width: int = 100, piped: bool = False, **variables: str
    ) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
        modes = termios.tcgetattr(theirs)
        modes[3] |= termios.NOFLSH  # Ctrl-C must not discard what was printed and not read yet
        termios.tcsetattr(theirs, termios.TCSANOW, modes)
        env = environment(**{"TERM": "xterm", **variables})
        for name in {"COLUMNS", "LINES", "NO_COLOR"} - set(variables):
            env.pop(name, None)
        self.shown = self.printed = b""
        self._process = subprocess.Popen(
            [*COMMAND, "-C", str(directory), *map(str, arguments)],
            stdin=theirs,
            stdout=subprocess.PIPE if piped else theirs,
            stderr=theirs,
            env=env,
            start_new_session=True,
            preexec_fn=own_terminal,
        )
        os.close(theirs)

    def until(self, text: bytes) -> None:
        """Read what it shows until `text` appears."""
        while text not in self.shown:
            self.shown += os.read(self._ours, 65536)

    def answer(self, keys: bytes) -> int:
        """Type `keys` at the question, and return the exit code."""
        self.until(b"[y/N] ")
        self.type(keys)
        return self.end()

    def type(self, keys: bytes) -> None:
        os.write(self._ours, keys)

    def end(self) -> int:
        """Read what it shows, and prints into its pipe, until it ends, and return the exit code."""
        try:
            while block := os.read(self._ours, 65536):
                self.shown += block
        except OSError:  # what Linux says when the last one closed the other side
            pass
        os.close(self._ours)
        self.printed, _ = self._process.communicate(timeout=PATIENCE_S)
        return self._process.returncode


def own_terminal() -> None:
    """Make standard input the controlling terminal, so that Ctrl-C typed there becomes a signal."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


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
