"""What one task opened another one closes: on asyncio and trio, in memory; in a directory on asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import anyio
import pytest

import eventproc
from eventproc import Event, Eventproc, Opening, Stream
from eventproc.errors import Closed, DatabaseStopped, IllegalTransition, StreamSealed, WriterFailed
from eventproc.processors import Running
from tests.support.reading import payloads_of

T = TypeVar("T")


async def in_a_task(function: Callable[[], Awaitable[T]]) -> T:
    """Run the function in a task of its own, which has ended when this returns."""
    found: list[T] = []

    async def run() -> None:
        found.append(await function())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
    return found[0]


async def opened(opening: Opening[Eventproc]) -> Eventproc:
    async def start() -> Eventproc:
        return await opening

    return await in_a_task(start)


async def orders_of(ep: Eventproc) -> Stream:
    await ep.create_scope("shop")
    return await ep.create_stream("shop/orders")


async def in_a_call(stream: Stream, ep: Eventproc) -> tuple[Running, anyio.Event]:
    """Return an app that is in a call for the first event of a stream, and what ends the call."""
    async with stream.writer() as writer:
        await writer.write(b"apple")
    app, begun, go_on = eventproc.App(), anyio.Event(), anyio.Event()

    @app.processor("shop/orders", group="packers")
    async def pack(_event: Event) -> None:
        begun.set()
        await go_on.wait()

    running = await ep.run(app)
    await begun.wait()
    return running, go_on


@pytest.fixture
async def ep() -> AsyncIterator[Eventproc]:
    found = await opened(eventproc.open_memory())
    yield found
    await in_a_task(found.close)


async def test_each_object_is_used_in_other_tasks_than_opened_and_closed_it(ep: Eventproc) -> None:
    stream = await in_a_task(lambda: orders_of(ep))

    async def use(writer: eventproc.EventWriter[bytes]) -> None:
        await writer.write(b"apple", key="ana")
        await writer.post(b"pear", key="ana")

    writer = stream.writer()
    await in_a_task(writer.__aenter__)
    await in_a_task(lambda: use(writer))
    await in_a_task(writer.close)  # waits for what was posted
    reader = stream.reader()
    await in_a_task(reader.__aenter__)
    events = reader.until(await stream.tail())
    assert (await in_a_task(events.__anext__)).payload == b"apple"
    assert (await in_a_task(events.__anext__)).payload == b"pear"
    await in_a_task(events.aclose)  # trio asks for it, in every program
    await in_a_task(reader.close)
    group = await ep.create_group("billing", ["shop/orders"])
    member = group.reader("r1")
    await in_a_task(member.__aenter__)
    shared = member.until(await stream.tail())
    assert (await in_a_task(shared.__anext__)).payload == b"apple"
    await in_a_task(shared.aclose)
    await in_a_task(member.close)  # finishes the event in hand
    assert (await group.describe()).events == 1


async def test_an_app_drains_when_another_task_closes_it(ep: Eventproc) -> None:
    stream = await orders_of(ep)
    app, handled = eventproc.App(), list[bytes]()
    begun, go_on = anyio.Event(), anyio.Event()

    @app.processor("shop/orders")
    async def handle(event: Event) -> None:
        begun.set()
        await go_on.wait()
        handled.append(event.payload)

    async def start() -> eventproc.Running:
        return await ep.run(app)

    running = await in_a_task(start)
    async with stream.writer() as writer:
        await writer.write(b"apple")
    await begun.wait()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(running.close)
        tasks.start_soon(running.close)  # waits for the first
        await anyio.wait_all_tasks_blocked()
        assert running.closed
        go_on.set()
    assert handled == [b"apple"]
    await running.wait_idle()
    async with stream.writer() as writer:
        await writer.write(b"pear")
    with pytest.raises(Closed):
        await running.wait_idle()


async def test_closing_a_system_closes_what_is_open_on_it_newest_first(ep: Eventproc) -> None:
    stream = await orders_of(ep)
    app, handled = eventproc.App(), list[bytes]()

    @app.processor("shop/orders")
    async def handle(event: Event) -> None:
        handled.append(event.payload)

    running = await ep.run(app)
    writer = await stream.writer()
    await writer.post(b"apple")
    await in_a_task(ep.close)
    assert writer.closed
    assert writer.events_written == 1  # it was flushed
    assert running.closed


async def test_what_is_opened_while_a_system_closes_is_closed_too(ep: Eventproc) -> None:
    stream = await orders_of(ep)
    _, go_on = await in_a_call(stream, ep)
    writer = stream.writer()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ep.close)
        while not ep.closed:
            await anyio.lowlevel.checkpoint()
        await writer
        await writer.post(b"pear")
        go_on.set()
    assert writer.closed
    assert writer.events_written == 1


@pytest.mark.parametrize("times", [2, 3])
async def test_closing_again_does_nothing(ep: Eventproc, times: int) -> None:
    writer = (await orders_of(ep)).writer()
    for _ in range(times):
        await writer.close()  # it is not open
    async with writer:
        pass
    for _ in range(times):
        await ep.close()
        await writer.close()
    with pytest.raises(Closed):
        await ep.create_scope("other")
    with pytest.raises(Closed):
        await writer.write(b"late")
    with pytest.raises(Closed):
        await writer


async def test_what_was_awaited_may_be_entered_once(ep: Eventproc) -> None:
    stream = await orders_of(ep)
    async with await stream.writer() as writer:
        await writer.write(b"apple")
        with pytest.raises(IllegalTransition, match="open already"):
            await writer.__aenter__()
        with pytest.raises(IllegalTransition, match="open already"):
            await writer
    assert writer.closed


async def test_calls_that_wait_raise_closed_when_another_task_closes(ep: Eventproc) -> None:
    stream = await orders_of(ep)
    group = await ep.create_group("billing", ["shop/orders"])
    reader, member = await stream.reader(), await group.reader("r1")
    async with anyio.create_task_group() as tasks:
        for each in (reader, member):

            async def wait(events: AsyncIterator[Event]) -> None:
                with pytest.raises(Closed):
                    await anext(events)

            tasks.start_soon(wait, aiter(each))
        await anyio.wait_all_tasks_blocked()
        await ep.close()
    assert (reader.closed, member.closed) == (True, True)


async def test_an_error_while_closing_is_raised_after_everything_is_closed(ep: Eventproc) -> None:
    stream = await orders_of(ep)
    broken, reader = await stream.writer(), await stream.reader()
    await stream.seal()
    await broken.post(b"apple")
    with pytest.raises((StreamSealed, WriterFailed)):
        await ep.close()
    assert reader.closed
    with pytest.raises(Closed):
        await ep.scopes()


async def test_an_object_that_cannot_be_opened_may_be_opened_later(ep: Eventproc) -> None:
    stream = await orders_of(ep)
    await stream.seal()
    writer = stream.writer()
    for _ in range(2):
        with pytest.raises(StreamSealed):
            await writer
    await writer.close()


async def test_an_opening_is_entered_once() -> None:
    opening = eventproc.open_memory()
    async with opening:
        with pytest.raises(IllegalTransition):
            await opening.__aenter__()


async def test_a_cancellation_while_closing_leaves_nothing_open(ep: Eventproc) -> None:
    stream = await orders_of(ep)
    app, begun = eventproc.App(), anyio.Event()

    @app.processor("shop/orders")
    async def handle(_: Event) -> None:
        begun.set()
        await anyio.sleep_forever()

    running = await ep.run(app, grace_ms=0)
    writer = await stream.writer()
    await writer.write(b"apple")
    await begun.wait()
    with anyio.CancelScope() as scope:
        scope.cancel()
        await ep.close()
    assert (running.closed, writer.closed, ep.closed) == (True, True, True)
    assert running.in_flight == 0
    with pytest.raises(Closed):
        await ep.scopes()


async def test_a_cancelled_block_waits_until_another_task_has_closed_its_object(ep: Eventproc) -> None:
    running, go_on = await in_a_call(await orders_of(ep), ep)

    async def finish() -> None:
        await anyio.wait_all_tasks_blocked()  # until the block waits
        go_on.set()

    async with anyio.create_task_group() as tasks:
        with anyio.CancelScope() as scope:
            async with running:
                tasks.start_soon(running.close)
                tasks.start_soon(finish)
                while not running.closed:
                    await anyio.lowlevel.checkpoint()
                scope.cancel()
        assert (await ep.processor("shop/packers")).group.events == 0


async def test_a_failure_in_the_background_reaches_calls_that_wait_and_close(ep: Eventproc) -> None:
    stream = await orders_of(ep)

    async def fail() -> None:
        await anyio.lowlevel.checkpoint()
        raise ZeroDivisionError

    async with stream.reader() as reader, anyio.create_task_group() as tasks:

        async def wait() -> None:
            with pytest.raises(DatabaseStopped, match="ZeroDivisionError") as raised:
                await anext(aiter(reader))
            assert isinstance(raised.value.__cause__, ZeroDivisionError)

        tasks.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        ep._tasks.start_soon(fail)
    with pytest.raises(DatabaseStopped):
        await stream.tail()
    with pytest.raises(ZeroDivisionError):
        await ep.close()
    await ep.close()


async def test_a_failed_sender_of_a_writer_reaches_its_callers_and_close(ep: Eventproc) -> None:
    stream = await orders_of(ep)
    writer = await stream.writer()

    async def fail() -> None:
        raise ZeroDivisionError

    await writer.write(b"apple")
    writer._tasks.start_soon(fail)
    await anyio.wait_all_tasks_blocked()
    with pytest.raises(WriterFailed, match="ZeroDivisionError"):
        await writer.post(b"pear")
    with pytest.raises(ZeroDivisionError):
        await writer.close()
    assert await payloads_of(stream) == [b"apple"]


async def test_a_flush_raises_if_the_sender_failed_while_it_sent_posted_events(
    ep: Eventproc, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = await orders_of(ep)
    writer = await stream.writer()

    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("eventproc.streams.sends.append", fail)
    await writer.post(b"apple")
    await anyio.wait_all_tasks_blocked()  # the send fails before anybody waits for it
    with pytest.raises(WriterFailed, match="ZeroDivisionError"):
        await writer.flush()
    with pytest.raises(ZeroDivisionError):
        await writer.close()
    assert await payloads_of(stream) == []


async def test_a_call_that_waits_for_a_host_raises_closed_when_another_task_closes() -> None:
    ep = await eventproc.open_memory(host=False)
    await ep.create_scope("shop")

    async def wait() -> None:
        with pytest.raises(Closed):
            await ep.create_stream("shop/orders")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        await ep.close()


@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
async def test_a_cancelled_task_of_asyncio_closes_all_before_it_ends(tmp_path: Path) -> None:
    ep = await eventproc.open(tmp_path / "data", durability="os")
    app, begun = eventproc.App(), anyio.Event()
    stream = await orders_of(ep)

    @app.processor("shop/orders")
    async def handle(_: Event) -> None:
        begun.set()
        await anyio.sleep_forever()

    running = await ep.run(app, grace_ms=100)
    writer = await stream.writer()
    await writer.write(b"apple")
    await begun.wait()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await ep.close()
    assert (running.closed, writer.closed, ep.closed, running.in_flight) == (True, True, True, 0)
    assert list((tmp_path / "data" / "instances").iterdir()) == []
