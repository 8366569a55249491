"""Several shells on one directory, one of them killed; and what a terminal shows."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest

from tests.cli.conftest import Cli
from tests.cli.support import COMMAND, environment, started

pytestmark = pytest.mark.subprocess

ROWS = 3000
KEYS = 7


def keyed_rows(writer: str, count: int) -> bytes:
    """Return JSON lines that each name their writer, key, and number within the key."""
    return b"".join(
        json.dumps({"key": f"{writer}{number % KEYS}", "number": number // KEYS}).encode() + b"\n"
        for number in range(count)
    )


def test_two_writers_and_a_follower_while_a_fourth_shell_scales(shop: Cli, tmp_path: Path) -> None:
    shop("scope", "create", "s").ok()
    shop("stream", "create", "s/x").ok()
    reader = started("-C", shop.directory, "read", "s/x", "--follow")
    writers = [
        started("-C", shop.directory, "write", "s/x", "--format", "jsonl", "--key", "key") for _ in range(2)
    ]
    seen: dict[str, list[int]] = defaultdict(list)
    with reader, writers[0], writers[1]:
        for part in range(3):
            for name, writer in zip("ab", writers, strict=True):
                assert writer.stdin is not None
                begin = keyed_rows(name, ROWS * (part + 1) // 3)[len(keyed_rows(name, ROWS * part // 3)) :]
                writer.stdin.write(begin)
                writer.stdin.flush()
            segment = shop("stream", "segments", "s/x", "-o", "json").json()[part]["id"]
            shop("stream", "split", "s/x", segment).ok()
        for writer in writers:
            out, err = writer.communicate(timeout=60)
            assert (writer.returncode, err) == (0, b"")
            assert out.split()[-1] == b"%d" % ROWS
        shop("stream", "seal", "s/x", "--yes").ok()
        out, err = reader.communicate(timeout=60)  # it ends with the stream
    assert (reader.returncode, err) == (0, b"")
    for line in out.splitlines():
        payload = json.loads(json.loads(line)["payload"])
        seen[payload["key"]].append(payload["number"])
    assert len(seen) == 2 * KEYS
    assert all(numbers == list(range(len(numbers))) for numbers in seen.values())
    assert sum(map(len, seen.values())) == 2 * ROWS


def test_events_reported_by_a_killed_writer_are_stored_once(shop: Cli) -> None:
    shop("scope", "create", "s").ok()
    shop("stream", "create", "s/x").ok()
    with started("-C", shop.directory, "write", "s/x") as writer:
        assert writer.stdin is not None
        assert writer.stdout is not None
        reported, sent = 0, 0
        while reported < 500:
            for _ in range(100):
                writer.stdin.write(b"%d\n" % sent)
                sent += 1
            writer.stdin.flush()
            reported = int(writer.stdout.readline().split()[1])
        writer.stdin.write(b"".join(b"%d\n" % number for number in range(sent, sent + 1000)))
        writer.stdin.flush()
        writer.send_signal(signal.SIGKILL)
        rest = writer.stdout.read().split(b"\n")
    reported = max([reported, *(int(line.split()[1]) for line in rest if line)])
    found = [int(row["payload"]) for row in shop("read", "s/x").rows()]
    assert found == list(range(len(found)))
    assert len(found) >= reported


def on_a_terminal(*arguments: object, stdout: bool) -> tuple[int, bytes, bytes]:
    """Run a command whose stderr, and stdout if asked, is a terminal; return code, stdout, what it showed."""
    ours, theirs = pty.openpty()
    command = [*COMMAND, *map(str, arguments)]
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=theirs if stdout else subprocess.PIPE,
        stderr=theirs,
        env=environment(TERM="xterm", COLUMNS="100"),
    )
    os.close(theirs)
    shown = b""
    try:
        while block := os.read(ours, 65536):
            shown += block
    except OSError:  # what Linux says when the last one closed the other side
        pass
    os.close(ours)
    printed, _ = process.communicate(timeout=60)
    return process.returncode, printed or b"", shown


def test_a_terminal_gets_tables_that_fold_and_nothing_else_changes(shop: Cli) -> None:
    code, _, shown = on_a_terminal("-C", shop.directory, "stream", "list", stdout=True)
    assert code == 0
    assert b"NAME" in shown
    assert b"shop/orders" in shown


def test_a_long_write_shows_its_progress_beside_what_it_prints(shop: Cli, tmp_path: Path) -> None:
    (tmp_path / "rows").write_bytes(b"row\n" * 50_000)
    write = ("-C", shop.directory, "write", "shop/orders", tmp_path / "rows")
    code, printed, shown = on_a_terminal(*write, stdout=False)
    assert (code, printed.split()[-1]) == (0, b"50000")
    assert b"writing shop/orders" in shown
    code, _, shown = on_a_terminal(*write, stdout=True)
    assert code == 0
    assert b"written 50000" in shown


def test_a_long_read_shows_its_progress_while_its_events_go_elsewhere(shop: Cli) -> None:
    code, printed, shown = on_a_terminal("-C", shop.directory, "read", "shop/orders", stdout=False)
    assert (code, printed.count(b"\n")) == (0, 3)
    assert b"reading shop/orders" in shown
