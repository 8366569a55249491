"""A key that is stuck with many events: what may go on beside it does, in its segment and in others, within bounds."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import anyio
import pytest

import eventproc
from eventproc.processors import App, Running, run_app
from eventproc.processors.engine.workers import PUT_EVENTS
from eventproc.processors.options import ProcessorLimits
from eventproc.store.segments import Event
from eventproc.testing import VirtualClock
from tests.processors.support import GROUP, write
from tests.support.virtual_time import in_virtual_time

HOT = "s/hot"
HOT_EVENTS = 15_000
"""Events of the stuck key: more than workers need to be busy, and few bytes."""


@asynccontextmanager
async def stuck(
    keys: Mapping[str, Sequence[str]], limits: ProcessorLimits | None = None, **choices: object
) -> AsyncIterator[tuple[Running, Counter[str]]]:
    """EventRun an app on these streams, {name: keys of its events}, until nothing more happens; yield what it handled.

    A call for key "stuck" does not return before the block ends; then all is handled.
    """
    handled: Counter[str] = Counter()
    gate = anyio.Event()

    async def handle(event: Event) -> None:
        if event.key == "stuck":
            await gate.wait()
        handled[str(event.key)] += 1

    app = App()
    app.add(handle, *keys, group=GROUP, **choices)  # type: ignore[call-overload]
    async with eventproc.open_memory(clock=VirtualClock()) as ep:
        await ep.create_scope("s")
        for name, of_stream in keys.items():
            await ep.create_stream(name)
            await write(ep, of_stream, name)
        async with run_app(ep.db, app, limits=limits) as running:
            await anyio.sleep(10)
            yield running, handled
            gate.set()
            await running.wait_idle()
    assert handled == Counter(key for of_stream in keys.values() for key in of_stream)


@pytest.mark.parametrize("order", ["key", "segment"])
@in_virtual_time
async def test_a_stuck_key_with_many_events_does_not_hold_up_other_segments(order: str) -> None:
    streams = {HOT: ["stuck"] * HOT_EVENTS, "s/a": ["a"] * 3_000, "s/b": ["b"] * 3_000}
    async with stuck(streams, order=order, concurrency=4) as (_, handled):
        assert handled == {"a": 3_000, "b": 3_000}


@in_virtual_time
async def test_a_stuck_key_with_many_events_does_not_hold_up_the_keys_behind_them() -> None:
    async with stuck({HOT: [*["stuck"] * HOT_EVENTS, *["a", "b"] * 100]}) as (_, handled):
        assert handled == {"a": 100, "b": 100}


@in_virtual_time
async def test_many_stuck_segments_hold_a_bounded_number_of_events() -> None:
    most = 4_000

    streams = {f"s/hot{n}": ["stuck"] * HOT_EVENTS for n in range(3)} | {"s/a": ["a"] * 3_000}
    async with stuck(streams, ProcessorLimits(waiting_events_max=most)) as (running, handled):
        assert handled == {"a": 3_000}
        (status,) = await running.status()
        assert status.waiting <= most + 2 * PUT_EVENTS * len(streams)
