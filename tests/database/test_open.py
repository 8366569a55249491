"""Opening and closing a directory: which ones are refused, and which files are created and removed."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
import trio

from eventproc.store.database import DatabaseTimeouts, Durability, Migration, Tx
from eventproc.store.database.connections import PAGE_BYTES
from eventproc.store.database.locks import FormatLock
from eventproc.store.database.migrate import check_numbers
from eventproc.store.model.errors import (
    DirectoryInUse,
    NotSupported,
    StoreUnusable,
)
from tests.database.support import (
    MIGRATIONS,
    NEWER,
    Refused,
    add_color,
    create_table,
    insert,
    names,
    open_database,
    open_world,
)
from tests.support.child_process import ChildProcess


def exists(path: Path) -> bool:
    return path.exists()


async def test_concurrent_openers_of_a_new_directory_create_one_database(directory: Path) -> None:
    async def open_and_write(name: str) -> None:
        async with open_world("file", directory) as world:
            await world.db.write(insert(name))

    async with anyio.create_task_group() as tasks:
        for name in "abc":
            tasks.start_soon(open_and_write, name)
    async with open_world("file", directory) as world:
        assert await world.names() == ["a", "b", "c"]


async def test_a_new_file_has_its_permanent_settings(directory: Path) -> None:
    def settings(tx: Tx) -> list[object]:
        pragmas = ("page_size", "auto_vacuum", "journal_mode", "user_version")
        return [tx.execute(f"PRAGMA {name}").fetchone()[0] for name in pragmas]

    async with open_world("file", directory) as world:
        assert await world.db.read(settings) == [PAGE_BYTES, 2, "wal", 1]


@pytest.mark.parametrize("durability, synchronous", [(Durability.FSYNC, 2), (Durability.OS, 1)])
async def test_durability_decides_what_a_commit_waits_for(
    directory: Path, durability: Durability, synchronous: int
) -> None:
    async with open_database(directory, migrations=MIGRATIONS, durability=durability) as db:
        assert db.durability is durability
    async with open_database(directory, migrations=MIGRATIONS) as db:
        assert db.durability is durability
        assert await db.write(lambda tx: tx.execute("PRAGMA synchronous").fetchone()) == (synchronous,)
        assert await db.write(lambda tx: tx.execute("PRAGMA wal_autocheckpoint").fetchone()) == (0,)


async def test_opening_with_another_durability_is_refused_and_names_both(directory: Path) -> None:
    async with open_database(directory, migrations=MIGRATIONS, durability=Durability.OS):
        pass
    with pytest.raises(StoreUnusable, match=r"'os'.*'fsync'"):
        async with open_database(directory, migrations=MIGRATIONS, durability=Durability.FSYNC):
            pass


def test_opening_on_trio_is_refused_in_one_line(directory: Path) -> None:
    async def main() -> None:
        async with open_database(directory, migrations=[]):
            pass

    with pytest.raises(NotSupported, match=r"^a directory on trio is not supported"):
        trio.run(main)
    assert not exists(directory)


@pytest.mark.subprocess
async def test_a_program_that_crashes_before_closing_exits(directory: Path) -> None:
    crashing = ChildProcess.running(
        """
        import asyncio, sys
        from pathlib import Path
        from tests.database.support import open_database

        opening = open_database(Path(sys.argv[1]), migrations=[])
        loop = asyncio.new_event_loop()
        db = loop.run_until_complete(opening.__aenter__())
        loop.run_until_complete(db.write(lambda tx: None))
        raise SystemExit("crash")  # neither the database nor the loop is closed
        """,
        directory,
    )
    with crashing:
        assert crashing.hear() == ""  # the end of its output: it has exited in spite of its threads


@pytest.mark.subprocess
async def test_a_forked_child_cannot_use_the_handle_and_its_parent_can(directory: Path) -> None:
    forking = ChildProcess.running(
        """
        import asyncio, os, sys
        from pathlib import Path
        from tests.database.support import open_database
        from eventproc.store.model.errors import ForkedError

        async def main():
            async with open_database(Path(sys.argv[1]), migrations=[]) as db:
                if (pid := os.fork()) == 0:
                    for use in (db.write, db.read):
                        try:
                            use(lambda tx: None).send(None)
                        except ForkedError as why:
                            print(why, flush=True)
                    os._exit(0)
                os.waitpid(pid, 0)
                print(await db.write(lambda tx: "written"), flush=True)

        asyncio.run(main())
        """,
        directory,
    )
    with forking:
        assert forking.hear().startswith("the database was opened before a fork")
        assert forking.hear().startswith("the database was opened before a fork")
        assert forking.hear() == "written"


# --- migrations ----------------------------------------------------------------------------------


async def test_an_older_schema_is_migrated_with_its_rows(directory: Path) -> None:
    async with open_world("file", directory) as world:
        await world.db.write(insert("a"))
    async with open_world("file", directory, NEWER) as world:
        rows = await world.db.read(lambda tx: tx.execute("SELECT name, color FROM item").fetchall())
        assert rows == [("a", "red")]
        assert await world.db.read(lambda tx: tx.execute("PRAGMA user_version").fetchone()) == (2,)


async def test_a_failed_migration_leaves_the_directory_unchanged(directory: Path) -> None:
    def half(tx: Tx) -> None:
        add_color(tx)
        raise Refused("half")

    async with open_world("file", directory) as world:
        await world.db.write(insert("a"))
    with pytest.raises(Refused):
        async with open_world("file", directory, (*MIGRATIONS, Migration(2, half))):
            pass
    async with open_world("file", directory) as world:
        assert await world.names() == ["a"]


async def test_after_a_failed_first_opening_the_directory_can_be_opened(directory: Path) -> None:
    def fail(tx: Tx) -> None:
        create_table(tx)
        raise Refused("first")

    with pytest.raises(Refused):
        async with open_world("file", directory, (Migration(1, fail),)):
            pass
    async with open_world("file", directory) as world:
        assert await world.names() == []


async def test_a_migration_is_refused_while_another_handle_is_open(directory: Path) -> None:
    async with open_world("file", directory) as world:
        with pytest.raises(DirectoryInUse):
            async with open_world("file", directory, NEWER, DatabaseTimeouts(format_wait_ms=0)):
                pass
        assert await world.db.read(names) == []


async def test_opening_during_a_long_last_close_says_that_the_directory_is_in_use(directory: Path) -> None:
    async with open_world("file", directory):
        pass
    closing = FormatLock(directory / "format.lock")
    try:
        assert closing.try_exclusive()  # as the last handle does while it copies the log into the file
        with pytest.raises(DirectoryInUse):
            async with open_world("file", directory, timeouts=DatabaseTimeouts(format_wait_ms=0)):
                pass
    finally:
        closing.close()
    async with open_world("file", directory) as world:
        assert await world.db.read(names) == []


def test_migrations_are_numbered_without_gaps() -> None:
    with pytest.raises(AssertionError, match=r"\[1, 3\]"):
        check_numbers([Migration(1, create_table), Migration(3, create_table)])


async def test_a_relative_path_is_resolved_when_the_database_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with open_world("file", Path("store")) as world:
        monkeypatch.chdir("/")
        await world.db.write(insert("a"))
        assert await world.names() == ["a"]


async def test_an_impossible_path_is_refused_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(StoreUnusable, match="File name too long"):
        async with open_database(tmp_path / ("long" * 100), migrations=MIGRATIONS):
            pass
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(StoreUnusable, match=r"^\.: cannot be used: No such file"):
        async with open_database(Path(), migrations=MIGRATIONS):
            pass
