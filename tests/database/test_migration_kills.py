"""A process that is killed at any statement of a migration leaves a directory that opens, as it was or migrated."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import patch

import pytest

from eventproc.store.database import Migration, file_database
from eventproc.store.database.connections import connect
from tests.database.support import MIGRATIONS, NEWER, insert, open_database, open_world
from tests.support.forked import run_forked

pytestmark = pytest.mark.subprocess

KILLS_MAX = 200
"""More than an opening has statements."""


def open_and_die(directory: Path, migrations: Sequence[Migration], nth: int) -> int:
    """Open in a child that is killed before its `nth` statement; return its exit code."""

    async def main() -> None:
        left = nth

        def count(_: str) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

        def watched(db_path: Path) -> sqlite3.Connection:
            made = connect(db_path)
            made.set_trace_callback(count)
            return made

        with patch.object(file_database, "connect", watched):
            async with open_database(directory, migrations=migrations):
                pass

    return run_forked(main)


async def test_creation_that_is_killed_at_any_statement_leaves_a_directory_that_opens(
    tmp_path: Path,
) -> None:
    nth = 0
    for nth in range(1, KILLS_MAX):
        directory = tmp_path / str(nth)
        ended = open_and_die(directory, MIGRATIONS, nth)
        async with open_world("file", directory) as world:
            await world.db.write(insert("a"))
            assert await world.names() == ["a"]
        if ended == 0:
            break
        assert ended == -signal.SIGKILL
    assert 10 < nth < KILLS_MAX - 1


async def test_migration_that_is_killed_at_any_statement_leaves_the_old_or_the_new_schema(
    tmp_path: Path,
) -> None:
    old = tmp_path / "old"
    async with open_world("file", old) as world:
        await world.db.write(insert("a"))
    found: set[int] = set()
    nth = 0
    for nth in range(1, KILLS_MAX):
        directory = shutil.copytree(old, tmp_path / str(nth))
        ended = open_and_die(directory, NEWER, nth)
        found.add(schema_of(directory))
        async with open_world("file", directory, NEWER) as world:
            rows = await world.db.read(lambda tx: tx.execute("SELECT name, color FROM item").fetchall())
            assert rows == [("a", "red")]
        if ended == 0:
            break
        assert ended == -signal.SIGKILL
    assert found == {1, 2}
    assert nth < KILLS_MAX - 1


def schema_of(directory: Path) -> int:
    """Return the number of the last migration that is durable."""
    (path,) = directory.glob("*.db")
    with sqlite3.connect(path) as opened:
        number = int(opened.execute("PRAGMA user_version").fetchone()[0])
    opened.close()
    return number
