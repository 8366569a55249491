"""The write path of the file form: the queue, the lock between processes, cancellation, and the thread."""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from eventproc.store.database import DatabaseTimeouts, Tx
from eventproc.store.faults import WRITE_COMMIT
from eventproc.store.model.errors import DatabaseStopped, LockHeld
from tests.database.support import (
    MIGRATIONS,
    World,
    files_at_most,
    insert,
    insert_then_raise,
    open_database,
    open_world,
)
from tests.support.child_process import ChildProcess

HOLDER = """
    import sys
    from pathlib import Path
    from eventproc.base.clock import SystemClock
    from eventproc.store.database.locks import WriteLock
    lock = WriteLock(Path(sys.argv[1]) / "write.lock", SystemClock())
    lock.acquire()
    print("held", flush=True)
    sys.stdin.readline()
    lock.release()
    print("released", flush=True)
"""


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with open_world("file", tmp_path / "store") as world:
        yield world


@pytest.mark.subprocess
async def test_a_write_behind_a_held_lock_fails_at_its_deadline_with_the_pid(world: World) -> None:
    with ChildProcess.running(HOLDER, world.db.path) as holder:
        assert holder.hear() == "held"
        with pytest.raises(LockHeld) as caught:
            await world.db.write(insert("a"), timeout_ms=30)
        assert caught.value.pid == holder.pid
        assert caught.value.for_ms >= 30
        holder.say("release")
        assert holder.hear() == "released"
        assert await world.db.write(insert("b")) == "b"
    assert await world.names() == ["b"]


@pytest.mark.subprocess
async def test_a_deadline_holds_if_the_holder_cannot_be_determined(world: World) -> None:
    assert world.db.path is not None
    with ChildProcess.running(HOLDER, world.db.path) as holder:
        assert holder.hear() == "held"
        with files_at_most(0), pytest.raises(LockHeld) as without_descriptors:
            await world.db.write(insert("a"), timeout_ms=30)
        (world.db.path / "write.lock").unlink()
        with pytest.raises(LockHeld) as without_file:
            await world.db.write(insert("b"), timeout_ms=30)
    assert (without_descriptors.value.pid, without_file.value.pid) == (None, None)


