"""What the shell says of the free bytes of a directory, and how it returns them."""

from __future__ import annotations

import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.conftest import Cli
from tests.cli.support import Terminal

MIB = 2**20
EMPTY = (
    1.5 * MIB
)  # more than a directory without events has, which is mostly one page for each table and index


@pytest.fixture
def truncated(shop: Cli, tmp_path: Path) -> Cli:
    """Return the commands of a directory from which 8 MiB of events were truncated."""
    path = tmp_path / "large.txt"
    path.write_text(f"{'x' * 100_000}\n" * 80)
    shop("write", "shop/orders", path).ok()
    done = shop("stream", "truncate", "shop/orders", "--cut", "tail", "--yes", "-o", "json").json()
    assert 0 <= done["free_bytes"] < 16 * MIB
    return shop


def test_a_compaction_returns_the_bytes_of_truncated_events(truncated: Cli) -> None:
    done = truncated("compact", "-o", "json").json()
    assert (done["done"], done["target"], done["free_bytes"]) == ("compact", str(truncated.directory), 0)
    assert done["bytes"] == (truncated.directory / "eventproc.db").stat().st_size < EMPTY
    assert done["bytes_before"] > 4 * MIB
    found = truncated("doctor", "-o", "json").json()
    assert (found["healthy"], found["can_shrink"]) == (True, True)
    assert (found["free_bytes"], found["streams_to_free"]) == (0, 0)
    again = truncated("compact")
    assert again.ok() == ""
    assert again.err.endswith(", 0 B less than before\n")


def test_a_deletion_says_how_much_is_free(truncated: Cli) -> None:
    truncated("stream", "seal", "shop/orders", "--yes").ok()
    done = truncated("stream", "delete", "shop/orders", "--yes", "-o", "json").json()
    free = truncated("doctor", "--quick", "-o", "json").json()["free_bytes"]
    assert 0 <= done["free_bytes"] <= free
    assert truncated("compact", "-o", "json").json()["bytes"] < EMPTY


def test_a_truncation_tells_a_person_who_frees_the_bytes(shop: Cli) -> None:
    said = shop("stream", "truncate", "shop/orders", "--cut", "tail", "--yes").err
    assert "truncated shop/orders; the host frees its bytes, `eventproc compact` does it now" in said


@pytest.mark.subprocess
def test_ctrl_c_ends_a_compaction_beside_its_bar_and_the_next_one_goes_on(truncated: Cli) -> None:
    file = truncated.directory / "eventproc.db"
    with closing(sqlite3.connect(file, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM segment").fetchone()
        terminal = Terminal(truncated.directory, "compact")
        terminal.until(b" of ")  # the file cannot become shorter while the reader needs all of it
        terminal.type(b"\x03")
        assert terminal.end() == 128 + signal.SIGINT
        assert b"compacting" in terminal.shown
        reader.execute("COMMIT")
    assert truncated("doctor", "-o", "json").json()["healthy"]
    assert truncated("compact", "-o", "json").json()["bytes"] == file.stat().st_size < EMPTY
    assert len(truncated("read", "shop/orders", "-o", "jsonl").rows()) == 0


def test_a_file_that_cannot_shrink_says_so_with_exit_code_2(shop: Cli) -> None:
    with closing(sqlite3.connect(shop.directory / "eventproc.db", isolation_level=None)) as other_tool:
        other_tool.execute("PRAGMA auto_vacuum = 0")
        other_tool.execute("VACUUM")
    assert "PRAGMA auto_vacuum = 2; VACUUM" in shop("compact").refused(2)
    assert shop("doctor", "--quick", "-o", "json").json()["can_shrink"] is False


def test_a_compaction_in_the_background_is_a_task(truncated: Cli) -> None:
    made = truncated("compact", "--background", "-o", "json").json()
    ended = truncated("task", "wait", made["task_id"], "-o", "json").json()
    assert (ended["kind"], ended["status"], ended["done"]) == ("compact", "done", ended["total"])
    assert (truncated.directory / "eventproc.db").stat().st_size < EMPTY
