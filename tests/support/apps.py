"""Apps that run until nothing is left to do."""

from __future__ import annotations

from eventproc.processors import App
from eventproc.runtime import Eventproc


async def run_until_idle(ep: Eventproc, app: App, timeout_ms: int | None = None) -> None:
    async with ep.run(app) as running:
        await running.wait_idle(timeout_ms=timeout_ms)
