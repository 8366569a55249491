"""An app that is run again on a stream that was made again."""

from __future__ import annotations

import pytest

import eventproc

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
            async with ep.run(app) as running:
                await running.wait_idle(timeout_ms=WAIT_MS)
            await orders.seal()
            await orders.delete()
    assert sorted(seen) == [b"shop/orders1", b"shop/orders2", b"shop/returns1", b"shop/returns2"]
    assert "shop/orders was made again" in caplog.text
