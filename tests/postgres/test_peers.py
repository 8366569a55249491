"""What the openings of a store on a server know of each other."""

from __future__ import annotations

import os
import resource
import threading
from collections.abc import AsyncIterator, Callable

import anyio
import psycopg
import pytest

import eventproc
from eventproc import errors
from eventproc.testing import VirtualClock
from tests.support.postgres import Server

pytestmark = pytest.mark.subprocess

DESCRIPTORS_OF_SELECT = 1024


class StoppedClock(VirtualClock):
    """A clock that stands still, so that no look at the other openings is due."""

    def monotonic_ms(self) -> int:
        return 0


class FailingClock(VirtualClock):
    """A clock that fails on the thread of the peers once it is broken."""

    broken = False

    def monotonic_ms(self) -> int:
        if self.broken and threading.current_thread().name == "eventproc peers":
            raise LookupError("a bug")
        return super().monotonic_ms()


async def until(holds: Callable[[], bool]) -> None:
    """Wait until something holds that the server is asked for once a second."""
    with anyio.fail_after(30):
        while not holds():  # noqa: ASYNC110  # nothing signals it
            await anyio.sleep(0.1)


async def use_without_end(ep: eventproc.Eventproc) -> None:
    while True:
        await ep.scopes()


@pytest.fixture
async def many_files() -> AsyncIterator[None]:
    """A process in which new descriptors have higher numbers than `select` takes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2 * DESCRIPTORS_OF_SELECT), hard))
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(DESCRIPTORS_OF_SELECT)]
    yield
    for each in opened:
        os.close(each)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_files")
async def test_process_with_many_files_notices_deaths_and_commits(url: str) -> None:
    async with eventproc.open(url) as one:
        two = await eventproc.open(url, host=False)
        await one.create_scope("s")
        stream = await one.create_stream("s/t")
        async with stream.reader() as reader, (await two.stream("s/t")).writer() as writer:
            await writer.write(b"1")
            with anyio.fail_after(30):
                assert (await anext(aiter(reader))).payload == b"1"
        gone = two.db.instance_id
        await two.close()
        await until(lambda: not one.db.peers.is_alive(gone))


async def test_notification_that_arrives_during_a_statement_wakes_a_reader(url: str, server: Server) -> None:
    async with eventproc.open(url) as ep:
        await ep.create_scope("s")
        await ep.create_stream("s/t")
    beats = f"{url.rpartition('=')[2]}.beat"
    waiting = f"SELECT count(*) FROM pg_locks WHERE relation = '{beats}'::regclass AND NOT granted"
    async with (
        eventproc.open(url, host=False) as one,
        eventproc.open(url, host=False, clock=StoppedClock(2)) as two,
        (await one.stream("s/t")).writer() as writer,
        (await two.stream("s/t")).reader() as reader,
        anyio.create_task_group() as tasks,
    ):
        received = anyio.Event()

        async def receive() -> None:
            await anext(aiter(reader))
            received.set()

        tasks.start_soon(receive)
        with psycopg.connect(server.url) as holder:
            holder.execute(f"LOCK TABLE {beats} IN EXCLUSIVE MODE".encode())
            two.db.peers.beat("some").write(1)
            await until(lambda: server.execute(waiting) == [(1,)])
            await writer.write(b"1")
            await until(one.db.peers.try_lock("tried after the notification").try_acquire)
        with anyio.fail_after(30):
            await received.wait()


async def test_lock_that_is_to_be_released_is_not_held(url: str) -> None:
    async with eventproc.open(url, host=False) as one, eventproc.open(url, host=False) as two:
        mine, theirs = one.db.peers.try_lock("some"), two.db.peers.try_lock("some")
        await until(mine.try_acquire)
        mine.release()
        assert not mine.held
        await until(theirs.try_acquire)
        assert not mine.try_acquire()


async def test_opening_whose_thread_failed_stops_and_is_dead_to_others(url: str) -> None:
    async with eventproc.open(url) as one:
        clock = FailingClock(1)
        two = await eventproc.open(url, host=False, clock=clock)
        await one.create_scope("s")
        clock.broken = True
        with anyio.fail_after(30), pytest.raises(errors.DatabaseStopped, match="a bug"):
            await use_without_end(two)
        await until(lambda: not one.db.peers.is_alive(two.db.instance_id))
        await two.close()


async def test_row_of_a_live_opening_does_not_become_old(url: str, server: Server) -> None:
    opening = f"{url.rpartition('=')[2]}.opening"
    async with eventproc.open(url, host=False):
        server.execute(f"UPDATE {opening} SET at_ms = 0")
        await until(lambda: server.execute(f"SELECT count(*) FROM {opening} WHERE at_ms > 0") == [(1,)])


async def test_openings_that_create_a_store_together_all_open_it(url: str) -> None:
    opened: list[eventproc.Eventproc] = []

    async def open_it() -> None:
        opened.append(await eventproc.open(url, host=False))

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:  # none of them closes before all are open
            for _ in range(4):
                tasks.start_soon(open_it)
    for each in opened:
        await each.close()
