"""A reader that exceeded the patience of its group asks it before it hands out what others may own by now."""

from __future__ import annotations

from contextlib import aclosing

import anyio
import pytest

import eventproc
from eventproc.groups.reader import GroupReader
from eventproc.runtime import Eventproc
from eventproc.streams import Stream
from eventproc.topics.group import Group
from tests.groups.support import written
from tests.support.memory import clock as clock, timed_ep as timed_ep  # fixtures
from tests.support.virtual_time import anyio_backend as anyio_backend, clock_of

PATIENCE_MS = 1_000
GROUP = "s/g"


@pytest.fixture(autouse=True)
async def stream(ep: Eventproc) -> Stream:
    return await written(ep, 10)


async def heartbeats(ep: Eventproc) -> list[int]:
    rows = await ep.db.read(lambda tx: tx.execute("SELECT seen_ms FROM group_member").fetchall())
    return [seen_ms for (seen_ms,) in rows]


@pytest.mark.parametrize(
    ("patience_ms", "slept_ms", "asks"),
    [(PATIENCE_MS, PATIENCE_MS, False), (PATIENCE_MS, PATIENCE_MS + 1, True), (None, 10**9, False)],
)
async def test_a_reader_that_slept_asks_only_when_it_exceeded_the_patience(
    ep: Eventproc, patience_ms: int | None, slept_ms: int, asks: bool
) -> None:
    clock = clock_of(ep)
    group = await ep.create_group("g", ["s/t"], patience_ms=patience_ms)
    async with group.reader("a") as reader, aclosing(aiter(reader)) as events:
        await anext(events)
        before = await heartbeats(ep)
        clock.advance(slept_ms)
        assert (await anext(events)).payload == b"1"
        assert (await heartbeats(ep) == [clock.monotonic_ms()]) == asks
        assert asks or await heartbeats(ep) == before


@pytest.mark.parametrize("changed", [False, True])
async def test_the_segments_of_a_reader_that_hangs_go_to_another_one(ep: Eventproc, changed: bool) -> None:
    group = await ep.create_group("g", ["s/t"], patience_ms=None if changed else PATIENCE_MS)
    async with group.reader("hung") as hung, aclosing(aiter(hung)) as in_hand:
        await anext(in_hand)
        async with group.reader("other") as other, aclosing(aiter(other)) as events:
            if changed:
                await group.update(patience_ms=PATIENCE_MS)
            with anyio.fail_after(3 * PATIENCE_MS / 1000):
                assert (await anext(events)).payload == b"0"


async def change_often(group: Group) -> None:
    """Let a reader come and go several times within the patience, until cancelled."""
    while True:
        await anyio.sleep(PATIENCE_MS / 5_000)
        async with group.reader("guest"):
            pass


async def members(group: Group) -> set[str]:
    return {each.reader for each in (await group.describe()).members} - {"guest"}


async def test_a_reader_that_hangs_between_two_reads_is_expired_although_its_group_changes(
    ep: Eventproc,
) -> None:
    group = await ep.create_group("g", ["s/t"], patience_ms=PATIENCE_MS)
    async with (
        group.reader("hung") as hung,
        aclosing(aiter(hung)) as in_hand,
        anyio.create_task_group() as tasks,
    ):
        await anext(in_hand)
        await hung.commit()  # nothing is in hand from here on
        tasks.start_soon(change_often, group)
        async with group.reader("other") as other, aclosing(aiter(other)) as events:
            with anyio.fail_after(3 * PATIENCE_MS / 1000):
                assert (await anext(events)).payload == b"1"
            await anyio.sleep(PATIENCE_MS / 2_000)
            assert await members(group) == {"other"}, "it does not join while it hangs"
            await other.commit()
        tasks.cancel_scope.cancel()
        assert (await anext(in_hand)).payload == b"2", "asking for the next event joins again"
        assert await members(group) == {"hung"}


async def test_a_consumer_that_stops_polling_is_expired_although_its_group_changes(ep: Eventproc) -> None:
    await ep.create_topic("s/p", partitions=2)
    group = await ep.create_group("c", ["s/p"], patience_ms=PATIENCE_MS, on_deleted="drop")
    async with group.consumer("hung") as hung, anyio.create_task_group() as tasks:
        await hung.poll(timeout_ms=0)
        tasks.start_soon(change_often, await ep.group("s/c"))
        async with group.consumer("other") as other:
            with anyio.fail_after(3 * PATIENCE_MS / 1000):
                while len(other.assignment) < 2:
                    await other.poll(timeout_ms=PATIENCE_MS // 10)
            assert await members(await ep.group("s/c")) == {"other"}
            await hung.poll(timeout_ms=0)
            assert await members(await ep.group("s/c")) == {"hung", "other"}
        tasks.cancel_scope.cancel()


async def test_readers_that_wait_for_events_are_not_expired_while_the_group_changes(
    ep: Eventproc, caplog: pytest.LogCaptureFixture
) -> None:
    stream = await ep.create_stream("s/empty", scaling=eventproc.ScalingPolicy.fixed(2))
    group = await ep.create_group("g", ["s/empty"], patience_ms=PATIENCE_MS)

    async def read(reader: GroupReader[bytes]) -> None:
        async for event in reader:
            assert event.payload == b"late"

    async with group.reader("a") as a, group.reader("b") as b, anyio.create_task_group() as tasks:
        for each in (a, b):
            tasks.start_soon(read, each)
        tasks.start_soon(change_often, group)
        await anyio.sleep(20 * PATIENCE_MS / 1000)
        async with stream.writer() as writer:
            await writer.write(b"late", key="k")
        assert [each for each in caplog.messages if "expired" in each] == []
        assert await members(group) == {"a", "b"}
        tasks.cancel_scope.cancel()
