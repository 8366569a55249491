"""Lone brief writes of a synced database: the event loop waits for them, but neither for long nor beside other work."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path

import anyio
import pytest

import eventproc
from eventproc.store.database import Tx, writer as writer_module
from eventproc.store.database.commit_batch import BatchCommitter, CommitBatch, JobQueue
from eventproc.store.database.file_database import FileDatabase
from eventproc.store.faults import WRITE_COMMIT
from tests.database.support import World, insert, names, open_world

LONG_MS = 60_000


@pytest.fixture
async def world(directory: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    for limit in ("ALONE_MS_MAX", "ALONE_TURN_MS_MAX", "SYNC_WAIT_MS_MAX"):
        monkeypatch.setattr(writer_module, limit, LONG_MS)
    async with open_world("file", directory) as world:
        await world.db.write(insert("first"), brief=True)
        yield world


async def turns_during(world: World, fn: Callable[[Tx], object], *, brief: bool = True) -> int:
    """Write, and return how many turns of the event loop other callbacks got meanwhile."""
    loop, turns, written = asyncio.get_running_loop(), 0, False

    def turn() -> None:
        nonlocal turns
        if not written:
            turns += 1
            loop.call_soon(turn)

    loop.call_soon(turn)
    await world.db.write(fn, brief=brief)
    written = True
    return turns


async def test_event_loop_waits_with_a_lone_brief_write(world: World) -> None:
    assert await turns_during(world, insert("second")) == 0
    assert await turns_during(world, insert("third"), brief=False) > 0
    assert await world.db.read(names) == ["first", "second", "third"]


async def test_event_loop_does_not_wait_while_another_caller_does(world: World) -> None:
    held, goes_on = anyio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def slow(tx: Tx) -> None:
        loop.call_soon_threadsafe(held.set)
        assert goes_on.wait(60)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(world.db.write, slow)
        await held.wait()  # the job is not in the queue any more
        loop.call_later(0.01, goes_on.set)
        assert await turns_during(world, insert("second")) > 0


async def test_event_loop_goes_on_when_the_commit_takes_long_and_does_not_wait_for_the_next(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "SYNC_WAIT_MS_MAX", 1)
    goes_on = threading.Event()

    def slow(tx: Tx) -> None:
        assert goes_on.wait(60)

    asyncio.get_running_loop().call_soon(goes_on.set)
    assert await turns_during(world, slow) > 0
    assert await turns_during(world, insert("second")) > 0


async def test_event_loop_does_not_wait_while_other_tasks_are_busy(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(world.db, FileDatabase)
    world.db._writer._alone_until = 0
    monkeypatch.setattr(writer_module, "ALONE_TURN_MS_MAX", -1)
    assert await turns_during(world, insert("second")) > 1  # one was given to them to see whether they are


async def test_brief_writes_of_many_tasks_share_commits(world: World) -> None:
    assert isinstance(world.db, FileDatabase)
    world.db._writer._alone_until = 0
    before = world.faults.reached.count(WRITE_COMMIT)
    async with anyio.create_task_group() as tasks:
        for number in range(50):
            tasks.start_soon(partial(world.db.write, insert(f"{number:02}"), brief=True))
    assert world.faults.reached.count(WRITE_COMMIT) - before <= 3
    assert len(await world.db.read(names)) == 51


async def test_writes_and_transactions_of_many_tasks_share_commits_of_a_synced_directory(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits: list[CommitBatch] = []
    run_batch = BatchCommitter.run_batch

    def counted(committer: BatchCommitter, queue: JobQueue) -> CommitBatch:
        commits.append(run_batch(committer, queue))
        return commits[-1]

    async with eventproc.open(directory) as ep:
        await ep.create_scope("scope")
        stream = await ep.create_stream("scope/stream")

        async def write() -> None:
            for _ in range(10):
                await writer.write(b"event", key="key")

        async def transact() -> None:
            for _ in range(10):
                async with stream.transaction() as txn:
                    await txn.write(b"event", key="key")

        async with stream.writer() as writer:
            monkeypatch.setattr(BatchCommitter, "run_batch", counted)
            for task in (write, transact):
                commits.clear()
                async with anyio.create_task_group() as tasks:
                    for _ in range(20):
                        tasks.start_soon(task)
                assert len(commits) < 50, "of 200 writes"
