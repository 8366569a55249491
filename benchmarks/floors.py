"""The floor of each measurement: the same job on the bare programs of `bare.py`."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

import anyio

from benchmarks.bare import AppendLog, Commits, LogEvent
from benchmarks.samples import CALLERS_COUNT, KEYS_COUNT, Sample, Stopwatch, Task, payloads, timed

OUTSTANDING_MAX: Final = 16
"""Appends of the bare log in flight: enough that its thread always finds the next group waiting."""

APPEND_COUNT: Final = 100
"""Events in one append to the bare log."""

WARM_COUNT: Final = 200
"""Operations before the clock starts."""


async def end_to_end(task: Task) -> Sample:
    """Append with OUTSTANDING_MAX appends on their way, read behind, await a handler per event, checkpoint."""
    log, progress = AppendLog(task.directory, task.durability), Commits(task.directory, task.durability)
    await progress.create("reader", b"0")
    handled = 0

    async def handle(event: LogEvent) -> None:
        nonlocal handled
        handled += 1

    async def produce() -> None:
        source = payloads()
        waiting: deque[asyncio.Future[None]] = deque()
        for first in range(0, task.count, APPEND_COUNT):
            at = first % KEYS_COUNT
            waiting.append(log.append(source[at : at + APPEND_COUNT]))
            if len(waiting) >= OUTSTANDING_MAX:
                await waiting.popleft()
        for future in waiting:
            await future

    watch = Stopwatch()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(produce)
        version = 1
        async for batch in log.batches():
            for event in batch:
                await handle(event)
            await progress.replace("reader", version, b"%d" % handled)
            version += 1
            if handled == task.count:
                break
    sample = watch.rate(task.count)
    log.close()
    progress.close()
    return sample


async def single_write(task: Task) -> Sample:
    """Commit one row after the other, each through one crossing to a thread and back."""
    return await inserts(task, payloads()[0], callers=1)


async def concurrent_writes(task: Task) -> Sample:
    """Commit rows for many concurrent callers, grouped."""
    return await inserts(task, payloads()[0], callers=CALLERS_COUNT)


async def workflows(task: Task) -> Sample:
    """Two awaited commits by compare and set for each of many concurrent workflows, grouped."""
    return await two_commits(task, CALLERS_COUNT, bytes(200))


async def two_commits(task: Task, callers: int, body: bytes) -> Sample:
    """Make a row that holds `body`, and change it by compare and set, each awaited; grouped where callers are many."""
    commits = Commits(task.directory, task.durability)
    names = iter(range(task.count))

    async def run() -> None:
        for name in names:
            await commits.create(f"scope/stream-{name}", body)
            await commits.replace(f"scope/stream-{name}", 1, body)

    sample = await timed(run, callers, task.count)
    commits.close()
    return sample


async def idle(task: Task) -> Sample:
    """An event loop with nothing but one timer a second."""
    watch = Stopwatch()
    for _ in range(task.count // 1000):
        await anyio.sleep(1)
    return watch.load()


async def inserts(task: Task, body: bytes, *, callers: int) -> Sample:
    """Commit rows of `body`, each awaited; grouped where callers are many."""
    commits = Commits(task.directory, task.durability)
    for _ in range(WARM_COUNT):
        await commits.insert(body)
    numbers = iter(range(task.count))

    async def run() -> None:
        for _ in numbers:
            await commits.insert(body)

    sample = await timed(run, callers, task.count)
    commits.close()
    return sample
