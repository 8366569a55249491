"""A consumer of a share group beside a reader of an ordinary group, and a worker beside that consumer.

All finish the same events durably, which are in the stream before the clock starts. A share group costs more than an
ordinary one, because it accounts for every event.
"""

from __future__ import annotations

from contextlib import aclosing
from typing import Final

import anyio

import eventproc
from benchmarks.samples import KEYS_COUNT, Sample, Stopwatch, Task, keys, payloads

POLL_EVENTS: Final = 500
"""Events of one poll, and of one acceptance: the default of `ShareConsumer.poll`."""


async def share_group(task: Task) -> Sample:
    """Poll 500 events and accept them in one call, until all are accepted."""
    async with eventproc.open(task.directory, durability=task.durability) as ep:
        await _fill(ep, task.count)
        group = await ep.create_share_group("work", ["benchmark/stream"])
        async with group.consumer("a") as consumer:
            watch = Stopwatch()
            done = 0
            while done < task.count:
                events = await consumer.poll(POLL_EVENTS)
                await consumer.accept(events)
                done += len(events)
            return watch.rate(task.count)


async def worker(task: Task) -> Sample:
    """Call a handler that does nothing for each event, from the first call until the last event is durable."""
    app, done, left = eventproc.App(), anyio.Event(), task.count
    watch = Stopwatch()

    @app.worker("benchmark/stream", share_group="work")
    async def work(_: eventproc.Event) -> None:
        nonlocal left, watch
        if left == task.count:
            watch = Stopwatch()
        left -= 1
        if not left:
            done.set()

    async with eventproc.open(task.directory, durability=task.durability) as ep:
        await _fill(ep, task.count)
        async with ep.run(app):
            await done.wait()
        return watch.rate(task.count)


async def reader_group(task: Task) -> Sample:
    """Read batches as a member of a group, and commit after each."""
    async with eventproc.open(task.directory, durability=task.durability) as ep:
        stream = await _fill(ep, task.count)
        group = await ep.create_group("work", ["benchmark/stream"])
        async with (
            group.reader("a") as reader,
            aclosing(reader.batches(until=await stream.tail())) as batches,
        ):
            watch = Stopwatch()
            async for batch in batches:
                for _ in batch:
                    pass
                await reader.commit()
            return watch.rate(task.count)


async def _fill(ep: eventproc.Eventproc, count: int) -> eventproc.Stream:
    await ep.create_scope("benchmark")
    stream = await ep.create_stream("benchmark/stream")
    pairs = list(zip(payloads(), keys(), strict=True))
    async with stream.writer() as writer:
        for _ in range(count // KEYS_COUNT):
            await writer.write_many(pairs)
    return stream
