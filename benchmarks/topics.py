"""Topics: producing to several partitions beside one segment, and what growth costs the other partitions."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Final

import anyio

import eventproc
from benchmarks.samples import KEYS_COUNT, Sample, Stopwatch, Task, keys, payloads, peak_rss_mb
from eventproc import EventWriter, Stream

PARTITIONS_COUNT: Final = 6
"""Partitions of the topic that is compared with one segment."""

GROWING_COUNT: Final = 60
"""Partitions of the topic that grows: an epoch of usual size."""


async def partitions(task: Task) -> Sample:
    """Post keyed events to a topic, and read them all."""
    async with _opened(task) as ep:
        topic = await ep.create_topic("benchmark/topic", partitions=PARTITIONS_COUNT)
        async with topic.producer() as producer:
            return await _produce_and_read(task, topic, producer)


async def one_segment(task: Task) -> Sample:
    """Do the same with a stream of one segment."""
    async with _opened(task) as ep:
        stream = await ep.create_stream("benchmark/stream")
        async with stream.writer() as writer:
            return await _produce_and_read(task, stream, writer)


async def growth_stall(task: Task) -> Sample:
    """Write to one partition, each event awaited, while partitions are added; the longest wait in ms."""
    return await _longest_wait(task, grow=True)


async def no_growth(task: Task) -> Sample:
    """Do the same without growth."""
    return await _longest_wait(task, grow=False)


@asynccontextmanager
async def _opened(task: Task) -> AsyncIterator[eventproc.Eventproc]:
    async with eventproc.open(task.directory, durability=task.durability) as ep:
        await ep.create_scope("benchmark")
        yield ep


async def _produce_and_read(task: Task, stream: Stream, writer: EventWriter[bytes]) -> Sample:
    pairs = list(zip(payloads(), keys(), strict=True))
    watch = Stopwatch()
    for _ in range(task.count // KEYS_COUNT):
        for payload, key in pairs:
            await writer.post(payload, key=key)
    await writer.flush()
    read = 0
    async with (
        stream.reader() as reader,
        aclosing(reader.batches(until=await stream.tail())) as batches,
    ):
        async for batch in batches:
            read += sum(1 for _ in batch)
    assert read == task.count // KEYS_COUNT * KEYS_COUNT, f"{read} events were read"
    return watch.rate(read)


async def _longest_wait(task: Task, *, grow: bool) -> Sample:
    payload = payloads()[0]
    async with _opened(task) as ep:
        topic = await ep.create_topic("benchmark/topic", partitions=GROWING_COUNT)
        done = anyio.Event()

        async def add() -> None:
            for _ in range(task.count if grow else 0):
                await topic.add_partitions(1)
            done.set()

        longest, count = 0.0, 0
        watch = Stopwatch()
        async with topic.producer() as producer, anyio.create_task_group() as tasks:
            await producer.write(payload, partition=0)
            tasks.start_soon(add)
            while count < task.count or not done.is_set():
                began = time.perf_counter()
                await producer.write(payload, partition=0)
                longest = max(longest, time.perf_counter() - began)
                count += 1
        cpu_us = watch.rate(count).cpu_us
    return Sample(value=1000 * longest, cpu_us=cpu_us, rss_mb=peak_rss_mb())
