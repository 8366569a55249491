"""Transactions beside the commit of SQLite that each needs, and how long a large one keeps others from writing.

A small transaction needs one commit, which begins it, appends its events and ends it. Both sides return when that is
durable. The lock of all writers is watched from outside: its holds contain a checkpoint where one was due, on those
versions of SQLite where it runs under the lock.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Final
from unittest.mock import patch

import anyio

import eventproc
from benchmarks.bare import Commits
from benchmarks.floors import inserts
from benchmarks.samples import CALLERS_COUNT, KEYS_COUNT, Sample, Stopwatch, Task, keys, payloads, timed
from eventproc.store.database.locks import WriteLock
from eventproc.streams import Stream

EVENTS_COUNT: Final = 10
"""Events in a small transaction."""

LARGE_BYTES: Final = 1_000
"""Size of an event in a large one: as many of them as make 100 MB."""

SEGMENTS_COUNT: Final = 4
"""Segments of a stream that has several."""

CHUNK_BYTES: Final = 2**20
"""What the floor of a large one commits at a time, as ours does."""

READERS_COUNT: Final = 32
"""Readers that consume, each with a segment of its own, where many do."""

WARM_COUNT: Final = 50
"""Transactions before the clock starts."""


async def one(task: Task) -> Sample:
    """Commit one small transaction after the other, each awaited until it is visible."""
    return await _small(task, callers=1, segments=1)


async def one_spread(task: Task) -> Sample:
    """The same over SEGMENTS_COUNT segments."""
    return await _small(task, callers=1, segments=SEGMENTS_COUNT)


async def many(task: Task) -> Sample:
    """Small transactions from many concurrent tasks, on one stream."""
    return await _small(task, callers=CALLERS_COUNT, segments=1)


async def many_spread(task: Task) -> Sample:
    """The same over SEGMENTS_COUNT segments."""
    return await _small(task, callers=CALLERS_COUNT, segments=SEGMENTS_COUNT)


async def one_floor(task: Task) -> Sample:
    """One commit for each, one after the other: the events' bytes in a row."""
    return await inserts(task, _body(), callers=1)


async def many_floor(task: Task) -> Sample:
    """The same from many concurrent tasks, with grouped commits."""
    return await inserts(task, _body(), callers=CALLERS_COUNT)


async def joint_one(task: Task) -> Sample:
    """Consume one event after the other, and commit its two outputs on two streams with the progress, each awaited."""
    return await _joint(task, readers=1)


async def joint_many(task: Task) -> Sample:
    """The same by READERS_COUNT readers of a group simultaneously."""
    return await _joint(task, readers=READERS_COUNT)


async def joint_one_floor(task: Task) -> Sample:
    """One commit for each, one after the other: the bytes of the two events in a row."""
    return await inserts(task, b"".join(payloads()[:2]), callers=1)


async def joint_many_floor(task: Task) -> Sample:
    """The same from READERS_COUNT concurrent tasks, with grouped commits."""
    return await inserts(task, b"".join(payloads()[:2]), callers=READERS_COUNT)


async def longest_hold(task: Task) -> Sample:
    """Write and commit `count` events of LARGE_BYTES in one transaction; the longest hold of the lock, ms."""
    return await _large(task, scaled=False)


async def longest_hold_scaled(task: Task) -> Sample:
    """The same, with every segment split between the last write and the commit."""
    return await _large(task, scaled=True)


async def longest_hold_floor(task: Task) -> Sample:
    """Insert as many bytes, CHUNK_BYTES a commit, SQLite checkpointing as it does by itself; the longest commit, ms."""
    commits = Commits(task.directory, task.durability)
    watch, longest_s = Stopwatch(), 0.0
    body = bytes(CHUNK_BYTES)
    for _ in range(0, task.count * LARGE_BYTES, CHUNK_BYTES):
        began = perf_counter()
        await commits.insert(body)
        longest_s = max(longest_s, perf_counter() - began)
    sample = watch.rate(task.count)
    commits.close()
    return Sample(value=longest_s * 1000, cpu_us=sample.cpu_us, rss_mb=sample.rss_mb)


