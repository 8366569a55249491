"""What a store on a server does when statements are cancelled, connections break, and the server loses commits."""

from __future__ import annotations

import pytest

import eventproc
from eventproc.testing import check
from tests.support.postgres import Server

pytestmark = pytest.mark.subprocess


@pytest.mark.parametrize("then_fails", [False, True])
async def test_function_that_hides_a_lost_connection_runs_again(
    url: str, server: Server, then_fails: bool
) -> None:
    app = eventproc.App()
    calls: list[int] = []

    def hide(tx: eventproc.AppTx, events: object) -> None:
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

    @app.processor("s/in", group="g", exactly_once=True, on_commit=hide)
    async def handle(event: eventproc.Event, context: eventproc.Context) -> None:
        pass

    async with eventproc.open(url) as ep:
        await ep.create_scope("s")
        stream = await ep.create_stream("s/in")
        async with ep.run(app) as running, stream.writer() as writer:
            await writer.write(b"1")
            await running.wait_idle()
        assert await ep.query("SELECT number FROM app_seen") == [(1,)]
        await check(ep.db)
