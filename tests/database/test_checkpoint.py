"""Checkpoints keep the log small, and the warning names the reader that keeps it large."""

from __future__ import annotations

import os
import shutil
import sqlite3
import threading
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import anyio
import pytest

from eventproc.store.database import Tx
from eventproc.store.database.checkpoint import Checkpointer
from eventproc.store.database.connections import PAGE_BYTES
from eventproc.store.database.file_database import FileDatabase
from eventproc.store.faults import CHECKPOINT, WRITE_COMMIT
from eventproc.store.model.errors import DatabaseStopped
from tests.database.support import READER, World, insert, names, open_world
from tests.support.child_process import ChildProcess

LARGE = "x" * (4 * PAGE_BYTES)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with open_world("file", tmp_path / "store") as world:
        checkpointer = checkpointer_of(world)
        checkpointer.checkpoint_bytes = 32 * PAGE_BYTES
        yield world


def checkpointer_of(world: World) -> Checkpointer:
    assert isinstance(world.db, FileDatabase)
    return world.db._writer.checkpointer


async def write_pages(world: World, batches: int) -> None:
    for number in range(batches):
        await world.db.write(insert(f"{len(world.faults.reached)} {number} {LARGE}"))
    await world.db.write(lambda tx: None)  # the checkpoint after the last batch has ended


def log_pages(world: World) -> int:
    assert world.db.path is not None
    return (world.db.path / "eventproc.db-wal").stat().st_size // PAGE_BYTES


async def test_small_commits_do_not_checkpoint(world: World) -> None:
    for name in "abc":
        await world.db.write(insert(name))
    assert CHECKPOINT not in world.faults.reached


@pytest.mark.linux
async def test_the_log_is_copied_in_time_and_used_again(world: World) -> None:
    await write_pages(world, 100)
    assert 5 < world.faults.reached.count(CHECKPOINT) < 60
    assert log_pages(world) < 3 * 32


@pytest.mark.linux
async def test_commits_that_rewrite_few_pages_are_checkpointed_by_the_length_of_the_log(world: World) -> None:
    checkpointer_of(world).log_bytes = 64 * PAGE_BYTES
    for number in range(150):
        await world.db.write(insert(f"{number}"))
    await world.db.write(lambda tx: None)
    assert 1 < world.faults.reached.count(CHECKPOINT) <= 150 * 3 // 64
    assert log_pages(world) < 2 * 64


async def test_a_log_that_was_copied_into_the_file_may_be_cut_by_another_program(
    world: World, tmp_path: Path
) -> None:
    checkpointer_of(world).under_lock = True
    checkpointer_of(world).checkpoint_bytes = PAGE_BYTES
    directory = world.db.path
    assert directory is not None
    await write_pages(world, 1)
    with closing(sqlite3.connect(directory / "eventproc.db")) as connection:
        assert connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone() == (0, 0, 0)
    shutil.copytree(directory, tmp_path / "copy", ignore=shutil.ignore_patterns("instances"))
    # File times advance in steps: the checkpoint may have the time of the record.
    changed_ns = (tmp_path / "copy" / "log.record").stat().st_mtime_ns
    os.utime(tmp_path / "copy" / "eventproc.db", ns=(changed_ns, changed_ns))
    async with open_world("file", tmp_path / "copy") as copy:
        assert len(await copy.db.read(names)) == 1


async def test_without_shm_checkpoints_follow_the_bytes_written(world: World) -> None:
    checkpointer_of(world).shm_fd = None
    for number in range(20):
        await world.db.write(insert(f"{number}"), size_bytes=8 * PAGE_BYTES)
    assert (
        world.faults.reached.count(CHECKPOINT) == 6
    )  # every third batch: 8 pages plus the estimate for each


@pytest.mark.linux
@pytest.mark.subprocess
async def test_a_long_read_that_keeps_the_log_too_large_is_named(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    checkpointer_of(world).truncate_bytes = 64 * PAGE_BYTES
    assert world.db.path is not None
    with ChildProcess.running(READER, world.db.path / "eventproc.db") as reader:
        assert reader.hear() == "reading"
        await write_pages(world, 60)
        assert log_pages(world) > 64
        assert world.faults.reached.count(CHECKPOINT) < 40  # not after every batch
        warnings = [record.getMessage() for record in caplog.records if "has grown to" in record.getMessage()]
        assert len(warnings) == 1
        assert f"process {reader.pid} " in warnings[0]
        reader.say("stop")
        assert reader.hear() == ""
    await write_pages(world, 60)
    assert log_pages(world) < 64


async def test_the_file_is_cut_to_its_database_once_no_read_needs_the_rest(world: World) -> None:
    entered, leave = threading.Event(), threading.Event()
    assert world.db.path is not None
    file = world.db.path / "eventproc.db"

    def slow(tx: Tx) -> int:
        found = len(names(tx))
        entered.set()
        assert leave.wait(60)
        return found + len(names(tx))

    def shrink(tx: Tx) -> int:
        (free,) = tx.execute("PRAGMA freelist_count").fetchone()
        return int(free) - tx.vacuum(int(free), ms=60_000)

    await write_pages(world, 20)
    assert await world.db.shorten()
    size = file.stat().st_size
    found: list[int] = []
    async with anyio.create_task_group() as tasks:

        async def read() -> None:
            found.append(await world.db.read(slow))

        tasks.start_soon(read)
        await anyio.to_thread.run_sync(entered.wait)
        await world.db.write(lambda tx: tx.execute("DELETE FROM item"))
        assert await world.db.write(shrink) == 0
        assert not await world.db.shorten()
        assert file.stat().st_size >= size
        leave.set()
    assert found == [40]
    assert await world.db.shorten()
    assert file.stat().st_size <= size - 20 * len(LARGE)


async def test_a_failed_checkpoint_is_logged_and_tried_again(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.faults.fail_at(CHECKPOINT, sqlite3.OperationalError("disk I/O error"))
    await world.db.write(insert(LARGE * 20))
    await write_pages(world, 20)
    assert "the checkpoint failed (disk I/O error)" in caplog.text
    assert world.faults.reached.count(CHECKPOINT) > 1


@pytest.mark.linux
async def test_a_death_at_a_checkpoint_loses_nothing_acknowledged(world: World) -> None:
    world.faults.fail_at(CHECKPOINT)
    await world.db.write(insert(LARGE * 20))
    with pytest.raises(DatabaseStopped):
        await world.db.write(insert("b"))
    assert await world.names() == [LARGE * 20]
    assert world.faults.reached.count(WRITE_COMMIT) == 1


async def test_pages_of_a_long_log_are_counted_once_each(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page_bytes, path = 512, tmp_path / "small_pages.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA page_size = {page_bytes}")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute("CREATE TABLE item (name)")
        for _ in range(3):
            connection.execute("INSERT INTO item VALUES (?)", ("x" * 3_000 * page_bytes,))
        wal = (tmp_path / "small_pages.db-wal").read_bytes()
        frames = range(32, len(wal), 24 + page_bytes)
        assert len(frames) > 2 * 4_096  # their pages lie in three blocks of `-shm`
        shm_fd = os.open(tmp_path / "small_pages.db-shm", os.O_RDONLY)
        with monkeypatch.context() as patch:
            patch.setattr(checkpointer_of(world), "shm_fd", shm_fd)
            for seen in (10, 4_061, 4_063, 8_157, len(frames)):
                checkpointer_of(world).frames_seen = seen
                checkpointer_of(world)._count_pages()
        os.close(shm_fd)
    assert checkpointer_of(world).pages_due == {int.from_bytes(wal[at : at + 4], "big") for at in frames}
