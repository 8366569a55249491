"""Growth: what a long history, many streams and many open transactions cost, compared with a few of each.

A child process fills the directory in bulk with the functions of the store, so that the memory it needs is not counted.
"""

from __future__ import annotations

import itertools
import json
import random
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from functools import partial
from statistics import median
from types import MappingProxyType
from typing import Final, TypeAlias
from unittest.mock import patch

import anyio
import attrs

import eventproc
from benchmarks.samples import CALLERS_COUNT, Sample, Stopwatch, Task, peak_rss_mb, timed
from eventproc.base.clock import new_id
from eventproc.store.catalog import STREAM, current_epoch, insert_epoch, insert_stream
from eventproc.store.catalog.stored_history import EpochCache
from eventproc.store.database import Tx
from eventproc.store.model.cuts import StreamCut
from eventproc.store.model.epochs import next_epoch
from eventproc.store.model.ids import SegmentId, segment_id
from eventproc.store.model.policies import ScalingPolicy, StreamConfig
from eventproc.store.records import get, replace
from eventproc.store.segments import EventBlock, SegmentEvents, append, create_segments, seal_segments
from eventproc.store.transactions import create_txn
from eventproc.streams import Stream

MANY: Final = 100_000
"""Epochs of the stream with a long history, and streams of the large scope."""

FEW: Final = 100
"""Epochs, and streams, of what the large ones are compared with."""

OPEN_TRANSACTIONS: Final = 10_000
"""Open transactions of one stream."""

SEGMENTS_COUNT: Final = 4
"""Active segments of the streams with histories. Each epoch replaces one of them by one of the same range."""

STEP_COUNT: Final = 1_000
"""Epochs or streams that one transaction of the database adds."""

QUERIES_COUNT: Final = 10
"""Queries of one kind between two looks at the clock: so few that whatever else the machine does meets both sides."""

CREATED_COUNT: Final = 200
"""Streams that are created between two looks at the clock."""

RATIO_MAX: Final = 1.5
"""What a query may cost with a long history, compared with its cost with a short one."""

PLACES_SEED: Final = 7
"""Seed of the places of a history that are asked for."""

LEASE_MS: Final = 600_000
"""Lease of the open transactions: the longest one, so that none ends while something is measured."""

PAGE_COUNT: Final = 20
"""Entries of a page."""

IDLE_S: Final = 5
"""How long a directory is kept open until its memory is read."""

Query: TypeAlias = Callable[[Stream, int, random.Random], Awaitable[object]]
"""Asks a stream with so many epochs for something at a random place of its history."""


@attrs.frozen
class Contents:
    """What a directory is filled with. The fields are numbers of each."""

    epochs: tuple[int, ...] = ()
    streams: tuple[int, ...] = ()
    transactions: int = 0


async def slowest_query(task: Task) -> Sample:
    """Ask each query of a stream with MANY epochs and of one with FEW; the largest ratio of their times."""
    return await _compare_queries(task, MANY)


async def slowest_query_floor(task: Task) -> Sample:
    """Do the same with two streams of FEW epochs: what the measurement itself makes different."""
    return await _compare_queries(task, FEW + 1)


async def create_among_many(task: Task) -> Sample:
    """Create streams in a scope that has MANY and in one that has FEW, by many tasks; the ratio of their CPU times."""
    return await _compare_creating(task, MANY)


async def create_among_few(task: Task) -> Sample:
    """Do the same in two scopes of FEW streams: what the measurement itself makes different."""
    return await _compare_creating(task, FEW + 1)


async def open_large(task: Task) -> Sample:
    """Open a directory with long histories, many streams and many open transactions `count` times; the median in ms."""
    return await _open(task, Contents((MANY,), (MANY,), OPEN_TRANSACTIONS))


async def open_small(task: Task) -> Sample:
    """Do the same with a few of each."""
    return await _open(task, Contents((FEW,), (FEW,), FEW))


async def idle_memory(task: Task) -> Sample:
    """Keep the large directory open for IDLE_S after asking for pages of everything; the peak memory in MB."""
    return await _keep_open(task, Contents((MANY,), (MANY,), OPEN_TRANSACTIONS))


