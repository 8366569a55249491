"""Commits of several processes at once: those of other streams go on beside one that is under way, no others do."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

import anyio
import psycopg
import pytest

import eventproc
from eventproc.testing import check
from tests.support.postgres import Server

pytestmark = pytest.mark.subprocess

COUNT = 40


@contextmanager
def append_held(server: Server, schema: str, stream_id: int) -> Iterator[None]:
    """Let the first append to a stream wait in the middle of its commit, until the end of the block."""
    with psycopg.connect(server.url) as raw:
        raw.execute("SELECT set_config('search_path', %s, false)", (schema,))
        raw.execute(
            "INSERT INTO extent (stream_id, segment, start, length, first_number, count, first_time, last_time)"
            " VALUES (%s, 0, 0, 1, 0, 1, 0, 0)",
            (stream_id,),
        )
        yield
        raw.rollback()


def fork() -> int:
    """Fork a child that ends; return how it ended."""
    if (pid := os.fork()) == 0:
        os._exit(0)
    return os.waitpid(pid, 0)[1]


async def wait_for_locks(server: Server, event: str) -> None:
    """Return when a process of the server waits for a lock of that kind."""
    waiting = f"SELECT pid FROM pg_stat_activity WHERE wait_event = '{event}'"
    while not await anyio.to_thread.run_sync(server.execute, waiting):
        pass


async def are_waiting(ep: eventproc.Eventproc, kind: str, count: int) -> None:
    """Return when so many locks of that kind are waited for."""
    waiting = "SELECT pid FROM pg_locks WHERE NOT granted AND locktype = ?"
    with anyio.fail_after(30):
        while len(await ep.query(waiting, (kind,))) < count:
            pass


async def test_only_commits_of_other_streams_go_on_beside_one(url: str, server: Server) -> None:
    done: list[str] = []

    async def write(ep: eventproc.Eventproc, name: str) -> None:
        async with (await ep.stream(name)).writer() as writer:
            await writer.write(name.encode())
        done.append(name)

    async def create(ep: eventproc.Eventproc) -> None:
        await ep.create_scope("other")
        done.append("other")

    async with (
        eventproc.open(url) as one,
        eventproc.open(url) as two,
        eventproc.open(url) as three,
        eventproc.open(url) as four,
    ):
        await one.create_scope("s")
        for name in ("s/a", "s/b"):
            await one.create_stream(name)
        stream_id = (await (await one.stream("s/a")).describe()).stream_id
        async with anyio.create_task_group() as tasks:
            with append_held(server, url.rpartition("=")[2], stream_id):
                tasks.start_soon(write, one, "s/a")
                await are_waiting(four, "transactionid", 1)
                await write(two, "s/b")
                tasks.start_soon(write, two, "s/a")
                await are_waiting(four, "advisory", 1)
                tasks.start_soon(create, three)
                await are_waiting(four, "advisory", 2)
                assert done == ["s/b"]
        assert sorted(done) == ["other", "s/a", "s/a", "s/b"]
        await check(four.db)


async def test_writers_of_many_openings_lose_nothing_and_keep_their_order(url: str) -> None:
    names = ("s/a", "s/b", "s/c")

    async def write(ep: eventproc.Eventproc, number: int) -> None:
        async with anyio.create_task_group() as tasks:
            for name in names:
                tasks.start_soon(write_to, ep, name, f"w{number}")

    async def write_to(ep: eventproc.Eventproc, name: str, key: str) -> None:
        async with (await ep.stream(name)).writer() as writer:
            for each in range(COUNT):
                await writer.write(b"%d" % each, key=key)

    async with eventproc.open(url) as one, eventproc.open(url) as two, eventproc.open(url) as three:
        await one.create_scope("s")
        for name in names:
            await one.create_stream(name)
        async with anyio.create_task_group() as tasks:
            for number, ep in enumerate((one, two, three)):
                tasks.start_soon(write, ep, number)
            [segment] = await (await two.stream("s/b")).segments()
            await (await two.stream("s/b")).split(segment.id)
        for name in names:
            found: dict[str | None, list[int]] = {}
            stream = await three.stream(name)
            async with stream.reader() as reader:
                async for event in reader.until(await stream.tail()):
                    found.setdefault(event.key, []).append(int(event.payload))
            assert found == {f"w{number}": list(range(COUNT)) for number in range(3)}
        await check(one.db)


async def test_write_that_waits_for_long_is_warned_of_once(
    url: str, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    def warned() -> list[str]:
        return [text for text in caplog.messages if "writes have been waiting" in text]

    async with eventproc.open(url) as ep:
        with psycopg.connect(server.url) as holder, anyio.fail_after(30):
            holder.execute(f"LOCK TABLE {url.rpartition('=')[2]}.opening".encode())
            with caplog.at_level(logging.WARNING):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(ep.create_scope, "s")
                    while not warned():  # noqa: ASYNC110  # the log signals nothing
                        await anyio.sleep(0.1)
                    holder.rollback()
        await ep.create_scope("t")
        assert len(warned()) == 1


async def test_fork_does_not_wait_for_a_read_that_waits_for_the_server(url: str, server: Server) -> None:
    async with eventproc.open(url, host=False) as ep:
        with psycopg.connect(server.url) as holder, anyio.fail_after(60):
            holder.execute(f"LOCK TABLE {url.rpartition('=')[2]}.meta".encode())
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ep.query, "SELECT * FROM meta")
                await wait_for_locks(server, "relation")
                assert await anyio.to_thread.run_sync(fork) == 0
                holder.rollback()
