"""Failed and cancelled opening or closing leaves no file of the directory open, and never hangs."""

from __future__ import annotations

import asyncio
import errno
import itertools
import os
import threading
import types
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from eventproc.base.clock import SystemClock
from eventproc.base.tasks import run_uninterrupted
from eventproc.store.database import DatabaseTimeouts, Migration, Tx, instances
from eventproc.store.database.connections import READERS_COUNT
from eventproc.store.database.locks import WriteLock
from eventproc.store.model.errors import (
    Closed,
    DiskFull,
    StoreUnusable,
)
from tests.database.support import MIGRATIONS, files_at_most, insert, names, open_database, open_world


async def test_opening_on_a_full_disk_raises_disk_full(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_world("file", directory):
        pass
    before = open_files()

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "mkfifo", refuse)
    with pytest.raises(DiskFull, match=str(directory)):
        async with open_database(directory, migrations=MIGRATIONS):
            pass
    assert open_files() <= before
    assert instances.live_ids(directory) == []


async def test_a_read_that_waits_when_the_database_closes_raises_closed(directory: Path) -> None:
    entered, leave = threading.Semaphore(0), threading.Event()

    def slow(tx: Tx) -> str:
        entered.release()
        assert leave.wait(60)
        return "read"

    async def read(seen: list[object]) -> None:
        try:
            seen.append(await world.db.read(slow))
        except Closed as why:
            seen.append(why.what)
            if len(seen) == 2:
                leave.set()

    seen: list[object] = []
    async with anyio.create_task_group() as tasks, open_world("file", directory) as world:
        for _ in range(READERS_COUNT + 2):
            tasks.start_soon(read, seen)
        for _ in range(READERS_COUNT):
            await anyio.to_thread.run_sync(entered.acquire)
        await anyio.wait_all_tasks_blocked()
    assert sorted(map(str, seen)) == ["read"] * READERS_COUNT + ["the database"] * 2


async def test_reads_that_wait_are_run_while_the_event_loop_is_busy(directory: Path) -> None:
    entered, last = threading.Event(), threading.Event()
    order: list[int] = []

    def read(tx: Tx, number: int) -> None:
        assert entered.wait(60)
        order.append(number)
        if len(order) == READERS_COUNT + 3:
            last.set()

    async with open_world("file", directory) as world:
        reading = [
            asyncio.ensure_future(world.db.read(partial(read, number=number)))
            for number in range(READERS_COUNT + 3)
        ]
        await anyio.wait_all_tasks_blocked()
        entered.set()
        assert last.wait(60), "they wait for the event loop"
        await asyncio.gather(*reading)


async def test_closing_that_leaves_a_waiting_write_releases_the_directory_after_it(directory: Path) -> None:
    async with open_world("file", directory, timeouts=DatabaseTimeouts(close_wait_ms=1)) as world:
        held = WriteLock(directory / "write.lock", SystemClock())
        held.acquire()
        writing = asyncio.ensure_future(world.db.write(insert("a")))
        await anyio.wait_all_tasks_blocked()
    assert instances.live_ids(directory) == [world.db.instance_id]
    held.close()
    assert await writing == "a"
    while instances.live_ids(directory):
        await anyio.lowlevel.checkpoint()
    async with open_database(directory, migrations=[*MIGRATIONS, Migration(2, lambda tx: None)]):
        pass  # a migration needs the directory exclusively


def test_closing_behind_a_waiting_write_outlives_the_event_loop(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uncaught: list[object] = []
    monkeypatch.setattr(threading, "excepthook", uncaught.append)
    held: list[WriteLock] = []
    before = threading.enumerate()

    async def main() -> None:
        async with open_world("file", directory, timeouts=DatabaseTimeouts(close_wait_ms=1)) as world:
            held.append(WriteLock(directory / "write.lock", SystemClock()))
            held[0].acquire()
            writing = asyncio.ensure_future(world.db.write(insert("a")))
            await anyio.wait_all_tasks_blocked()
        writing.cancel()

    asyncio.run(main())
    held[0].close()
    for thread in set(threading.enumerate()) - set(before):
        thread.join(60)
    assert instances.live_ids(directory) == []
    assert uncaught == []


@pytest.mark.parametrize("times", [1, 3])
async def test_cancelled_opening_or_closing_leaves_nothing_open(directory: Path, times: int) -> None:
    async def use() -> None:
        async with open_database(directory, migrations=MIGRATIONS) as db:
            assert await db.read(names) == []

    await use()
    before = open_files()
    number = 0
    while True:
        task = asyncio.ensure_future(interrupted(use(), range(number, number + times)))
        await asyncio.wait([task])
        assert open_files() <= before
        assert instances.live_ids(directory) == []
        if not task.cancelled():
            break
        number += 1
    assert number >= 3


def test_end_of_the_loop_during_opening_or_closing_leaves_nothing_open(directory: Path) -> None:
    opened = threading.Event()

    async def use() -> None:
        async with open_database(directory, migrations=MIGRATIONS) as db:
            opened.set()
            await db.read(names)

    async def main(turns: int) -> None:
        task = asyncio.ensure_future(use())
        for _ in range(turns):
            await anyio.lowlevel.checkpoint()
        del task  # the end of the loop ends all of its tasks

    asyncio.run(use())
    before = open_files()
    opened.clear()
    turns = 1
    while not opened.is_set():
        asyncio.run(main(turns))
        assert open_files() <= before
        assert instances.live_ids(directory) == []
        turns *= 2
    assert turns > 2


async def test_an_error_after_a_cancellation_is_its_cause() -> None:
    async def fail() -> None:
        await anyio.lowlevel.checkpoint()
        raise ZeroDivisionError

    task = asyncio.ensure_future(interrupted(run_uninterrupted(fail), range(1)))
    await asyncio.wait([task])
    with pytest.raises(asyncio.CancelledError) as caught:
        await task
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


@types.coroutine
def interrupted(work: Coroutine[object, None, None], at: range) -> Generator[object, None, None]:
    """Run `work` in a task that is cancelled at its waits with the numbers `at`, counted from 0."""
    step: Callable[[], object] = partial(work.send, None)
    for number in itertools.count():
        try:
            waiting = step()
        except StopIteration:
            return
        if number in at:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
        try:
            yield waiting
        except BaseException as why:
            step = partial(work.throw, why)
        else:
            step = partial(work.send, None)


async def test_opening_with_too_few_descriptors_fails_and_leaves_nothing_open(directory: Path) -> None:
    async with open_world("file", directory) as world:
        await world.db.write(insert("a"))
    before = open_files()
    seen: list[str] = []
    found: list[str] = []
    while not found:
        with files_at_most(len(seen)):
            try:
                async with open_database(directory, migrations=MIGRATIONS) as db:
                    found = await db.read(names)
            except StoreUnusable as why:
                seen.append(str(why))
        assert len(open_files() - before) <= 1, (
            "the guard's, kept until no connection can be harmed by its close"
        )
    assert found == ["a"]
    assert open_files() == before
    assert len(seen) > 10
    assert all("(ulimit -n)" in each for each in seen)


def open_files() -> set[int]:
    """Return the descriptors of this process, including that of the listing itself."""
    return {int(path.name) for path in Path("/dev/fd").iterdir()}