async def idle_memory_floor(task: Task) -> Sample:
    """Do the same with the small one."""
    return await _keep_open(task, Contents((FEW,), (FEW,), FEW))


async def _compare_queries(task: Task, many: int) -> Sample:
    await _fill(task, Contents((many, FEW)))
    async with eventproc.open(task.directory, durability=task.durability) as ep:
        large, small = [await ep.stream(_history_name(each)) for each in (many, FEW)]
        watch, ratios = Stopwatch(), {}
        # Both without the cache of epochs, which holds all of a short history and little of a long one.
        with patch.object(EpochCache, "find", lambda *_: None):
            for name, query in _QUERIES.items():
                rngs = random.Random(PLACES_SEED), random.Random(PLACES_SEED)
                ratios[name] = await _ratio(
                    task.count,
                    partial(_ask, query, large, many, rngs[0]),
                    partial(_ask, query, small, FEW, rngs[1]),
                )
        sample = watch.rate(2 * task.count * QUERIES_COUNT * len(_QUERIES))
        slowest = max(ratios, key=ratios.__getitem__)
        if ratios[slowest] > RATIO_MAX:
            print(f"{slowest}: {ratios[slowest]:.2f} times as much as with few epochs", file=sys.stderr)
        return attrs.evolve(sample, value=ratios[slowest])


async def _ask(query: Query, stream: Stream, epochs: int, rng: random.Random) -> None:
    for _ in range(QUERIES_COUNT):
        await query(stream, epochs, rng)


async def _compare_creating(task: Task, many: int) -> Sample:
    """Create in two directories, because in one both scopes would lie in the same large table."""
    async with AsyncExitStack() as opened:
        creating: list[Callable[[], Awaitable[None]]] = []
        for count in (many, FEW):
            part = attrs.evolve(task, directory=task.directory / str(count))
            await _fill(part, Contents(streams=(count,)))
            ep = await opened.enter_async_context(eventproc.open(part.directory, durability=task.durability))
            creating.append(partial(_create, ep, _scope_name(count), itertools.count()))
            await creating[-1]()
        watch = Stopwatch()
        ratio = await _ratio(task.count, *creating)
        return attrs.evolve(watch.rate(2 * task.count * CREATED_COUNT), value=ratio)


async def _create(ep: eventproc.Eventproc, scope: str, numbers: Iterator[int]) -> None:
    """Create CREATED_COUNT streams, by many tasks."""
    these = itertools.islice(numbers, CREATED_COUNT)

    async def run() -> None:
        for number in these:
            await ep.create_stream(f"{scope}/stream-{number}-new")

    await timed(run, CALLERS_COUNT, CREATED_COUNT)


async def _ratio(
    count: int, ours: Callable[[], Awaitable[None]], other: Callable[[], Awaitable[None]]
) -> float:
    """Return how many times the CPU time of the other one ours needs: the median of `count` pairs.

    The two of a pair run one after the other, and the first one changes: what else the machine does meets both.
    """
    ratios: list[float] = []
    for number in range(count):
        times: dict[int, float] = {}
        for side in (0, 1) if number % 2 else (1, 0):
            began = time.process_time()
            await (ours, other)[side]()
            times[side] = time.process_time() - began
        ratios.append(times[0] / times[1])
    return median(ratios)


async def _open(task: Task, contents: Contents) -> Sample:
    await _fill(task, contents)
    watch, times = Stopwatch(), []
    for _ in range(task.count):
        began = time.perf_counter()
        async with eventproc.open(task.directory, durability=task.durability) as ep:
            await ep.stream(_history_name(contents.epochs[0]))
            times.append(1000 * (time.perf_counter() - began))
    return attrs.evolve(watch.rate(task.count), value=median(times))