async def _small(task: Task, *, callers: int, segments: int) -> Sample:
    async with eventproc.open(task.directory, durability=task.durability) as ep:
        stream = await _make_stream(ep, segments=segments)
        pairs = list(zip(payloads(), keys(), strict=True))

        async def commit(number: int) -> None:
            at = number * EVENTS_COUNT % KEYS_COUNT
            async with stream.transaction() as txn:
                for payload, key in pairs[at : at + EVENTS_COUNT]:
                    await txn.write(payload, key=key)

        for number in range(WARM_COUNT):
            await commit(number)
        numbers = iter(range(task.count))

        async def run() -> None:
            for number in numbers:
                await commit(number)

        return await timed(run, callers, task.count)


async def _joint(task: Task, *, readers: int) -> Sample:
    async with eventproc.open(task.directory, durability=task.durability) as ep:
        source = await _make_stream(ep, segments=readers)
        targets = [await ep.create_stream(f"benchmark/{name}") for name in ("first", "second")]
        names, payload = keys(), payloads()[0]
        async with (
            source.writer() as writer
        ):  # more than are consumed: no reader waits before the clock stops
            numbers = range(task.count + task.count // 2 + WARM_COUNT)
            await writer.write_many((payload, names[number % KEYS_COUNT]) for number in numbers)
        group = await ep.create_group("group", [source.name])
        left = task.count + WARM_COUNT
        watch = Stopwatch()

        async def consume(name: str) -> None:
            nonlocal left, watch
            async with group.reader(name) as reader:
                async for event in reader:
                    async with ep.transaction(consumer=reader) as txn:
                        for target in targets:
                            await txn.write(target, event.payload, key=event.key)
                    left -= 1
                    if left == task.count:
                        watch = Stopwatch()
                    if left <= 0:
                        tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            for number in range(readers):
                tasks.start_soon(consume, f"r{number}")
        return watch.rate(task.count)


def _body() -> bytes:
    return b"".join(payloads()[:EVENTS_COUNT])


async def _large(task: Task, *, scaled: bool) -> Sample:
    async with eventproc.open(task.directory, durability=task.durability) as ep:
        stream = await _make_stream(ep, segments=SEGMENTS_COUNT)
        payload, names = bytes(LARGE_BYTES), keys()
        watch = Stopwatch()
        with watched_holds() as holds_s:
            async with stream.transaction() as txn:
                await txn.write_many((payload, names[number % KEYS_COUNT]) for number in range(task.count))
                await txn.flush()
                if scaled:
                    for segment in await stream.segments():
                        await stream.split(segment.id)
        sample = watch.rate(task.count)
        assert sum(appended.count for appended in txn.appended) == task.count, "it is visible whole"
    return Sample(value=max(holds_s) * 1000, cpu_us=sample.cpu_us, rss_mb=sample.rss_mb)


async def _make_stream(ep: eventproc.Eventproc, *, segments: int) -> Stream:
    await ep.create_scope("benchmark")
    return await ep.create_stream("benchmark/stream", scaling=eventproc.ScalingPolicy.fixed(segments))


@contextmanager
def watched_holds() -> Iterator[list[float]]:
    """Collect how long each hold of the lock of all writers takes while the block runs, s."""
    acquire, release = WriteLock.acquire, WriteLock.release
    holds_s: list[float] = []
    began: float | None = None  # None: held since before the block, so that its length is unknown

    def acquired(lock: WriteLock) -> None:
        nonlocal began
        acquire(lock)
        began = perf_counter()

    def released(lock: WriteLock) -> None:
        nonlocal began
        now_s = perf_counter()
        release(lock)
        if began is not None:
            holds_s.append(now_s - began)
        began = None

    with patch.object(WriteLock, "acquire", acquired), patch.object(WriteLock, "release", released):
        yield holds_s
