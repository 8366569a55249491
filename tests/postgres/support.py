"""What tests of a store on a server share."""

from __future__ import annotations

from collections.abc import Callable

import eventproc


async def run_hook(
    ep: eventproc.Eventproc, hook: Callable[[eventproc.AppTx], object], *payloads: bytes
) -> eventproc.Stream:
    """Let a processor handle events one by one, with the function as its `on_commit`; return their stream."""
    app = eventproc.App()

    def on_commit(tx: eventproc.AppTx, _events: object) -> None:
        hook(tx)

    soon = eventproc.RetryPolicy(wait_ms=1, jitter_ms=0)

    @app.processor("s/in", group="g", exactly_once=True, on_commit=on_commit, retry=soon)
    async def handle(event: eventproc.Event, context: eventproc.Context) -> None:
        pass

    await ep.create_scope("s")
    stream = await ep.create_stream("s/in")
    async with ep.run(app) as running, stream.writer() as writer:
        for payload in payloads or (b"1",):
            await writer.write(payload)
            await running.wait_idle()
    return stream
