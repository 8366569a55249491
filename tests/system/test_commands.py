"""The command line as several people use it concurrently, each in a shell of their own."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

import eventproc
from eventproc.testing import CrashDirectory
from tests.cli.support import COMMAND, shell
from tests.support.child_process import ChildProcess
from tests.system.protocol import check_rows, key_of, payload_of, read_all

STREAM = "town/square"
TAKEOVER_S_MAX = 10
ROWS = 300
FILE_ROWS = 150_000

WITH_ONE_OUTPUT = "import os, sys; os.dup2(1, 2); os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"


class Shells:
    """Shells on one directory: `run` a command to its end, or `start` it and go on."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def run(self, *arguments: object, stdin: bytes = b"") -> str:
        """Return what the command printed; it must succeed."""
        return shell("-C", self._directory, *arguments, stdin=stdin).ok()

    def start(self, *arguments: object) -> ChildProcess:
        """Start a command; what it says on stderr is among its lines."""
        return ChildProcess.running(WITH_ONE_OUTPUT, *COMMAND[1:], "-C", self._directory, *arguments)

    def read(self) -> list[tuple[str | None, bytes]]:
        return rows_of(self.run("read", STREAM).splitlines())


@pytest.fixture
def crash(tmp_path: Path) -> CrashDirectory:
    """A directory with STREAM in it, whose segments are 0.0 and 1.0."""

    async def make(ep: eventproc.Eventproc) -> None:
        await ep.create_scope("town")
        await ep.create_stream(STREAM, scaling=eventproc.ScalingPolicy.fixed(2))

    crash = CrashDirectory(tmp_path / "store")
    crash.run(make)
    return crash


@pytest.fixture
def shells(crash: CrashDirectory) -> Shells:
    return Shells(crash.path)


def row_of(writer: str, number: int) -> str:
    return json.dumps({"key": key_of(writer, number), "row": payload_of(writer, number).decode()})


def rows_of(lines: list[str]) -> list[tuple[str | None, bytes]]:
    """Return (key, row) of each event printed."""
    events = [json.loads(line) for line in lines]
    return [(event["key"], json.loads(event["payload"])["row"].encode()) for event in events]


async def epoch_of(ep: eventproc.Eventproc) -> int:
    return (await (await ep.stream(STREAM)).describe()).epoch


def lines_of(child: ChildProcess) -> list[str]:
    return list(iter(child.hear, ""))


def rows_written(writer: ChildProcess) -> int:
    """Return the number of rows in the next line that tells it; what is logged may come before."""
    while not (line := writer.hear()).startswith("written "):
        assert line.startswith("eventproc:"), f"{line!r} came instead"
    return int(line.split()[1])


def hear_written(writer: ChildProcess, count: int) -> None:
    """Hear nothing but growing numbers of rows, up to `count`."""
    while (said := int(writer.hear().removeprefix("written "))) != count:
        assert said < count


def hear_serving(server: ChildProcess) -> None:
    while " eventproc.run: serving " not in (line := server.hear()):
        assert line, "it ended before it served"


def test_two_write_and_one_follows_while_others_split_and_merge(
    crash: CrashDirectory, shells: Shells
) -> None:
    acked: dict[str, int] = {}
    with (
        shells.start("read", STREAM, "--follow") as follower,
        shells.start("write", STREAM, "--format", "jsonl", "--key", "key") as ada,
        shells.start("write", STREAM, "--format", "jsonl", "--key", "key") as bob,
    ):
        writers = {"ada": ada, "bob": bob}
        scales = [
            ("split", STREAM, "1.0", "--into", 3),
            ("merge", STREAM, "0.0", "2.1"),
            ("split", STREAM, "5.2"),
        ]
        for turn, scale in enumerate(scales):
            for name, writer in writers.items():
                numbers = range(turn * ROWS, (turn + 1) * ROWS)
                writer.say("\n".join(row_of(name, number) for number in numbers))
            shells.run("stream", *scale)
            for name, writer in writers.items():
                hear_written(writer, (turn + 1) * ROWS)
                acked[name] = (turn + 1) * ROWS
        assert ada.finish() == 0
        assert bob.finish() == 0
        shells.run("stream", "seal", STREAM, "--yes")
        followed = rows_of(lines_of(follower))
        assert follower.finish() == 0
    assert check_rows(followed, acked, by_batch=False) == acked
    assert check_rows(shells.read(), acked, by_batch=False) == acked
    crash.check()


def test_every_row_that_a_killed_write_reported_is_there_once(
    crash: CrashDirectory, shells: Shells, tmp_path: Path
) -> None:
    file = tmp_path / "rows.csv"
    with file.open("w", encoding="utf-8") as rows:
        rows.write("key,row\n")
        rows.writelines(
            f"{key_of('ada', number)},{payload_of('ada', number).decode()}\n" for number in range(FILE_ROWS)
        )
    with shells.start("write", STREAM, file, "--key", "key") as writer:
        shells.run("stream", "split", STREAM, "0.0")
        reported = [rows_written(writer) for _ in range(2)]
        writer.kill()
        reported += [int(line.split()[1]) for line in lines_of(writer)]
    assert reported == sorted(set(reported))
    read = crash.run(read_all, STREAM)
    rows_read = [(key, json.loads(payload)["row"].encode()) for key, payload in read]
    found = check_rows(rows_read, {"ada": reported[-1]}, by_batch=False)
    assert reported[-1] <= found["ada"] <= FILE_ROWS
    assert shells.run("write", STREAM, "--format", "lines", stdin=b"one more\n") == "written 1\n"


def test_the_others_go_on_when_run_sleeps_and_when_it_is_killed(
    crash: CrashDirectory, shells: Shells
) -> None:
    with shells.start("run") as first:
        hear_serving(first)
        shells.run("stream", "split", STREAM, "0.0")
        first.stop_outside(crash.path / "write.lock")
        assert shells.run("write", STREAM, "--format", "lines", stdin=b"a\nb\n").endswith("written 2\n")
        shells.run("stream", "split", STREAM, "2.1", "--timeout", TAKEOVER_S_MAX)
        first.resume()
        shells.run("stream", "split", STREAM, "4.2")
        with shells.start("run") as second:
            hear_serving(second)
            first.kill()
            shells.run("stream", "split", STREAM, "6.3")
            os.kill(second.pid, signal.SIGTERM)
            assert second.finish() == 0
    crash.check()
    assert crash.run(epoch_of) == 4
