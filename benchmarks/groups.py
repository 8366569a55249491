"""Producers and readers of one group in one process: each event is posted, read by one reader, handled and finished."""

from __future__ import annotations

from contextlib import aclosing
from typing import Final

import anyio

import eventproc
from benchmarks.samples import KEYS_COUNT, Sample, Stopwatch, Task, keys, payloads

SEGMENTS_COUNT: Final = 4
"""Segments of the stream: one for each reader where there are four."""


async def one_to_one(task: Task) -> Sample:
    """One producer, one reader of the group."""
    return await _through_group(task, 1)


async def four_to_four(task: Task) -> Sample:
    """Four producers, four readers of the group."""
    return await _through_group(task, 4)


async def _through_group(task: Task, pairs_count: int) -> Sample:
    async with eventproc.open(task.directory, durability=task.durability) as ep:
        await ep.create_scope("benchmark")
        scaling = eventproc.ScalingPolicy.fixed(SEGMENTS_COUNT)
        stream = await ep.create_stream("benchmark/stream", scaling=scaling)
        group = await ep.create_reader_group("benchmark/group", ["benchmark/stream"])
        handled, done = 0, anyio.Event()

        async def handle(event: eventproc.Event) -> None:
            nonlocal handled
            handled += 1
            if handled == task.count:
                done.set()

        async def produce() -> None:
            pairs = list(zip(payloads(), keys(), strict=True))
            async with stream.writer() as writer:
                for _ in range(task.count // KEYS_COUNT // pairs_count):
                    for payload, key in pairs:
                        await writer.post(payload, key=key)

        async def read(name: str, joined: anyio.Event) -> None:
            async with group.reader(name) as reader, aclosing(reader.batches()) as batches:
                joined.set()
                async for batch in batches:
                    for event in batch:
                        await handle(event)

        sample = None
        async with anyio.create_task_group() as readers:
            for number in range(pairs_count):
                joined = anyio.Event()
                readers.start_soon(read, f"reader-{number}", joined)
                await joined.wait()
            watch = Stopwatch()
            async with anyio.create_task_group() as producers:
                for _ in range(pairs_count):
                    producers.start_soon(produce)
            await done.wait()
            sample = watch.rate(task.count)
            readers.cancel_scope.cancel()
        assert sample is not None, "the readers ended before the last event"
        return sample
