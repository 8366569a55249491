"""A program reads what it has just written: it waits until a group has finished the event."""

from __future__ import annotations

from contextlib import aclosing
from functools import partial
from typing import Any

import anyio
import pytest

import eventproc
from eventproc import App, Event, Eventproc, GroupReader
from eventproc.errors import GroupStreamReplaced, InvalidArgument, NotFound, ProcessorFailed
from eventproc.testing import SimulatedWorld
from tests.support.memory import ep as ep  # a fixture
from tests.support.simulated_world import in_simulated_world


async def read_until(reader: GroupReader[bytes], payload: bytes) -> None:
    """Return with the event of this payload in hand: it is not finished."""
    async with aclosing(aiter(reader)) as events:
        async for event in events:
            if event.payload == payload:
                return


async def test_an_app_has_finished_an_event_when_the_wait_ends_while_others_are_written(
    ep: Eventproc,
) -> None:
    app, totals = App(), dict[str | None, int]()

    @app.processor("s/t", exactly_once=True)
    async def total(event: Event) -> None:
        totals[event.key] = totals.get(event.key, 0) + int(event.payload)

    stream = await ep.create_stream("s/t", scaling=eventproc.ScalingPolicy.fixed(2))
    async with ep.run(app) as running, stream.writer() as writer:
        ended = anyio.Event()

        async def write_on() -> None:
            while not ended.is_set():
                await writer.write(b"1", key="other")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(write_on)
            for number in range(5):
                event = await writer.write(b"10", key="ana")
                with anyio.fail_after(20):
                    await running.wait_for(event)
                assert totals["ana"] == 10 * (number + 1)
            ended.set()


async def test_a_group_is_waited_for_by_another_process_than_reads(ep: Eventproc) -> None:
    stream, group = await ep.create_stream("s/t"), await ep.create_group("s/g", ["s/t"])
    async with stream.writer() as writer:
        first, second = await writer.write(b"1", key="a"), await writer.write(b"2", key="a")
    with pytest.raises(TimeoutError, match=r"s/t segment 0\.0 event 0 is not finished in s/g after 0 ms"):
        await group.wait_for(first, timeout_ms=0)
    async with group.reader("r") as reader:
        await read_until(reader, b"2")
        await reader.commit()
        await group.wait_for(first, timeout_ms=5_000)
        with pytest.raises(TimeoutError):
            await group.wait_for(second, timeout_ms=0)
    await group.wait_for(second, timeout_ms=5_000)


async def test_a_wait_ends_when_the_event_is_truncated_or_its_stream_deleted_while_nobody_reads(
    ep: Eventproc,
) -> None:
    stream = await ep.create_stream("s/t")
    groups = await ep.create_group("s/g", ["s/t"]), await ep.create_share_group("s/share", ["s/t"])
    async with stream.writer() as writer:
        first = await writer.write(b"1", key="a")
        middle = await stream.tail()
        second = await writer.write(b"2", key="a")
    with anyio.fail_after(20):
        for group in groups:
            with pytest.raises(TimeoutError):
                await group.wait_for(first, timeout_ms=0)
        async with anyio.create_task_group() as tasks:
            for group in groups:
                tasks.start_soon(group.wait_for, first)
            await anyio.wait_all_tasks_blocked()
            await stream.truncate(middle)

        async def wait_for_deletion(group: eventproc.Group | eventproc.ShareGroup) -> None:
            with pytest.raises(NotFound, match="s/t"):
                await group.wait_for(second)

        async with anyio.create_task_group() as tasks:
            for group in groups:
                tasks.start_soon(wait_for_deletion, group)
            await anyio.wait_all_tasks_blocked()
            await stream.seal()
            await stream.delete()


@pytest.mark.parametrize("on_deleted", ["error", "drop"])
async def test_an_event_of_a_stream_that_was_created_again_is_not_finished_before_it_is_read(
    ep: Eventproc, on_deleted: Any
) -> None:
    stream = await ep.create_stream("s/t")
    group = await ep.create_group("s/g", ["s/t"], on_deleted=on_deleted)
    await stream.seal()
    await stream.delete()
    async with (await ep.create_stream("s/t")).writer() as writer:
        event = await writer.write(b"1", key="a")
    if on_deleted == "error":
        with pytest.raises(GroupStreamReplaced):
            await group.wait_for(event, timeout_ms=5_000)
        await group.reset()
    with pytest.raises(TimeoutError):
        await group.wait_for(event, timeout_ms=50)
    async with group.reader("r") as reader:
        await read_until(reader, b"1")
        await reader.commit()
        await group.wait_for(event, timeout_ms=5_000)


async def test_an_event_of_a_segment_that_was_finished_before_a_split_is_finished(ep: Eventproc) -> None:
    stream, group = await ep.create_stream("s/t"), await ep.create_group("s/g", ["s/t"])
    async with stream.writer() as writer, group.reader("r") as reader:
        before = await writer.write(b"1", key="a")
        await stream.split("0.0")
        after = await writer.write(b"2", key="a")
        with pytest.raises(TimeoutError):  # of a segment that the group has not reached
            await group.wait_for(after, timeout_ms=0)
        await read_until(reader, b"2")
        await reader.commit()
        await group.wait_for(before, timeout_ms=5_000)
        with pytest.raises(TimeoutError):
            await group.wait_for(after, timeout_ms=0)


async def test_the_wait_for_what_cannot_be_finished_is_refused(ep: Eventproc) -> None:
    app = App()

    @app.processor("s/t")
    async def handle(event: Event) -> None: ...

    stream, other = await ep.create_stream("s/t"), await ep.create_stream("s/other")
    group = await ep.create_group("s/g", ["s/t"])
    async with stream.writer() as writer, other.writer() as others, ep.run(app) as running:
        foreign, delayed = await others.write(b"x"), await writer.write(b"x", delay_ms=60_000)
        for wait in (running.wait_for, group.wait_for):
            with pytest.raises(InvalidArgument, match="s/other"):
                await wait(foreign)
            with pytest.raises(InvalidArgument, match="must be an event"):
                await wait(delayed)  # type: ignore[arg-type]
        own = await writer.write(b"y")
        await running.wait_for(own, timeout_ms=5_000)
        await group.delete()
        with pytest.raises(NotFound):
            await group.wait_for(own)


async def test_the_wait_ends_with_the_failure_of_a_processor(ep: Eventproc) -> None:
    app = App()

    @app.processor("s/t", on_failure="stop", retry=eventproc.RetryPolicy(attempts=1))
    async def handle(event: Event) -> None:
        raise ZeroDivisionError

    stream = await ep.create_stream("s/t")
    async with stream.writer() as writer:
        with pytest.raises(ProcessorFailed):
            async with ep.run(app) as running:
                await running.wait_for(await writer.write(b"x"))


@in_simulated_world
async def test_an_event_that_another_process_finished_behind_an_unfinished_one_ends_the_wait(
    world: SimulatedWorld,
) -> None:
    app, first_may_end, second_may_end = App(), anyio.Event(), anyio.Event()

    @app.processor("s/t", group="s/g", order="key", concurrency=2)
    async def handle(event: Event) -> None:
        await (first_may_end if event.key == "first" else second_may_end).wait()

    other = await world.start(app)
    async with (await world.ep.stream("s/t")).writer() as writer:
        await writer.write(b"", key="first")
        second = await writer.write(b"", key="second")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(partial((await world.ep.group("s/g")).wait_for, second, timeout_ms=60_000))
        await anyio.wait_all_tasks_blocked()
        await other.ep.create_scope("noticed")  # from now on only what differs wakes the wait
        second_may_end.set()
    first_may_end.set()