async def _keep_open(task: Task, contents: Contents) -> Sample:
    await _fill(task, contents)
    watch = Stopwatch()
    async with eventproc.open(task.directory, durability=task.durability) as ep:
        stream = await ep.stream(_history_name(contents.epochs[0]))
        scope = _scope_name(contents.streams[0])
        for number in range(task.count):
            await ep.streams(scope, after=f"{scope}/stream-{number}", limit=FEW)
            await stream.scales(after=number, limit=FEW)
            await stream.sealed_segments(limit=FEW)
            await stream.transactions()
        await anyio.sleep(IDLE_S)
        sample = watch.load()
    return attrs.evolve(sample, value=peak_rss_mb())


async def _fill(task: Task, contents: Contents) -> None:
    """Fill the directory, in a process of its own."""
    wanted = json.dumps([str(task.directory), task.durability, attrs.asdict(contents)])
    await anyio.run_process([sys.executable, "-m", "benchmarks.growth", wanted], stderr=None)


async def _fill_here(directory: str, durability: str, contents: Contents) -> None:
    async with eventproc.open(directory, durability=durability) as ep:
        for count in contents.epochs:
            name = _history_name(count)
            await ep.create_scope(name.partition("/")[0])
            await ep.db.write(partial(_begin_history, name=name))
            for first in range(1, count, STEP_COUNT):
                numbers = range(first, min(first + STEP_COUNT, count))
                await ep.db.write(partial(_add_epochs, name=name, numbers=numbers))
        for count in contents.streams:
            scope = _scope_name(count)
            await ep.create_scope(scope)
            for first in range(0, count, STEP_COUNT):
                numbers = range(first, min(first + STEP_COUNT, count))
                await ep.db.write(partial(_add_streams, scope=scope, numbers=numbers))
        for first in range(0, contents.transactions, STEP_COUNT):
            count = min(STEP_COUNT, contents.transactions - first)
            name = _history_name(contents.epochs[0])
            await ep.db.write(partial(_begin_transactions, name=name, count=count))


def _history_name(epochs: int) -> str:
    return f"history-{epochs}/stream"


def _scope_name(streams: int) -> str:
    return f"scope-{streams}"


def _begin_history(tx: Tx, name: str) -> None:
    insert_stream(tx, name, StreamConfig(ScalingPolicy.fixed(SEGMENTS_COUNT)))


def _add_epochs(tx: Tx, name: str, numbers: range) -> None:
    """Open epochs one after the other, and append an event to each segment before it is sealed."""
    before = get(tx, STREAM, name)
    stream_id, epoch = before.value.stream_id, current_epoch(tx, before.value)
    for number in numbers:
        old = epoch.segments[number % SEGMENTS_COUNT]
        block = EventBlock(payloads=[b"event"])
        append(tx, name, stream_id, [SegmentEvents(old.id, block.encode())])
        sealed = seal_segments(tx, name, stream_id, [old.id], sealed_epoch=number)
        following = next_epoch(
            epoch,
            stream=name,
            seal=[old.id],
            ranges=[old.range],
            now_ms=max(tx.now_ms, sealed.time + 1),
            segments_min=1,
            request_id=None,
        )
        epoch = attrs.evolve(
            following,
            sealed_bytes=epoch.sealed_bytes + sealed.bytes,
            sealed_events=epoch.sealed_events + sealed.events,
        )
        insert_epoch(tx, stream_id, epoch)
        create_segments(tx, stream_id, [each.id for each in epoch.opened], since_ms=epoch.created_ms)
        before = replace(tx, STREAM, before, attrs.evolve(before.value, epoch=number))


def _add_streams(tx: Tx, scope: str, numbers: range) -> None:
    config = StreamConfig(ScalingPolicy.fixed(1))
    for number in numbers:
        insert_stream(tx, f"{scope}/stream-{number}", config)


def _begin_transactions(tx: Tx, name: str, count: int) -> None:
    """Begin transactions that an instance which is gone has left behind under long leases."""
    stream_id = get(tx, STREAM, name).value.stream_id
    for _ in range(count):
        create_txn(tx, name, stream_id, new_id(tx.clock), instance="gone", lease_ms=LEASE_MS)


async def _segment(stream: Stream, epochs: int, rng: random.Random) -> object:
    return await stream.segment(_created_in(rng.randrange(1, epochs)))