async def test_the_lock_is_taken_even_if_its_record_cannot_be_written(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", refuse)
    assert await world.db.write(insert("a")) == "a"


@pytest.mark.subprocess
async def test_a_lock_held_for_long_is_logged_once_with_the_pid(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_world("file", tmp_path / "store", timeouts=DatabaseTimeouts(lock_warn_ms=10)) as world:
        with ChildProcess.running(HOLDER, world.db.path) as holder, caplog.at_level(logging.WARNING):
            assert holder.hear() == "held"
            for _ in range(3):
                with pytest.raises(LockHeld):
                    await world.db.write(insert("a"), timeout_ms=50)
            holder.say("release")
            assert holder.hear() == "released"
            await world.db.write(insert("b"))
    warnings = [record.getMessage() for record in caplog.records if "held by process" in record.getMessage()]
    assert len(warnings) == 1
    assert str(holder.pid) in warnings[0]


class Gate:
    """A function that reports when it runs and continues when the test permits."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.leave = threading.Event()

    def fn(self, tx: Tx) -> str:
        self.entered.set()
        assert self.leave.wait(60)
        return insert("gate")(tx)

    async def wait_entered(self) -> None:
        await anyio.to_thread.run_sync(self.entered.wait)


async def test_asyncio_cancellation_is_raised_after_the_started_write_is_durable(
    world: World,
) -> None:
    gate, effects = Gate(), list[str]()

    def fn(tx: Tx) -> str:
        tx.after(lambda: effects.append("applied"))
        return gate.fn(tx)

    task = asyncio.ensure_future(world.db.write(fn))
    await gate.wait_entered()
    for _ in range(3):
        task.cancel()
        await anyio.lowlevel.checkpoint()
    assert not task.done()
    gate.leave.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert effects == ["applied"]
    assert await world.names() == ["gate"]


async def test_writes_that_arrive_during_a_batch_share_the_next_commit(world: World) -> None:
    gate = Gate()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(world.db.write, gate.fn)
        await gate.wait_entered()
        tasks.start_soon(world.db.write, insert("a"))
        tasks.start_soon(world.db.write, insert("b"))
        await anyio.wait_all_tasks_blocked()
        gate.leave.set()
    assert world.faults.reached.count(WRITE_COMMIT) <= 2
    assert await world.names() == ["a", "b", "gate"]


async def test_a_started_read_does_not_wait_for_a_running_write(world: World) -> None:
    gate = Gate()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(world.db.write, gate.fn)
        await gate.wait_entered()
        assert await world.names() == []
        gate.leave.set()


async def test_a_read_does_not_wait_behind_another_one(world: World) -> None:
    entered, leave = threading.Event(), threading.Event()

    def slow(tx: Tx) -> None:
        entered.set()
        assert leave.wait(60)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(world.db.read, slow)
        await anyio.to_thread.run_sync(entered.wait)
        assert await world.names() == []
        leave.set()


async def test_a_transaction_of_another_program_makes_writes_wait(world: World) -> None:
    assert world.db.path is not None
    stranger = sqlite3.connect(world.db.path / "eventproc.db", isolation_level=None)
    stranger.execute("BEGIN IMMEDIATE")
    with pytest.raises(LockHeld):
        await world.db.write(insert("a"), timeout_ms=20)
    stranger.execute("ROLLBACK")
    assert await world.db.write(insert("b")) == "b"
    stranger.close()
    assert await world.names() == ["b"]


def take_log_away(directory: Path, to: Path) -> None:
    (directory / "eventproc.db-wal").rename(to / "taken")


async def test_a_replaced_log_stops_the_database_before_the_acknowledgement(tmp_path: Path) -> None:
    async with open_world("file", tmp_path / "store") as world:
        await world.db.write(insert("a"))
        take_log_away(tmp_path / "store", tmp_path)
        with pytest.raises(DatabaseStopped, match="db-wal"):
            await world.db.write(insert("b"))
        with pytest.raises(DatabaseStopped):
            await world.db.write(insert("c"))


def test_callers_get_their_result_even_if_an_effect_is_interrupted(
    tmp_path: Path,
) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    def fn(tx: Tx) -> str:
        tx.after(interrupt)
        return insert("a")(tx)

    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        opening = open_database(tmp_path / "store", migrations=MIGRATIONS)
        db = loop.run_until_complete(opening.__aenter__())
        writing = asyncio.ensure_future(db.write(fn), loop=loop)
        with pytest.raises(KeyboardInterrupt):
            loop.run_until_complete(writing)
        assert loop.run_until_complete(writing) == "a"
        loop.run_until_complete(opening.__aexit__(None, None, None))


async def test_many_writers_lose_nothing_despite_cancellations_and_errors(world: World) -> None:
    done: set[str] = set()
    refused: set[str] = set()

    async def write(name: str, tasks_done: anyio.CancelScope) -> None:
        with tasks_done:
            if name.endswith("3"):
                with pytest.raises(Exception, match=name):
                    await world.db.write(insert_then_raise(name))
                refused.add(name)
            else:
                done.add(await world.db.write(insert(name)))

    scopes = [anyio.CancelScope() for _ in range(200)]
    async with anyio.create_task_group() as tasks:
        for number, scope in enumerate(scopes):
            tasks.start_soon(write, f"{number:03}", scope)
            if number % 7 == 6:
                await anyio.lowlevel.checkpoint()
                scopes[number - 1].cancel()
    cancelled = sum(scope.cancelled_caught for scope in scopes)
    assert len(done) + len(refused) + cancelled == len(scopes)
    assert set(await world.names()) == done
