"""Brief writes that run on the event loop, where commits do not wait for the disk."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import AsyncIterator
from contextlib import closing
from functools import partial
from pathlib import Path

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from eventproc.store.database import Database, Durability, Tx, Watch, writer as writer_module
from eventproc.store.database.file_database import FileDatabase
from eventproc.store.database.guard import read_record
from tests.database.support import MIGRATIONS, insert, names, open_database


@pytest.fixture
async def db(directory: Path) -> AsyncIterator[Database]:
    async with open_database(directory, migrations=MIGRATIONS, durability=Durability.OS) as db:
        await db.write(insert("first"))  # the thread marks the log
        await db.write(insert("second"))
        await thread_is_idle(db)  # until then it would also take the first job of a test
        yield db


async def thread_is_idle(db: Database) -> None:
    assert isinstance(db, FileDatabase)
    idle = threading.Event()
    db._writer._connection.post(idle.set)
    await anyio.to_thread.run_sync(idle.wait)


def thread_name(tx: Tx) -> str:
    return threading.current_thread().name


@pytest.mark.linux
async def test_lone_brief_write_runs_on_the_event_loop(db: Database) -> None:
    here = threading.current_thread().name
    assert await db.write(thread_name, brief=True) == here
    assert await db.write(thread_name) != here
    assert await db.write(thread_name, brief=True, size_bytes=writer_module.INLINE_BYTES_MAX + 1) != here


async def test_brief_write_of_a_synced_database_runs_on_the_thread(directory: Path) -> None:
    async with open_database(directory, migrations=MIGRATIONS) as db:
        await db.write(insert("first"))
        assert await db.write(thread_name, brief=True) != threading.current_thread().name


async def test_brief_writes_of_many_tasks_keep_the_order_of_their_calls(db: Database) -> None:
    async with anyio.create_task_group() as tasks:
        for number in range(30):
            fn = insert(f"{number:02}")
            tasks.start_soon(partial(db.write, fn, brief=number % 3 > 0))
    rows = await db.read(lambda tx: tx.execute("SELECT name FROM item ORDER BY rowid").fetchall())
    assert [name for (name,) in rows] == ["first", "second", *(f"{number:02}" for number in range(30))]


async def test_cancelled_brief_write_that_waits_never_runs_and_later_ones_do(db: Database) -> None:
    with anyio.CancelScope() as scope:
        scope.cancel()
        await db.write(insert("cancelled"), brief=True)
    await db.write(insert("third"), brief=True)
    assert await db.read(names) == ["first", "second", "third"]


async def test_failed_brief_write_raises_and_changes_nothing(db: Database) -> None:
    def fail(tx: Tx) -> None:
        insert("failed")(tx)
        raise LookupError("no")

    with pytest.raises(LookupError):
        await db.write(fail, brief=True)
    await db.write(insert("third"), brief=True)
    assert await db.read(names) == ["first", "second", "third"]


async def test_effects_of_a_brief_write_run_before_its_caller_continues(db: Database) -> None:
    for number in range(300):  # some on the event loop, some on the thread
        seen: list[str] = []

        def write(tx: Tx, number: int = number, seen: list[str] = seen) -> None:
            insert(f"{number} {' ' * 8_000}")(tx)
            tx.after(lambda: seen.append("effect"))

        await db.write(write, brief=True)
        assert seen == ["effect"]


@pytest.mark.linux
async def test_thread_commits_after_a_slow_commit_on_the_event_loop(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = threading.current_thread().name
    monkeypatch.setattr(writer_module, "INLINE_MS_MAX", -1)
    waits = iter(range(1_000))
    monkeypatch.setattr(writer_module, "thread_waits", lambda: next(waits))
    assert await db.write(thread_name, brief=True) == here
    assert await db.write(thread_name, brief=True) != here


async def test_thread_commits_while_another_process_may_hold_the_lock(directory: Path, db: Database) -> None:
    here = threading.current_thread().name
    async with open_database(directory, migrations=MIGRATIONS) as other:
        holds, release = threading.Event(), threading.Event()
        ran_on: list[str] = []

        def hold(tx: Tx) -> None:
            holds.set()
            release.wait()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(other.write, hold)
            await anyio.to_thread.run_sync(holds.wait)

            async def write() -> None:
                ran_on.append(await db.write(thread_name, brief=True))

            tasks.start_soon(write)
            await anyio.wait_all_tasks_blocked()
            assert not ran_on
            release.set()
        assert ran_on != [here]


@pytest.mark.linux
async def test_commits_of_the_event_loop_are_recorded_and_found_by_new_instances(
    directory: Path, db: Database
) -> None:
    async with open_database(directory, migrations=MIGRATIONS) as other:
        with other.subscribe([Watch("item", lambda tx: len(names(tx)))]) as changes:
            await db.write(insert("third"), brief=True)
            await changes.wait(30_000)
        before = read_record(directory)
        await db.write(insert("fourth"), brief=True)
        while read_record(directory) == before:
            await anyio.lowlevel.checkpoint()


async def test_long_run_of_brief_writes_is_checkpointed(directory: Path, db: Database) -> None:
    before = (directory / "eventproc.db").stat().st_size
    for number in range(400):
        await db.write(insert(f"{number:015000}"), brief=True, size_bytes=15_000)
    await db.write(lambda tx: None)  # behind the checkpoints of the thread
    assert (directory / "eventproc.db").stat().st_size > before + 2**20
    with closing(sqlite3.connect(directory / "eventproc.db")) as connection:
        assert connection.execute("SELECT count(*) FROM item").fetchone() == (402,)
