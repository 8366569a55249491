"""Our side of each measurement: what a user of the library would write."""

from __future__ import annotations

from contextlib import aclosing
from functools import partial
from typing import Final

import anyio
import attrs

import eventproc
from benchmarks.samples import CALLERS_COUNT, KEYS_COUNT, Sample, Stopwatch, Task, keys, payloads, timed
from eventproc.store.records import RecordKind, create, replace
from eventproc.streams import Stream

WARM_COUNT: Final = 200
"""Operations before the clock starts."""

FAR_MS: Final = 24 * 3_600_000
"""Delay of events that are not due while a measurement lasts."""

SEGMENTS_COUNT: Final = 4
"""Segments of the stream in `end_to_end`, so that routing has something to decide."""


@attrs.frozen
class Position:
    """Where the reader of `end_to_end` stands: the text of its cut."""

    cut: str


POSITION: Final = RecordKind(name="benchmark-position", value=Position)


async def end_to_end(task: Task) -> Sample:
    """Post keyed events, read the whole stream, await a handler per event, save the position per batch."""
    async with eventproc.open(task.store, durability=task.durability) as ep:
        stream = await _make_stream(ep, "benchmark/stream", segments=SEGMENTS_COUNT)
        handled = 0

        async def handle(event: eventproc.Event) -> None:
            nonlocal handled
            handled += 1

        async def produce() -> None:
            pairs = list(zip(payloads(), keys(), strict=True))
            async with stream.writer() as writer:
                for _ in range(task.count // KEYS_COUNT):
                    for payload, key in pairs:
                        await writer.post(payload, key=key)

        watch = Stopwatch()
        async with anyio.create_task_group() as tasks, stream.reader() as reader:
            where = Position(str(reader.cut()))
            position = await ep.db.write(partial(create, kind=POSITION, key="reader", value=where))
            tasks.start_soon(produce)
            async with aclosing(reader.batches()) as batches:
                async for batch in batches:
                    for event in batch:
                        await handle(event)
                    where = Position(str(reader.cut()))
                    position = await ep.db.write(
                        partial(replace, kind=POSITION, before=position, value=where)
                    )
                    if handled == task.count:
                        break
        return watch.rate(task.count)


async def single_write(task: Task) -> Sample:
    """Write one event after the other, each awaited."""
    return await _writes(task, callers=1)


async def concurrent_writes(task: Task) -> Sample:
    """Write events from many concurrent tasks through one writer, each awaited."""
    return await _writes(task, callers=CALLERS_COUNT)


async def create_streams(task: Task) -> Sample:
    """Create many streams concurrently, each awaited."""
    async with eventproc.open(task.store, durability=task.durability) as ep:
        await _make_stream(ep, "benchmark/warm")
        sample, _ = await _create(ep, task.count)
        return sample


async def scale_streams(task: Task) -> Sample:
    """Split the only segment of many streams concurrently, each awaited."""
    async with eventproc.open(task.store, durability=task.durability) as ep:
        await _make_stream(ep, "benchmark/warm")
        _, streams = await _create(ep, task.count)
        waiting = iter(streams)

        async def run() -> None:
            for stream in waiting:
                await stream.scale(seal=[0], ranges=[(0, 0.5), (0.5, 1)])

        return await timed(run, CALLERS_COUNT, task.count)


async def write_at_once(task: Task) -> Sample:
    """Write events that are appended at once, in one call."""
    async with eventproc.open(task.store, durability=task.durability) as ep:
        return await _write_all(await _make_stream(ep, "benchmark/stream"), task.count, None)


async def delay_events(task: Task) -> Sample:
    """Write events that are due far from now, in one call."""
    async with eventproc.open(task.store, durability=task.durability) as ep:
        return await _write_all(await _make_stream(ep, "benchmark/stream"), task.count, FAR_MS)


async def deliver_delayed(task: Task) -> Sample:
    """Append events that are due."""
    async with eventproc.open(task.store, durability=task.durability) as ep:
        await _make_stream(ep, "benchmark/stream")
    async with eventproc.open(task.store, host=False) as ep:  # nobody appends them yet
        await _write_all(await ep.stream("benchmark/stream"), task.count, 0)
    watch = Stopwatch()
    async with eventproc.open(task.store) as ep, (await ep.stream("benchmark/stream")).reader() as reader:
        read = 0
        async with aclosing(reader.batches()) as batches:
            async for batch in batches:
                read += len(batch)
                if read == task.count:
                    break
    return watch.rate(task.count)


async def _write_all(stream: Stream, count: int, delay_ms: int | None) -> Sample:
    pairs = list(zip(payloads(), keys(), strict=True))
    watch = Stopwatch()
    async with stream.writer() as writer:
        await writer.write_many(
            eventproc.NewEvent(*pairs[number % KEYS_COUNT], delay_ms=delay_ms) for number in range(count)
        )
    return watch.rate(count)


async def idle(task: Task) -> Sample:
    """Keep a directory open as its host, with one stream in it, and do nothing."""
    async with eventproc.open(task.store, durability=task.durability) as ep:
        await _make_stream(ep, "benchmark/stream")
        await anyio.sleep(2)  # what follows opening is not idling, nor a second until progress is durable
        watch = Stopwatch()
        await anyio.sleep(task.count / 1000)
        return watch.load()


async def _make_stream(ep: eventproc.Eventproc, name: str, *, segments: int = 1) -> Stream:
    await ep.create_scope("benchmark")
    return await ep.create_stream(name, scaling=eventproc.ScalingPolicy.fixed(segments))


async def _create(ep: eventproc.Eventproc, count: int) -> tuple[Sample, list[Stream]]:
    numbers = iter(range(count))
    streams: list[Stream] = []

    async def run() -> None:
        for number in numbers:
            stream = await ep.create_stream(f"benchmark/stream-{number}")
            streams.append(stream)

    sample = await timed(run, CALLERS_COUNT, count)
    return sample, streams


async def _writes(task: Task, *, callers: int) -> Sample:
    async with eventproc.open(task.store, durability=task.durability) as ep:
        stream = await _make_stream(ep, "benchmark/stream")
        pairs = list(zip(payloads(), keys(), strict=True))
        async with stream.writer() as writer:
            for payload, key in pairs[:WARM_COUNT]:
                await writer.write(payload, key=key)
            numbers = iter(range(task.count))

            async def run() -> None:
                for number in numbers:
                    payload, key = pairs[number % KEYS_COUNT]
                    await writer.write(payload, key=key)

            return await timed(run, callers, task.count)