async def _successors(stream: Stream, epochs: int, rng: random.Random) -> object:
    return await stream.successors(_created_in(rng.randrange(1, epochs - SEGMENTS_COUNT)))


async def _predecessors(stream: Stream, epochs: int, rng: random.Random) -> object:
    return await stream.predecessors(_created_in(rng.randrange(1, epochs)))


async def _epoch(stream: Stream, epochs: int, rng: random.Random) -> object:
    return await stream.epoch(rng.randrange(epochs))


async def _at_time(stream: Stream, epochs: int, rng: random.Random) -> object:
    return await stream.segments(rng.randrange(10**13))


async def _cut_at(stream: Stream, epochs: int, rng: random.Random) -> object:
    return await stream.cut_at(rng.randrange(10**13))


async def _page_of_epochs(stream: Stream, epochs: int, rng: random.Random) -> object:
    return await stream.epochs(after=rng.randrange(epochs - PAGE_COUNT), limit=PAGE_COUNT)


async def _page_of_scales(stream: Stream, epochs: int, rng: random.Random) -> object:
    return await stream.scales(after=rng.randrange(epochs - PAGE_COUNT), limit=PAGE_COUNT)


async def _page_of_sealed(stream: Stream, epochs: int, rng: random.Random) -> object:
    after = _created_in(rng.randrange(1, epochs - 2 * PAGE_COUNT))
    return await stream.sealed_segments(after=after, limit=PAGE_COUNT)


async def _page_between(stream: Stream, epochs: int, rng: random.Random) -> object:
    after = _created_in(rng.randrange(1, epochs - 2 * PAGE_COUNT))
    return await stream.segments_between(after=after, limit=PAGE_COUNT)


async def _size_before(stream: Stream, epochs: int, rng: random.Random) -> object:
    return await stream.size_before(_cut(stream, rng.randrange(SEGMENTS_COUNT, epochs - SEGMENTS_COUNT)))


async def _size_between(stream: Stream, epochs: int, rng: random.Random) -> object:
    return await stream.size_between(_cut(stream, rng.randrange(SEGMENTS_COUNT, epochs - SEGMENTS_COUNT)))


async def _compare_cuts(stream: Stream, epochs: int, rng: random.Random) -> object:
    one, other = [_cut(stream, rng.randrange(SEGMENTS_COUNT, epochs - SEGMENTS_COUNT)) for _ in range(2)]
    return await stream.compare_cuts(one, other)


async def _describe(stream: Stream, epochs: int, rng: random.Random) -> object:
    return await stream.describe()


async def _tail(stream: Stream, epochs: int, rng: random.Random) -> object:
    return await stream.tail()


_QUERIES: Final[Mapping[str, Query]] = MappingProxyType(
    {
        "segment": _segment,
        "successors": _successors,
        "predecessors": _predecessors,
        "epoch": _epoch,
        "segments at a time": _at_time,
        "cut at a time": _cut_at,
        "page of epochs": _page_of_epochs,
        "page of scales": _page_of_scales,
        "page of sealed segments": _page_of_sealed,
        "page of segments between cuts": _page_between,
        "size before a cut": _size_before,
        "size between cuts": _size_between,
        "order of cuts": _compare_cuts,
        "describe": _describe,
        "tail": _tail,
    }
)
"""The queries that are compared."""


def _created_in(epoch: int) -> SegmentId:
    """Return the segment that an epoch of a history created. Its number is the epoch's, above those of epoch 0."""
    return segment_id(SEGMENTS_COUNT - 1 + epoch, epoch)


def _cut(stream: Stream, epoch: int) -> StreamCut:
    """Return the cut at the beginning of an epoch's newest segments."""
    numbers = range(epoch - SEGMENTS_COUNT + 1, epoch + 1)
    return StreamCut(stream.name, stream.stream_id, {_created_in(each): 0 for each in numbers})


if __name__ == "__main__":
    where, durable, numbers = json.loads(sys.argv[1])
    anyio.run(_fill_here, where, durable, Contents(**numbers))
