"""An app whose stream is deleted and made again: before it is run again, and while it runs."""

from __future__ import annotations

import anyio
import pytest

import eventproc
from eventproc.processors import ProcessorFailed, run_app
from eventproc.processors.options import ProcessorLimits
from tests.processors.support import group, lag, until_next
from tests.support.apps import run_until_idle

WAIT_MS = 10_000


async def test_an_app_goes_on_with_a_stream_that_was_deleted_and_made_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen: list[bytes] = []
    app = eventproc.App()

    @app.processor("shop/orders", "shop/returns", group="mailer")
    async def mail(event: eventproc.Event) -> None:
        seen.append(event.payload)

    async with eventproc.open_memory() as ep:
        await ep.create_scope("shop")
        returns = await ep.create_stream("shop/returns")
        for life in (b"1", b"2"):
            orders = await ep.create_stream("shop/orders")
            for stream in (orders, returns):
                async with stream.writer() as writer:
                    await writer.write(stream.name.encode() + life, key="k")
            await run_until_idle(ep, app, timeout_ms=WAIT_MS)
            await orders.seal()
            await orders.delete()
    assert sorted(seen) == [b"shop/orders1", b"shop/orders2", b"shop/returns1", b"shop/returns2"]
    assert "shop/orders was deleted and created again" in caplog.text


async def test_recreated_stream_fails_its_processor_and_is_read_by_the_next_run() -> None:
    seen: list[bytes] = []
    app = eventproc.App()

    @app.processor("s/orders", "s/returns", group="s/g", name="mail")
    async def mail(event: eventproc.Event) -> None:
        seen.append(event.payload)

    async def make(payload: bytes) -> eventproc.Stream:
        orders = await ep.create_stream("s/orders")
        async with orders.writer() as writer:
            await writer.write(payload)
        return orders

    async def run() -> None:
        async with run_app(ep.db, app, limits=ProcessorLimits(names_check_ms=20)) as running:
            await running.wait_idle(timeout_ms=WAIT_MS)
            await orders.seal()
            while {each.stream for each in (await group(ep)).segments} != {"s/returns"}:
                await until_next()
            await orders.delete()
            async with returns.writer() as writer:
                await writer.write(b"2")
            await running.wait_idle(timeout_ms=WAIT_MS)  # what is gone was read to its end
            await make(b"3")
            await running.wait()

    async with eventproc.open_memory() as ep:
        await ep.create_scope("s")
        returns = await ep.create_stream("s/returns")
        orders = await make(b"1")
        with pytest.raises(
            ProcessorFailed, match="s/orders was deleted and created again; run the app again"
        ):
            await run()
        assert seen == [b"1", b"2"]
        await run_until_idle(ep, app, timeout_ms=WAIT_MS)
    assert seen == [b"1", b"2", b"3"]


async def test_waiting_for_a_stopped_app_fails_if_a_stream_was_recreated() -> None:
    app = eventproc.App()

    @app.processor("s/orders", group="s/g")
    async def mail(event: eventproc.Event) -> None: ...

    async with eventproc.open_memory() as ep:
        await ep.create_scope("s")
        orders = await ep.create_stream("s/orders")
        async with ep.run(app) as running:
            await running.stop()
            await orders.seal()
            await orders.delete()
            await ep.create_stream("s/orders")
            with pytest.raises(ProcessorFailed, match="s/orders was deleted and created again"):
                await running.wait_idle(timeout_ms=WAIT_MS)


async def test_events_beyond_a_stuck_one_stay_finished_when_a_stream_is_recreated() -> None:
    seen: list[bytes] = []
    stuck = True
    app = eventproc.App()

    @app.processor("s/orders", "s/returns", group="s/g")
    async def mail(event: eventproc.Event) -> None:
        if stuck and event.key == "stuck":
            await anyio.sleep_forever()
        seen.append(event.payload)

    async with eventproc.open_memory() as ep:
        await ep.create_scope("s")
        returns = await ep.create_stream("s/returns")
        orders = await ep.create_stream("s/orders")
        async with returns.writer() as writer:
            await writer.write_many([(b"1", "stuck"), (b"2", "k"), (b"3", "k")])
        with anyio.fail_after(WAIT_MS / 1000):
            async with ep.run(app, grace_ms=0):
                while await lag(ep) > 1:
                    await until_next()
        await orders.seal()
        await orders.delete()
        await ep.create_stream("s/orders")
        stuck = False
        await run_until_idle(ep, app, timeout_ms=WAIT_MS)
    assert seen == [b"2", b"3", b"1"]
