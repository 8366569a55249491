"""What the sweeps do to segments is bounded a step, however much there is."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial

import pytest

import eventproc
from eventproc.store.database import Tx
from eventproc.store.groups import (
    KAFKA_PRODUCER,
    PendingCommits,
    TransactionalProducer,
    add_pending,
    forget_producers,
)
from eventproc.store.groups.kafka_members import KAFKA_PENDING
from eventproc.store.model.ids import SegmentId
from eventproc.store.records import count_keys, create, keys
from eventproc.store.segments import (
    WriterSequence,
    create_segments,
    forget_writers,
    free_step,
    last_sequence,
    seal_segments,
    segment_state,
    truncate_segments,
)
from eventproc.store.segments.reaper import WRITER_MEMORY_MS
from tests.segments.support import STREAM, STREAM_ID, appending, make_segments, payloads, rows
from tests.support.asyncio_alone import anyio_backend as anyio_backend  # a fixture
from tests.support.sqlite import sqlite_of
from tests.support.virtual_time import SteppingClock


@pytest.fixture
def clock() -> SteppingClock:
    return SteppingClock()


@pytest.fixture
async def ep(clock: SteppingClock) -> AsyncIterator[eventproc.Eventproc]:
    async with eventproc.open_memory(host=False, clock=clock) as ep:
        yield ep


async def test_a_step_frees_many_passed_segments_and_looks_at_each_once(ep: eventproc.Eventproc) -> None:
    segments = [SegmentId(number) for number in range(500)]
    statements = 0

    def make(tx: Tx) -> None:
        create_segments(tx, STREAM_ID, segments)
        appending(*(payloads("x", segment=segment) for segment in segments))(tx)
        seal_segments(tx, STREAM, STREAM_ID, segments, sealed_epoch=1)
        truncate_segments(tx, STREAM, STREAM_ID, {}, passed=segments)

    def free(tx: Tx) -> bool:
        def count(_: str) -> None:
            nonlocal statements
            statements += 1

        sqlite_of(tx.connection).set_trace_callback(count)
        try:
            return free_step(tx, STREAM_ID, deleted=False)
        finally:
            sqlite_of(tx.connection).set_trace_callback(None)

    await ep.db.write(make)
    steps = 1
    while not await ep.db.write(free):
        steps += 1
    assert await rows(ep.db, "extent") == 0
    assert steps <= 10
    assert statements <= 6 * len(segments)
    state = await ep.db.read(lambda tx: segment_state(tx, STREAM_ID, segments[-1]))
    assert state is not None
    assert (state.head, state.tail, state.tail_number) == (9, 9, 1)


async def test_silent_writers_are_forgotten_a_few_a_step(
    ep: eventproc.Eventproc, clock: SteppingClock
) -> None:
    await make_segments(ep.db)
    for number in range(8):
        await ep.db.write(appending(payloads("x"), identity=WriterSequence(f"old-{number}", 1)))
    clock.now_ms += WRITER_MEMORY_MS + 1
    for number in range(2):
        await ep.db.write(appending(payloads("x"), identity=WriterSequence(f"new-{number}", 1)))
    left = []
    for _ in range(5):
        await ep.db.write(partial(forget_writers, writers_max=3))
        left.append(await rows(ep.db, "writer"))
    assert left == [9, 6, 3, 2, 2]
    for number in range(2):
        kept = partial(last_sequence, stream_id=STREAM_ID, writer=f"new-{number}")
        assert await ep.db.read(kept) == 1


async def test_unused_producers_and_commits_whose_time_is_over_are_forgotten_a_few_a_step(
    ep: eventproc.Eventproc, clock: SteppingClock
) -> None:
    def begin(tx: Tx, age: str, number: int, left_ms: int) -> None:
        producer = TransactionalProducer(producer_id=1, epoch=0, timeout_ms=60_000, used_ms=tx.now_ms)
        create(tx, KAFKA_PRODUCER, f"shop/{age}-{number}", producer)
        pending = PendingCommits(txn="0", until_ms=tx.monotonic_ms + left_ms, timeout_ms=60_000, commits=())
        add_pending(tx, "shop/group", f"{age}-{number}", pending)

    def left(tx: Tx) -> tuple[int, int]:
        return count_keys(tx, KAFKA_PRODUCER), count_keys(tx, KAFKA_PENDING)

    for number in range(4):
        await ep.db.write(partial(begin, age="old", number=number, left_ms=0))
    clock.now_ms += WRITER_MEMORY_MS + 1
    for number in range(2):
        await ep.db.write(partial(begin, age="new", number=number, left_ms=60_000))
    found = []
    for _ in range(4):
        await ep.db.write(partial(forget_producers, limit=3))
        found.append(await ep.db.read(left))
    assert found == [(5, 5), (2, 2), (2, 2), (2, 2)]
    names = await ep.db.read(partial(keys, kind=KAFKA_PRODUCER))
    assert names == ["shop/new-0", "shop/new-1"]
