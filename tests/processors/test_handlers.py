"""Handlers that do what none should: they end as cancelled, yield, return what must be awaited, fail side by side."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Iterator

import anyio
import pytest

from eventproc.processors import App, Context, Directive, RetryPolicy
from eventproc.processors.engine.workers import find_blocker
from eventproc.processors.errors import CallEnded
from eventproc.processors.options import ProcessingOrder
from eventproc.store.model.errors import InvalidArgument
from eventproc.store.segments import Event
from tests.processors.support import GROUP, OUT, STREAM, finished, lag, letters, payloads, system, write
from tests.processors.worker import WorkerHarness
from tests.support.virtual_time import in_virtual_time


@pytest.mark.parametrize("order", list(ProcessingOrder))
@pytest.mark.parametrize("batch", [None, 4])
async def test_a_call_that_cancels_itself_counts_as_failed_and_the_workers_continue(
    order: ProcessingOrder, batch: int | None
) -> None:
    async def handle(events: Event | list[Event]) -> None:
        each = events if isinstance(events, list) else [events]
        if any(event.number == 1 for event in each):
            raise anyio.get_cancelled_exc_class()()

    harness = WorkerHarness(handle, order=order, batch=batch, concurrency=1)
    await harness.process(["a", "a", "a", "b"])
    assert sorted(harness.done) == [0, 2, 3]
    assert [(number, attempts) for number, attempts, _ in harness.gone] == [(1, 3)]


async def test_a_plain_function_that_ends_as_cancelled_fails_and_earlier_events_count() -> None:
    cancelled, calls = anyio.get_cancelled_exc_class(), []

    def handle(event: Event) -> None:
        calls.append(event.number)
        if event.number == 2:
            raise cancelled()

    harness = WorkerHarness(handle, concurrency=1)
    await harness.process(["a"] * 4)
    assert calls == [0, 1, 2, 2, 2, 3]
    assert [(number, attempts) for number, attempts, _ in harness.gone] == [(2, 3)]


async def test_a_plain_handler_that_returns_an_awaitable_fails() -> None:
    async def work(event: Event) -> None:
        raise AssertionError(f"it is never awaited for {event}")

    def handle(event: Event) -> Awaitable[None]:
        return work(event)

    harness = WorkerHarness(handle)
    await harness.process("a")
    assert harness.done == []
    assert harness.gone == [(0, 3, "NotAwaitedError")]


async def yields_async(event: Event) -> AsyncIterator[Event]:
    yield event


def yields(event: Event) -> Iterator[Event]:
    yield event


class Yields:
    def process(self, event: Event) -> Iterator[Event]:
        yield event


@pytest.mark.parametrize("handler", [yields_async, yields, Yields])
def test_a_handler_that_yields_is_refused(handler: object) -> None:
    with pytest.raises(InvalidArgument, match="it yields"):
        App().add(handler, STREAM)  # type: ignore[call-overload]


async def test_concurrent_failures_restart_the_handler_once_while_no_call_runs() -> None:
    made: list[Fragile] = []
    begun = anyio.Event()

    class Fragile:
        def __init__(self) -> None:
            self.is_open = False
            made.append(self)

        async def start(self) -> None:
            self.is_open = True

        async def stop(self) -> None:
            self.is_open = False
            for _ in range(20):
                await anyio.lowlevel.checkpoint()

        async def process(self, event: Event) -> None:
            assert self.is_open, "a call for a handler that was stopped"
            if len(made) == 1:
                if event.key == "b":
                    begun.set()
                    for _ in range(5):
                        await anyio.lowlevel.checkpoint()
                await begun.wait()
                raise OSError("connection lost")
            await anyio.lowlevel.checkpoint()

    async with system() as ep:
        await write(ep, [*"ab", *"cdefgh" * 20])
        app = App()
        app.add(
            Fragile,
            STREAM,
            group=GROUP,
            concurrency=2,
            retry=RetryPolicy(attempts=1),
            supervise=lambda _: Directive.RESTART,
        )
        async with ep.run(app) as running:
            await finished(running, 122)
            (status,) = await running.status()
        assert (status.restarts, status.dead_letters, len(made)) == (1, 2, 2)
        assert await lag(ep) == 0


@in_virtual_time
@pytest.mark.parametrize("exactly_once", [False, True])
async def test_the_end_of_an_app_cuts_no_handler_off_that_stops_for_a_restart(exactly_once: bool) -> None:
    stopping, stopped = anyio.Event(), list[object]()

    class Fragile:
        async def process(self, event: Event) -> None:
            raise OSError("connection lost")

        async def stop(self) -> None:
            stopping.set()
            await anyio.sleep(1)
            stopped.append(self)

    async with system() as ep:
        await write(ep, "a")
        app = App()
        app.add(
            Fragile,
            STREAM,
            group=GROUP,
            exactly_once=exactly_once,
            retry=RetryPolicy(attempts=1),
            supervise=lambda _: Directive.RESTART,
        )
        async with ep.run(app):
            await stopping.wait()
        assert len(stopped) == 2


async def test_what_is_emitted_after_the_handler_returned_is_refused() -> None:
    kept: list[Context] = []

    async def handle(event: Event, context: Context) -> None:
        context.emit(OUT, event.payload)
        kept.append(context)

    async with system() as ep:
        await write(ep, "a")
        app = App()
        app.add(handle, STREAM, group=GROUP)
        async with ep.run(app) as running:
            await finished(running, 1)
            with pytest.raises(CallEnded, match="the function has returned"):
                kept[0].emit(OUT, b"7")
        assert await payloads(ep) == [0]


async def test_an_error_whose_text_fails_is_a_failure_like_others() -> None:
    class Silent(Exception):
        def __str__(self) -> str:
            raise AttributeError("no text")

    async def handle(event: Event) -> None:
        raise Silent

    async with system() as ep:
        await write(ep, "a")
        app = App()
        app.add(handle, STREAM, group=GROUP, retry=RetryPolicy(attempts=2, wait_ms=0, jitter_ms=0))
        async with ep.run(app) as running:
            await finished(running, 1)
            (status,) = await running.status()
        assert status.last_error == "Silent: it has no text: its str() fails"
        assert await letters(ep) == [(0, f"{__name__}.{Silent.__qualname__}", 2)]


@in_virtual_time
async def test_what_holds_progress_up_is_told_with_its_own_error() -> None:
    async def handle(event: Event) -> None:
        if event.key == "b":
            raise ValueError("of another key")
        raise OSError("its own")

    harness = WorkerHarness(handle, retry=RetryPolicy(attempts=9, wait_ms=10_000))
    async with harness.running():
        await harness.put("a")
        await anyio.sleep(1)
        await harness.put("b")
        await anyio.sleep(1)
        blocker = find_blocker(harness.pool, wall_ms=0)
        assert harness.failures == [(0, 1, "OSError"), (1, 1, "ValueError")]
    assert blocker is not None
    assert (blocker.key, blocker.attempt, blocker.error) == ("a", 2, "OSError: its own")
