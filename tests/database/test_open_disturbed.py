"""Opening while other programs open and close the database: later writes go into the common log."""

from __future__ import annotations

import fcntl
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from eventproc.store.database import DatabaseTimeouts
from eventproc.store.database.file_database import GUARD_POLL_MS
from eventproc.store.database.guard import FileGuard
from eventproc.store.model.errors import StoreUnusable
from tests.database.support import insert, open_world
from tests.support.child_process import ChildProcess, run

pytestmark = pytest.mark.subprocess

STRANGER = """
    import sqlite3, sys
    database = sqlite3.connect(sys.argv[1])
    print(database.execute("SELECT count(*) FROM item").fetchone()[0], flush=True)
    sys.stdin.read()
    database.close()
"""


@pytest.fixture
async def database(tmp_path: Path) -> Path:
    async with open_world("file", tmp_path / "store") as world:
        await world.db.write(insert("before"))
    return tmp_path / "store" / "eventproc.db"


def before_the_guard(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], None], times: int = 1) -> None:
    """Call `happens` after the first connection was opened, in the first `times` openings."""
    hold, left = FileGuard.hold, [happens] * times

    def disturbed_hold(db_path: Path) -> FileGuard:
        if left:
            left.pop()()
        return hold(db_path)

    monkeypatch.setattr(FileGuard, "hold", disturbed_hold)


def drop_locks(database: Path) -> None:
    """Close a descriptor of the file, which drops the locks that SQLite has on it for this process."""
    database.read_bytes()


def close_as_the_last_user(database: Path) -> None:
    """Drop the locks of this process, and let another program open and close: it removes the log and -shm."""
    drop_locks(database)
    with ChildProcess.running(STRANGER, database) as stranger:
        assert stranger.hear() == "1"
        assert stranger.finish() == 0
    assert not Path(f"{database}-wal").exists()


@pytest.mark.parametrize("times", [1, 3])
async def test_opening_continues_if_another_program_removes_the_log(
    database: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    before_the_guard(monkeypatch, lambda: close_as_the_last_user(database), times)
    async with open_world("file", database.parent) as world:
        await world.db.write(insert("after"))
        assert await world.names() == ["after", "before"]
        assert int(run(STRANGER, database)) == 2
    assert int(run(STRANGER, database)) == 2


async def test_writes_go_to_the_log_that_another_program_created_meanwhile(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ChildProcess.running("import sys; sys.stdin.readline()\n" + dedent(STRANGER), database) as other:

        def replace() -> None:
            close_as_the_last_user(database)
            assert other.ask("open it now") == "1"

        before_the_guard(monkeypatch, replace)
        async with open_world("file", database.parent) as world:
            await world.db.write(insert("after"))
            assert await world.names() == ["after", "before"]
            assert int(run(STRANGER, database)) == 2


@pytest.mark.linux
async def test_commits_survive_programs_that_open_and_close_an_open_database(database: Path) -> None:
    async with open_world("file", database.parent) as world:
        await world.db.write(insert("during"))
        drop_locks(database)
        assert int(run(STRANGER, database)) == 2
        await world.db.write(insert("later"))
        assert int(run(STRANGER, database)) == 3


@pytest.mark.linux
async def test_a_database_locked_by_another_program_is_refused_in_one_line(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def locked(*_: object) -> int:
        raise BlockingIOError

    monkeypatch.setattr(fcntl, "fcntl", locked)
    timeouts = DatabaseTimeouts(guard_wait_ms=GUARD_POLL_MS)
    with pytest.raises(StoreUnusable, match="another program keeps the database locked; end it first"):
        async with open_world("file", database.parent, timeouts=timeouts):
            pass
