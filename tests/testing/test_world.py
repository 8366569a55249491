"""Several instances on one system in memory: deaths, takeovers, suspensions, steps of the clock, traces."""

from __future__ import annotations

import anyio
import attrs
import pytest

import eventproc
from eventproc.store.faults import Died
from eventproc.store.model.errors import InvalidArgument
from eventproc.testing import Fault, SimulatedWorld, VirtualRuntime
from eventproc.testing.virtual_runtime import Backend
from eventproc.windows import Tumbling, Window
from tests.support.simulated_world import in_simulated_world

BACKENDS: tuple[Backend, ...] = ("asyncio", "trio")


@attrs.define
class Sales:
    """What a window counts."""

    count: int = 0


class Handled:
    """An app that notes what it handled; each instance runs one of its own."""

    def __init__(self) -> None:
        self.payloads: list[bytes] = []
        self.app = eventproc.App()

        @self.app.processor("s/t", group="s/g", order="key")
        async def handle(event: eventproc.Event) -> None:
            self.payloads.append(event.payload)


@in_simulated_world
async def test_a_suspended_instance_does_nothing_and_continues_later(world: SimulatedWorld) -> None:
    handled = Handled()
    await world.start()
    worker = await world.start(handled.app)
    worker.suspend()
    await world.write("s/t", b"1", key="ana")
    await anyio.sleep(300)
    assert await world.lag() == 1
    worker.resume()
    await world.settled()
    assert handled.payloads == [b"1"]


@in_simulated_world
async def test_a_dead_instance_reaches_nothing_and_its_tasks_end(world: SimulatedWorld) -> None:
    instance = await world.start()
    await world.ep.create_scope("s")
    ticks = []

    async def tick() -> None:
        while True:
            ticks.append(await instance.ep.scopes())
            await anyio.sleep(1)

    instance.start_soon(tick)
    await anyio.sleep(2.5)
    instance.kill()
    await instance.ended()
    count = len(ticks)
    await anyio.sleep(10)
    assert count == len(ticks) == 3
    with pytest.raises(Died):
        await instance.ep.create_scope("t")
    assert [each.name for each in await world.ep.scopes()] == ["s"]


@in_simulated_world
async def test_a_result_that_became_durable_before_the_death_is_not_delivered(world: SimulatedWorld) -> None:
    instance = await world.start(faults=[Fault("scope.create.committed")])

    async def create() -> None:
        await instance.ep.create_scope("s")
        raise AssertionError("a dead process learned the result")

    instance.start_soon(create)
    await instance.ended()
    assert [each.name for each in await world.ep.scopes()] == ["s"]


@in_simulated_world
async def test_each_instance_has_its_own_wall_clock(world: SimulatedWorld) -> None:
    first, second = await world.start(), await world.start()
    first.clock.step_wall(-5_000)
    assert second.clock.wall_ms() - first.clock.wall_ms() == 5_000
    assert second.clock.monotonic_ms() == first.clock.monotonic_ms()
    world.clock.step_wall(1_000)
    assert second.clock.wall_ms() == world.clock.wall_ms()


@in_simulated_world
async def test_names_of_instances_are_unique(world: SimulatedWorld) -> None:
    await world.start(name="a")
    with pytest.raises(InvalidArgument):
        await world.start(name="a")
    with pytest.raises(InvalidArgument):
        await world.start(name="observer")


@in_simulated_world
async def test_an_instance_without_a_name_gets_one_that_no_other_has(world: SimulatedWorld) -> None:
    names = [(await world.start(name=each)).name for each in ("i2", None, "i5", None, None)]
    assert names == ["i2", "i3", "i5", "i4", "i6"]


async def _race(world: SimulatedWorld) -> str:
    handlers = [Handled() for _ in range(3)]
    instances = [await world.start(each.app) for each in handlers]
    for number in range(20):
        await world.write("s/t", b"%d" % number, key=str(number % 3))
        if number == 10:
            instances[0].kill()
        await anyio.sleep(1)  # virtual: within one second, few orders are possible
    await world.settled()
    return world.trace


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_same_seed_gives_the_same_trace_and_others_differ(backend: Backend) -> None:
    async def main(seed: int) -> str:
        async with SimulatedWorld(seed=seed) as world:
            return await _race(world)

    traces = [VirtualRuntime(seed=seed, backend=backend).run(main, seed) for seed in (1, 1, 2, 3)]
    assert traces[0] == traces[1]
    assert len(set(traces)) == 3


async def test_the_plugin_gives_a_world(eventproc_world: SimulatedWorld) -> None:
    handled = Handled()
    first = await eventproc_world.start()
    await eventproc_world.start(handled.app)
    first.kill()
    await eventproc_world.write("s/t", b"1", key="ana")
    await eventproc_world.settled()
    assert handled.payloads == [b"1"]


async def test_work_without_an_instance_is_reported(eventproc_world: SimulatedWorld) -> None:
    worker = await eventproc_world.start(Handled().app)
    worker.suspend()
    await eventproc_world.write("s/t", b"1", key="ana")
    with pytest.raises(AssertionError, match="start one"):
        await eventproc_world.settled()


@in_simulated_world
async def test_settled_waits_for_timers_that_event_time_has_reached(world: SimulatedWorld) -> None:
    app, closed = eventproc.App(), list[int]()

    async def close(window: Window[Sales], _context: eventproc.Context) -> None:
        await anyio.sleep(5)
        closed.append(window.value.count)

    @app.window("s/t", Tumbling(1_000), value=Sales, on_close=close)
    async def count(_event: eventproc.Event, window: Window[Sales]) -> None:
        window.value.count += 1

    await world.start(app)
    for event_time in (1, 2, 10_000):
        await world.write("s/t", b"1", key="ana", event_time=event_time)
    await world.settled()
    assert closed == [2]


@in_simulated_world
async def test_settled_misses_no_event_that_is_appended_during_a_look(world: SimulatedWorld) -> None:
    app, handled = eventproc.App(), list[bytes]()

    @app.processor("s/t")
    async def handle(event: eventproc.Event) -> None:
        await anyio.sleep(5)
        handled.append(event.payload)

    await world.start(app)
    async with (await world.ep.stream("s/t")).writer() as writer:
        await writer.write(b"1", key="ana", delay_ms=3)  # when the second look begins
    await world.settled()
    assert handled == [b"1"]
