"""Segments change hands without timers: in virtual time, which passes only while all tasks wait, it takes none."""

from __future__ import annotations

from contextlib import AsyncExitStack, aclosing

import anyio
import pytest

from eventproc import Group, GroupReader, ScalingPolicy, Stream
from eventproc.runtime import Eventproc
from tests.support.memory import clock as clock, timed_ep as timed_ep  # fixtures
from tests.support.virtual_time import anyio_backend as anyio_backend

SEGMENTS = 4
HANDLING_MS = 20


@pytest.fixture
async def stream(ep: Eventproc) -> Stream:
    return await ep.create_stream("s/t", scaling=ScalingPolicy.fixed(SEGMENTS))


@pytest.fixture
async def group(ep: Eventproc, stream: Stream) -> Group:
    return await ep.create_group("g", ["s/t"])


async def write(stream: Stream, count: int) -> None:
    async with stream.writer() as writer:
        await writer.write_many((b"%d" % number, str(number)) for number in range(count))


async def test_who_joins_waits_for_the_event_in_hand_and_for_nothing_else(
    ep: Eventproc, stream: Stream, group: Group
) -> None:
    await write(stream, 400)
    clock = ep.db.clock

    async def handle() -> None:
        async with group.reader("a") as reader, aclosing(aiter(reader)) as events:
            async for _ in events:
                await anyio.sleep(HANDLING_MS / 1000)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(handle)
        for name in "b", "c", "d":
            await anyio.sleep(0.25 * HANDLING_MS / 1000)  # in the midst of an event
            began_ms = clock.monotonic_ms()
            async with group.reader(name) as reader, aclosing(aiter(reader)) as events:
                await anext(events)
                assert clock.monotonic_ms() - began_ms <= HANDLING_MS
        tasks.cancel_scope.cancel()


async def test_no_event_waits_while_readers_come_and_go(ep: Eventproc, stream: Stream, group: Group) -> None:
    clock = ep.db.clock
    late_ms: list[int] = []
    readers: dict[str, int] = {}

    async def follow(name: str, life_ms: int) -> None:
        readers[name] = 0
        with anyio.move_on_after(life_ms / 1000):
            async with group.reader(name) as reader, aclosing(aiter(reader)) as events:
                async for event in events:
                    readers[name] += 1
                    late_ms.append(clock.wall_ms() - event.timestamp)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(follow, "stays", 60_000)
        async with stream.writer() as writer:
            for number in range(400):
                if number % 50 == 20:
                    tasks.start_soon(follow, f"guest {number}", 150)
                if number in (120, 240):
                    await stream.split((await stream.segments())[0].id)
                await writer.write(b"%d" % number, key=str(number))
                await anyio.sleep(0.005)
        await stream.seal()
    assert max(late_ms) == 0
    assert len(late_ms) == 400
    assert min(readers.values()) > 0, readers


async def test_kept_segments_are_not_acquired_again(stream: Stream, group: Group) -> None:
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(group.reader("a"))
        begun = first.owned
        readers: list[GroupReader] = [first]
        for name in "b", "c":
            readers.append(await stack.enter_async_context(group.reader(name)))
            await anyio.wait_all_tasks_blocked()
            assert set(first.owned) <= set(begun)  # the owner epochs are equal: nothing was acquired again
        assert sorted(len(reader.owned) for reader in readers) == [1, 1, 2]
        assert len(begun) == SEGMENTS
