"""Which values of a new key are stored: those that a call changed, or returned."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import attrs

from eventproc import App, Event, Eventproc, KeyState
from tests.processors.support import GROUP, STREAM, events, system, write


@attrs.define
class Sum:
    count: int = 0


async def process(ep: Eventproc, handler: Callable[..., object], state: Any) -> None:
    app = App()
    app.add(handler, STREAM, group=GROUP, state=state)
    async with ep.run(app) as running:
        await running.wait_idle()


async def test_a_call_that_changes_nothing_of_a_new_key_stores_no_state() -> None:
    async def keep(event: Event, total: Sum) -> None:
        if event.payload != b"0":
            total.count += int(event.payload)

    async with system() as ep:
        await ep.create_stream("s/changes")
        state = KeyState(Sum, changes="s/changes")
        await write(ep, ["a", "b", "b"])
        await process(ep, keep, state)
        assert [(each.key, each.value) for each in await ep.state(GROUP, Sum).list()] == [("b", Sum(3))]
        assert [each.key for each in await events(ep, "s/changes")] == ["b", "b"]
        await write(ep, ["b", "a", "a"])  # the first one changes nothing of a key that has a state
        await process(ep, keep, state)
        assert await ep.state(GROUP, Sum).get("a") == Sum(3)
        assert await ep.state(GROUP, Sum).get("b") == Sum(3)


async def test_a_new_value_that_a_call_returns_is_stored() -> None:
    async def keep(event: Event, total: Sum) -> Sum:
        return total

    async with system() as ep:
        await write(ep, ["a"])
        await process(ep, keep, Sum)
        assert await ep.state(GROUP, Sum).get("a") == Sum()


async def test_a_new_value_that_is_made_differently_each_time_is_stored() -> None:
    made = count()

    @attrs.define
    class Numbered:
        number: int = attrs.field(factory=lambda: next(made))

    async def keep(event: Event, value: Numbered) -> None:
        numbers.append(value.number)

    numbers: list[int] = []
    async with system() as ep:
        await write(ep, ["a", "a"])
        await process(ep, keep, Numbered)
        assert len(numbers) == 2
        assert numbers[0] == numbers[1]
