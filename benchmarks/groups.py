"""Producers and members of one group in one process: each event is posted, read by one member, handled and finished."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Final, TypeAlias

import anyio

import eventproc
from benchmarks.samples import KEYS_COUNT, Sample, Stopwatch, Task, keys, payloads
from eventproc import EventWriter

SEGMENTS_COUNT: Final = 4
"""Segments or partitions: one for each member where there are four."""

Handle: TypeAlias = Callable[[object], Coroutine[object, object, None]]
Read: TypeAlias = Callable[[str, anyio.Event, Handle], Coroutine[object, object, None]]
"""Joins the group under a name, sets the event then, and hands on each event that it reads."""

OpenWriter: TypeAlias = Callable[[], AbstractAsyncContextManager[EventWriter[bytes]]]


async def one_to_one(task: Task) -> Sample:
    """One producer, one reader of the group."""
    return await _through_readers(task, 1)


async def four_to_four(task: Task) -> Sample:
    """Four producers, four readers of the group."""
    return await _through_readers(task, 4)


async def one_consumer(task: Task) -> Sample:
    """One producer, one consumer of a topic."""
    return await _through_consumers(task, 1)


async def four_consumers(task: Task) -> Sample:
    """Four producers, four consumers of a topic."""
    return await _through_consumers(task, 4)


async def _through_readers(task: Task, pairs_count: int) -> Sample:
    async with eventproc.open(task.directory, durability=task.durability) as ep:
        await ep.create_scope("benchmark")
        scaling = eventproc.ScalingPolicy.fixed(SEGMENTS_COUNT)
        stream = await ep.create_stream("benchmark/stream", scaling=scaling)
        group = await ep.create_group("benchmark/group", ["benchmark/stream"])

        async def read(name: str, joined: anyio.Event, handle: Handle) -> None:
            async with group.reader(name) as reader, aclosing(reader.batches()) as batches:
                joined.set()
                async for batch in batches:
                    for event in batch:
                        await handle(event)

        return await _run_pairs(task, pairs_count, stream.writer, read)


async def _through_consumers(task: Task, pairs_count: int) -> Sample:
    async with eventproc.open(task.directory, durability=task.durability) as ep:
        await ep.create_scope("benchmark")
        topic = await ep.create_topic("benchmark/topic", partitions=SEGMENTS_COUNT)
        group = await ep.create_group("benchmark/group", ["benchmark/topic"])

        async def read(name: str, joined: anyio.Event, handle: Handle) -> None:
            async with group.consumer(name) as consumer:
                joined.set()
                while True:
                    for event in await consumer.poll():
                        await handle(event)

        return await _run_pairs(task, pairs_count, topic.producer, read)


async def _run_pairs(task: Task, pairs_count: int, open_writer: OpenWriter, read: Read) -> Sample:
    """Return the rate from the first post until `task.count` events were handled."""
    handled, done = 0, anyio.Event()

    async def handle(event: object) -> None:
        nonlocal handled
        handled += 1
        if handled == task.count:
            done.set()

    async def produce() -> None:
        pairs = list(zip(payloads(), keys(), strict=True))
        async with open_writer() as writer:
            for _ in range(task.count // KEYS_COUNT // pairs_count):
                for payload, key in pairs:
                    await writer.post(payload, key=key)

    sample = None
    async with anyio.create_task_group() as readers:
        for number in range(pairs_count):
            joined = anyio.Event()
            readers.start_soon(read, f"reader-{number}", joined, handle)
            await joined.wait()
        watch = Stopwatch()
        async with anyio.create_task_group() as producers:
            for _ in range(pairs_count):
                producers.start_soon(produce)
        await done.wait()
        sample = watch.rate(task.count)
        readers.cancel_scope.cancel()
    assert sample is not None, "the members ended before the last event"
    return sample
