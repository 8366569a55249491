"""Event processors beside a plain asyncio keyed queue, and exactly once beside at least once.

The queue holds what it is given in memory and forgets it: no reading, no progress, no failures, no other process.
Our events are in the stream before the clock starts, which it does at the first call of the handler; the queue is
filled while it runs. Ours ends when all progress is durable and the processor has left; the queue when its last
handler returned.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

import anyio
import attrs

import eventproc
from benchmarks.samples import CALLERS_COUNT, KEYS_COUNT, Sample, Stopwatch, Task, keys, payloads
from eventproc.windows import Pair, Tumbling, Window

HANDLER_MS: Final = 1
"""How long a call takes where the measurement is about waiting."""

SEGMENTS_COUNT: Final = 4
"""Segments of the stream, so that progress is kept in several."""


MINUTE_MS: Final = 60_000

SCATTER: Final = 7_919
"""A prime: neighbouring events have keys that are not neighbours."""

ITEMS_A_TURN: Final = 500
"""Items put into the plain queue between two scheduling points."""


class _Item(NamedTuple):
    """What goes through the plain queue."""

    key: str
    payload: bytes


class _Job:
    """A handler, the clock that its first call starts, and the event that its last call sets."""

    def __init__(self, count: int, pause_ms: int) -> None:
        self.watch: Stopwatch | None = None
        self.done = anyio.Event()
        self._left = count
        self._pause_s = pause_ms / 1000

    async def call(self, _: object) -> None:
        """Do nothing."""
        self._note()

    async def wait(self, _: object) -> None:
        """Take HANDLER_MS."""
        if self.watch is None:
            self.watch = Stopwatch()
        await asyncio.sleep(self._pause_s)
        self._note()

    def _note(self) -> None:
        if self.watch is None:
            self.watch = Stopwatch()
        self._left -= 1
        if not self._left:
            self.done.set()

    def rate(self, count: int) -> Sample:
        """Return the rate since the first call."""
        assert self.watch is not None, "nothing was called"
        return self.watch.rate(count)


async def processor_waiting(task: Task) -> Sample:
    """Process in the order of keys, 100 calls in flight, each of which waits."""
    job = _Job(task.count, HANDLER_MS)
    return await _process(task, job, job.wait)


async def queue_waiting(task: Task) -> Sample:
    """The same through the plain queue."""
    job = _Job(task.count, HANDLER_MS)
    return await _through_queue(task, job, job.wait)


async def processor(task: Task) -> Sample:
    """Process in the order of keys with a handler that does nothing."""
    job = _Job(task.count, 0)
    return await _process(task, job, job.call)


async def queue(task: Task) -> Sample:
    """The same through the plain queue."""
    job = _Job(task.count, 0)
    return await _through_queue(task, job, job.call)


@attrs.define
class _Counted:
    """What is kept for a key: about 100 B as JSON."""

    count: int = 0
    name: str = "." * 70


async def state_of_few(task: Task) -> Sample:
    """Count the events of each of 1,000 keys in a state of 100 B, until all is durable."""
    return await _count(task, KEYS_COUNT)


async def state_of_many(task: Task) -> Sample:
    """The same with 100,000 keys, in no order."""
    return await _count(task, 100 * KEYS_COUNT)


async def windows(task: Task) -> Sample:
    """Count the events of each of 1,000 keys by the minute, in which a key has ten, and emit each count once."""

    async def count(event: eventproc.Event, window: Window[_Counted]) -> None:
        window.value.count += 1

    async def report(window: Window[_Counted], context: eventproc.Context) -> None:
        context.emit("bench/out", b"%d" % window.value.count, key=window.key, event_time=window.begins)

    app = eventproc.App()
    kind = Tumbling(MINUTE_MS)
    app.window("bench/in", kind, value=_Counted, on_close=report, name="bench", concurrency=CALLERS_COUNT)(
        count
    )
    payload = payloads()[0]
    async with eventproc.open(task.directory, durability=task.durability) as ep:
        await _fill(ep, 0)
        async with (await ep.stream("bench/in")).writer() as writer:
            for number in range(task.count):
                time = number * MINUTE_MS // (10 * KEYS_COUNT)
                await writer.post(payload, key=f"customer-{number * SCATTER % KEYS_COUNT}", event_time=time)
        _settle_memory()
        watch = Stopwatch()
        async with ep.run(app) as running:
            await running.wait_idle()
        sample = watch.rate(task.count)
        found = await ep.state("bench/bench", dict[str, _Counted]).list(limit=KEYS_COUNT)
        counted = sum(each.count for state in found for each in state.value.values())
        counted += sum(int(event.payload) for event in await _emitted(ep))
        assert counted == task.count, "each event counts once"
    return sample


async def joins(task: Task) -> Sample:
    """Join the events of each of 1,000 keys: by the minute, a left one and 20 s later a right one; emit each pair."""

    def is_left(event: eventproc.Event) -> bool:
        return event.payload.startswith(b"l")

    async def pair_up(pair: Pair, context: eventproc.Context) -> None:
        context.emit("bench/out", pair.left, key=pair.key, event_time=pair.right_time)

    app = eventproc.App()
    within_ms = MINUTE_MS // 2
    app.join("bench/in", is_left=is_left, within_ms=within_ms, name="bench", concurrency=CALLERS_COUNT)(
        pair_up
    )
    sides = [each + payloads()[0][1:] for each in (b"l", b"r")]
    async with eventproc.open(task.directory, durability=task.durability) as ep:
        await _fill(ep, 0)
        async with (await ep.stream("bench/in")).writer() as writer:
            for number in range(task.count):
                turn, place = divmod(number, KEYS_COUNT)
                time = turn // 2 * MINUTE_MS + (turn % 2 * KEYS_COUNT + place) * MINUTE_MS // (3 * KEYS_COUNT)
                key = f"customer-{place * SCATTER % KEYS_COUNT}"
                await writer.post(sides[turn % 2], key=key, event_time=time)
        _settle_memory()
        watch = Stopwatch()
        async with ep.run(app) as running:
            await running.wait_idle()
        sample = watch.rate(task.count)
        assert len(await _emitted(ep)) * 2 == task.count, "each event has one partner"
    return sample


STATES: Final = (
    ("state", state_of_few, 60_000),
    ("state_of_many", state_of_many, 60_000),
    ("windows", windows, 20_000),
)
"""Processors with a state: the name of the case, what it runs, and its bar in class F, in events/s."""


async def exactly_once(task: Task) -> Sample:
    """Process in the order of keys, one event emitted for each, exactly once."""
    return await _emit(task, exactly_once=True)


async def at_least_once(task: Task) -> Sample:
    """The same, at least once."""
    return await _emit(task, exactly_once=False)


async def exactly_once_latency(task: Task) -> Sample:
    """Write one event after the other, each when what was emitted for the one before it was read; exactly once."""
    return await _answer(task, exactly_once=True)


async def at_least_once_latency(task: Task) -> Sample:
    """The same, at least once."""
    return await _answer(task, exactly_once=False)


async def _process(task: Task, job: _Job, handler: Callable[[object], Awaitable[None]]) -> Sample:
    app = eventproc.App()
    app.add(handler, "bench/in", name="bench", order="key", concurrency=CALLERS_COUNT)
    async with eventproc.open(task.directory, durability=task.durability) as ep:
        await _fill(ep, task.count)
        async with ep.run(app):
            await job.done.wait()
        return job.rate(task.count)


async def _count(task: Task, keys_count: int) -> Sample:
    async def count(event: eventproc.Event, counted: _Counted) -> None:
        counted.count += 1

    app = eventproc.App()
    app.add(count, "bench/in", name="bench", concurrency=CALLERS_COUNT, state=_Counted)
    payload = payloads()[0]
    async with eventproc.open(task.directory, durability=task.durability) as ep:
        await _fill(ep, 0)
        async with (await ep.stream("bench/in")).writer() as writer:
            for number in range(task.count):
                await writer.post(payload, key=f"customer-{number * SCATTER % keys_count}")
        _settle_memory()
        watch = Stopwatch()
        async with ep.run(app) as running:
            await running.wait_idle()
        sample = watch.rate(task.count)
        found = await ep.state("bench/bench", _Counted).list(limit=keys_count)
        assert sum(each.value.count for each in found) == task.count, "each event counts once"
    return sample


async def _emit(task: Task, *, exactly_once: bool) -> Sample:
    job = _Job(task.count, 0)

    async def emit(event: eventproc.Event, context: eventproc.Context) -> None:
        context.emit("bench/out", event.payload, key=event.key)
        await job.call(event)

    app = eventproc.App()
    app.add(emit, "bench/in", order="key", concurrency=CALLERS_COUNT, exactly_once=exactly_once)
    async with eventproc.open(task.directory, durability=task.durability) as ep:
        await _fill(ep, task.count)
        async with ep.run(app):
            await job.done.wait()
        return job.rate(task.count)


async def _answer(task: Task, *, exactly_once: bool) -> Sample:
    async def emit(event: eventproc.Event, context: eventproc.Context) -> None:
        context.emit("bench/out", event.payload, key=event.key)

    app = eventproc.App()
    app.add(emit, "bench/in", order="key", concurrency=CALLERS_COUNT, exactly_once=exactly_once)
    async with eventproc.open(task.directory, durability=task.durability) as ep:
        await _fill(ep, 0)
        source, answers = await ep.stream("bench/in"), await ep.stream("bench/out")
        async with ep.run(app), source.writer() as writer, answers.reader() as reader:
            await writer.write(b"warm")
            events = aiter(reader)
            await anext(events)
            watch = Stopwatch()
            for _ in range(task.count):
                await writer.write(b"question")
                await anext(events)
            sample = watch.mean_ms(task.count)
            await events.aclose()
    return sample


async def _emitted(ep: eventproc.Eventproc) -> list[eventproc.Event]:
    """Return what the handlers emitted."""
    results = await ep.stream("bench/out")
    async with results.reader() as reader:
        return [each async for batch in reader.batches(until=await results.tail()) for each in batch]


async def _fill(ep: eventproc.Eventproc, count: int) -> None:
    await ep.create_scope("bench")
    stream = await ep.create_stream("bench/in", scaling=eventproc.ScalingPolicy.fixed(SEGMENTS_COUNT))
    await ep.create_stream("bench/out", scaling=eventproc.ScalingPolicy.fixed(SEGMENTS_COUNT))
    pairs = list(zip(payloads(), keys(), strict=True))
    async with stream.writer() as writer:
        for number in range(count):
            payload, key = pairs[number % KEYS_COUNT]
            await writer.post(payload, key=key)
    _settle_memory()


async def _through_queue(task: Task, job: _Job, handler: Callable[[object], Awaitable[None]]) -> Sample:
    """A queue and a task per key and one semaphore: the usual program for order by key."""
    queues: dict[str, asyncio.Queue[_Item]] = {}
    limit = asyncio.Semaphore(CALLERS_COUNT)
    pairs = list(zip(payloads(), keys(), strict=True))

    async def consume(waiting: asyncio.Queue[_Item]) -> None:
        while True:
            item = await waiting.get()
            async with limit:
                await handler(item)

    _settle_memory()
    async with anyio.create_task_group() as tasks:
        for number in range(task.count):
            payload, key = pairs[number % KEYS_COUNT]
            waiting = queues.get(key)
            if waiting is None:
                waiting = queues[key] = asyncio.Queue()
                tasks.start_soon(consume, waiting)
            waiting.put_nowait(_Item(key, payload))
            if not number % ITEMS_A_TURN:
                await asyncio.sleep(0)  # else all would wait before the first was handled
        await job.done.wait()
        tasks.cancel_scope.cancel()
    return job.rate(task.count)


def _settle_memory() -> None:
    """Let the garbage collector forget what was made until now, so that the clock sees what processing makes."""
    gc.collect()
    gc.freeze()
