"""Readers that are interrupted: they still follow each change of the group, and no dead member stays in it."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress

import anyio
import pytest

import eventproc
from eventproc import App, Event, Group
from eventproc.runtime import Eventproc
from eventproc.store.model.ids import segment_id
from eventproc.testing import Fault, SimulatedWorld
from tests.groups.support import are_shared, eventually, write, written
from tests.support.simulated_world import in_simulated_world


async def test_a_reader_that_is_cancelled_while_it_follows_its_group_follows_it_later(
    ep: Eventproc, monkeypatch: pytest.MonkeyPatch
) -> None:
    await written(ep, 60, segments=6)
    group = await ep.create_group("g", ["s/t"])
    async with group.reader("a") as a, aclosing(aiter(a)) as events:
        await anext(events)
        async with group.reader("b") as b:
            session = a._session
            assert session is not None
            await eventually(ep, lambda: _is(session.stale))
            with monkeypatch.context() as patched, anyio.CancelScope() as scope:

                async def never(*, complete: bool = True) -> None:
                    scope.cancel()
                    await anyio.sleep_forever()

                patched.setattr(session, "save", never)
                await anext(events)
            assert scope.cancelled_caught
            async with aclosing(aiter(a)) as again:
                await anext(again)
                await anext(again)
                await eventually(ep, lambda: are_shared([a, b]))


def test_whoever_is_cancelled_by_asyncio_while_it_joins_or_leaves_is_no_member() -> None:
    asyncio.run(_cancel_after_each_turn())


async def _cancel_after_each_turn() -> None:
    async with eventproc.open_memory() as ep:
        await ep.create_scope("s")
        await ep.create_stream("s/t")
        group = await ep.create_group("g", ["s/t"])
        turns = 0
        while not await _join_for(group, turns):
            assert (await group.describe()).members == (), f"cancelled after {turns} turns of the loop"
            turns += 1
        assert turns > 3


async def _join_for(group: Group, turns: int) -> bool:
    """Join and leave, cancelled thrice after so many turns of the event loop; return whether it was done by then."""

    async def join() -> None:
        async with group.reader("a"):
            pass

    joining = asyncio.create_task(join())
    for _ in range(turns):
        await anyio.lowlevel.checkpoint()
    done = joining.done()
    for _ in range(3):
        joining.cancel()
        await anyio.lowlevel.checkpoint()
    with suppress(asyncio.CancelledError):
        await joining
    return done


def test_delivered_events_are_finished_if_asyncio_cancels_the_leaving() -> None:
    asyncio.run(_cancel_while_leaving())


async def _cancel_while_leaving() -> None:
    async with eventproc.open_memory() as ep:
        await ep.create_scope("s")
        await written(ep, 20)
        group = await ep.create_group("g", ["s/t"])
        read: list[int] = []

        async def read_one() -> None:
            async with group.reader("a") as reader:
                async with aclosing(aiter(reader)) as events:
                    event = await anext(events)
                read.append(int(event.payload))

        for turns in range(20):
            reading = asyncio.create_task(read_one())
            while len(read) <= turns:
                await anyio.lowlevel.checkpoint()
            for _ in range(turns):
                await anyio.lowlevel.checkpoint()
            reading.cancel()
            await asyncio.wait([reading])
        assert read == list(range(20))


def test_a_poll_that_asyncio_cancels_at_the_end_of_a_segment_loses_no_segment(
    caplog: pytest.LogCaptureFixture,
) -> None:
    asyncio.run(_cancel_polls_at_ends())
    assert "was taken from" not in caplog.text


async def _cancel_polls_at_ends() -> None:
    async with eventproc.open_memory() as ep:
        await ep.create_scope("s")
        stream = await written(ep, 20)
        await stream.seal()
        for turns in range(30):
            group = await ep.create_group(f"g{turns}", ["s/t"])
            async with group.consumer("a") as consumer:
                assert len(await consumer.poll()) == 20
                polling = asyncio.create_task(consumer.poll())
                for _ in range(turns):
                    await anyio.lowlevel.checkpoint()
                polling.cancel()
                await asyncio.wait([polling])
                await consumer.commit()
                assert await consumer.poll() == []


async def test_a_position_has_nothing_of_segments_that_were_lost(ep: Eventproc) -> None:
    await written(ep, 5)
    group = await ep.create_group("g", ["s/t"])
    async with group.reader("a") as reader, aclosing(aiter(reader)) as events:
        event = await anext(events)
        await anext(events)
        assert reader.position == {"s/t": {segment_id(0, 0): 18}}, event
        await group.reader_offline("a")
        await reader.commit()  # it meets the fence
        assert reader.position == {}


@in_simulated_world
async def test_a_member_that_cannot_leave_its_group_leaves_it_later(world: SimulatedWorld) -> None:
    app = App()

    @app.processor("s/t", group="readers")
    async def read(event: Event) -> None: ...

    @app.worker("s/t", share_group="workers")
    async def work(event: Event) -> None: ...

    first = await world.start(faults=[Fault("group.leave.commit", "full", times=3)])
    second = await world.start(app)
    running = await first.run(app)
    await running.close()
    assert [each.alive for each in await world.ep.processors()] == [2, 2]
    await anyio.sleep(5)
    assert [each.alive for each in await world.ep.processors()] == [1, 1]
    await write(await world.ep.stream("s/t"), range(10))
    await second._running[0].wait_idle(timeout_ms=10_000)


async def _is(value: bool) -> bool:
    return value
