"""The page of `eventproc ui`, open in Chromium on a thousand streams: what it costs the process that serves it.

Twenty of the streams are written by another process. The floor is the same without a page.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

import anyio
from playwright.async_api import async_playwright

import eventproc
from benchmarks.samples import Sample, Task, payloads
from benchmarks.serving import server_process
from tests.page.support import QUIET, find_chromium

STREAMS_COUNT: Final = 1_000

WRITTEN_COUNT: Final = 20
"""Streams to which an event is written each second."""

GROUPS_COUNT: Final = 20
"""Groups of readers, which the overview shows."""

SETTLE_S: Final = 60
"""Time until the first events of all streams are older than the minute that rates are of."""

_SAYS: Final = re.compile(r"http\S+/ui/\S*")


async def overview(task: Task) -> Sample:
    """Look at the overview for `count` ms."""
    return await _look(task, "")


async def streams(task: Task) -> Sample:
    """Look at the list of streams for `count` ms."""
    return await _look(task, "#/streams")


async def unseen(task: Task) -> Sample:
    """Serve the page for `count` ms to nobody."""
    return await _look(task, None)


async def _look(task: Task, place: str | None) -> Sample:
    """Return the share of a core that the server uses while a place of the page is open; None: no page."""
    await _fill(task)
    options = ("--ui", "--rest", "0")
    used_s = seconds = rss_mb = 0.0
    async with (
        server_process(task, options, _SAYS) as (process, said),
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(_write, task)
        async with _open_page(said[0], place):
            await anyio.sleep(SETTLE_S)
            before, begun = process.cpu_times(), anyio.current_time()
            await anyio.sleep(task.count / 1000)
            after, seconds = process.cpu_times(), anyio.current_time() - begun
        tasks.cancel_scope.cancel()
        used_s = after.user + after.system - before.user - before.system
        rss_mb = process.memory_info().rss / 1e6
    return Sample(100 * used_s / seconds, used_s * 1e6 / seconds, rss_mb)


@asynccontextmanager
async def _open_page(address: str, place: str | None) -> AsyncIterator[None]:
    if place is None:
        yield
        return
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=find_chromium(), args=[*QUIET])
        page = await browser.new_page()
        await page.goto(f"{address}{place}")
        await page.get_by_role("link", name="benchmark/stream-").first.wait_for()
        yield
        await browser.close()


async def _fill(task: Task) -> None:
    async with eventproc.open(task.directory, durability=task.durability) as ep:
        await ep.create_scope("benchmark")

        async def make(numbers: range) -> None:
            for number in numbers:
                stream = await ep.create_stream(f"benchmark/stream-{number}")
                async with stream.writer() as writer:
                    await writer.write(payloads()[0])

        async with anyio.create_task_group() as tasks:
            for first in range(20):
                tasks.start_soon(make, range(first, STREAMS_COUNT, 20))
        for number in range(GROUPS_COUNT):
            await ep.create_group(f"benchmark/group-{number}", [f"benchmark/stream-{number}"])


async def _write(task: Task) -> None:
    async with AsyncExitStack() as ends:
        ep = await ends.enter_async_context(eventproc.open(task.directory, durability=task.durability))
        found = [await ep.stream(f"benchmark/stream-{number}") for number in range(WRITTEN_COUNT)]
        writers = [await ends.enter_async_context(each.writer()) for each in found]
        while True:
            for writer in writers:
                await writer.write(payloads()[0])
            await anyio.sleep(1)
