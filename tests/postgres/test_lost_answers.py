"""What a store on a server does when statements are cancelled, connections break, and the server loses commits."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import anyio
import psycopg
import pytest

import eventproc
from eventproc import errors
from eventproc.testing import check
from tests.database.support import open_world
from tests.postgres.support import run_hook
from tests.support.postgres import Server, running_server
from tests.support.reading import payloads_of

pytestmark = pytest.mark.subprocess


async def use_without_end(ep: eventproc.Eventproc) -> None:
    while True:
        await ep.scopes()


async def waiting_for(server: Server, event: str, *, but: int = 0) -> int:
    """Return the process of the server that waits for something, when there is one."""
    waiting = f"SELECT pid FROM pg_stat_activity WHERE wait_event = '{event}' AND pid != {but}"
    with anyio.fail_after(30):
        while not (found := await anyio.to_thread.run_sync(server.execute, waiting)):
            pass
    pid: int = found[0][0]
    return pid


@pytest.mark.parametrize("then_fails", [False, True])
async def test_function_that_hides_a_lost_connection_runs_again(
    url: str, server: Server, then_fails: bool
) -> None:
    calls: list[int] = []

    def hide(tx: eventproc.AppTx) -> None:
        tx.execute("CREATE TABLE IF NOT EXISTS app_seen (number integer)")
        tx.execute("INSERT INTO app_seen VALUES (1)")
        [(pid,)] = tx.execute("SELECT pg_backend_pid()").fetchall()
        calls.append(pid)
        if len(calls) == 1 or (then_fails and len(calls) == 2):
            server.execute(f"SELECT pg_terminate_backend({pid}, 10000)")
            try:
                tx.execute("SELECT 1")
            except Exception:
                if then_fails:
                    raise ValueError from None

    async with eventproc.open(url) as ep:
        await run_hook(ep, hide)
        assert await ep.query("SELECT number FROM app_seen") == [(1,)]
        await check(ep.db)


@pytest.mark.parametrize("mode", ["ACCESS EXCLUSIVE", "SHARE"])
async def test_cancelled_statements_of_the_library_run_again(url: str, server: Server, mode: str) -> None:
    """The first mode lets a transaction wait when it begins, the second one when it counts its commit."""
    async with eventproc.open(url) as ep:
        await ep.create_scope("s")
        stream = await ep.create_stream("s/t")
        with psycopg.connect(server.url) as holder:
            holder.execute(f"LOCK TABLE {url.rpartition('=')[2]}.opening IN {mode} MODE".encode())
            async with stream.writer() as writer, anyio.create_task_group() as tasks:
                tasks.start_soon(writer.write, b"1")
                for _ in range(3):
                    pid = await waiting_for(server, "relation")
                    server.execute(f"SELECT pg_cancel_backend({pid})")
                holder.rollback()
        assert await payloads_of(stream) == [b"1"]
        await check(ep.db)


async def test_write_whose_connection_broke_while_it_ran_fails_at_its_deadline(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("eventproc.store.postgres.writer.WARN_MS", 10)
    began, is_broken = threading.Event(), threading.Event()

    def look(tx: Any) -> None:
        began.set()
        assert is_broken.wait(60)
        tx.execute("SELECT 1")

    with running_server() as server:

        async def crash() -> None:
            await anyio.to_thread.run_sync(began.wait)
            await anyio.sleep(0.1)  # meanwhile the queue looks at the deadlines of what waits in it
            await anyio.to_thread.run_sync(server.kill)
            is_broken.set()

        async with open_world("server", tmp_path, server=server) as world, anyio.create_task_group() as tasks:
            tasks.start_soon(crash)
            try:
                with anyio.fail_after(30), pytest.raises(errors.Unreachable):
                    await world.db.write(look, timeout_ms=2_000)
            finally:
                await anyio.to_thread.run_sync(server.start)


async def test_commit_whose_answer_was_lost_counts_when_a_standby_has_it() -> None:
    with running_server() as server:
        async with eventproc.open(server.url) as ep:
            await ep.create_scope("s")
            stream = await ep.create_stream("s/t")
            done: list[int] = []
            is_over = anyio.Event()
            async with stream.writer() as writer, anyio.create_task_group() as tasks:

                async def write() -> None:
                    while not is_over.is_set():  # the first ones may find the old setting
                        await writer.write(b"%d" % len(done))
                        done.append(len(done))

                server.execute("ALTER SYSTEM SET synchronous_standby_names = 'missing'")
                server.execute("SELECT pg_reload_conf()")
                tasks.start_soon(write)
                pid = await waiting_for(server, "SyncRep")
                count = len(done)
                server.execute(f"SELECT pg_terminate_backend({pid}, 10000)")
                await waiting_for(server, "SyncRep", but=pid)
                assert len(done) == count
                is_over.set()
                server.execute("ALTER SYSTEM RESET synchronous_standby_names")
                server.execute("SELECT pg_reload_conf()")
            assert await payloads_of(stream) == [b"%d" % each for each in done]


async def test_select_of_a_user_that_changes_rows_runs_once_when_the_answer_of_its_commit_is_lost() -> None:
    def create(tx: eventproc.AppTx) -> None:
        tx.execute("CREATE TABLE app_seen (number integer)")
        tx.execute(
            "CREATE FUNCTION app_add() RETURNS integer LANGUAGE sql"
            " AS 'INSERT INTO app_seen VALUES (1) RETURNING number'"
        )

    with running_server() as server:
        async with eventproc.open(server.url, host=False) as ep:
            await ep.change_tables(create)
            done: list[int] = []
            is_over = anyio.Event()

            async def add() -> None:
                while not is_over.is_set():  # the first ones may find the old setting
                    await ep.change_tables(lambda tx: tx.execute("SELECT app_add()").fetchall())
                    done.append(1)

            async with anyio.create_task_group() as tasks:
                server.execute("ALTER SYSTEM SET synchronous_standby_names = 'missing'")
                server.execute("SELECT pg_reload_conf()")
                tasks.start_soon(add)
                pid = await waiting_for(server, "SyncRep")
                server.execute(f"SELECT pg_terminate_backend({pid}, 10000)")
                await waiting_for(server, "SyncRep", but=pid)
                is_over.set()
                server.execute("ALTER SYSTEM RESET synchronous_standby_names")
                server.execute("SELECT pg_reload_conf()")
            assert await ep.query("SELECT count(*) FROM app_seen") == [(len(done),)]


async def test_opening_stops_when_the_server_has_lost_its_commits() -> None:
    with running_server() as server:
        async with eventproc.open(server.url) as ep, eventproc.open(server.url, host=False) as other:
            await ep.create_scope("s")
            stream = await ep.create_stream("s/t")
            async with stream.writer() as writer:
                await writer.write(b"1")
                await anyio.to_thread.run_sync(server.save)
                await writer.write(b"2")
                await other.create_scope("other")
                await anyio.to_thread.run_sync(server.restore)
                with anyio.fail_after(30), pytest.raises(errors.DatabaseStopped, match="lost commits"):
                    await writer.write(b"3")
            with anyio.fail_after(30), pytest.raises(errors.DatabaseStopped, match="lost commits"):
                await use_without_end(other)
        async with eventproc.open(server.url) as ep:
            assert await payloads_of(await ep.stream("s/t")) == [b"1"]
            await check(ep.db)
