"""Keyed workers against a naive twin: a list per key, handled one after the other, keys side by side."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import partial
from random import Random

import anyio
import pytest

from eventproc.processors import KeyedWorkers
from eventproc.processors.keyed import ITEMS_A_TURN
from eventproc.testing import run_seeded


class Handled:
    """What handlers saw, and how many of them ran side by side."""

    def __init__(self, pause: Callable[[], float | None] = lambda: None) -> None:
        self.items: defaultdict[object, list[int]] = defaultdict(list)
        self.running: set[object] = set()
        self.at_once = 0
        self._pause = pause

    async def handle(self, item: tuple[object, int]) -> None:
        key, number = item
        assert key is None or key not in self.running, f"two handlers of {key!r} at once"
        self.running.add(key)
        self.at_once = max(self.at_once, len(self.running))
        if (seconds := self._pause()) is not None:
            await anyio.sleep(seconds)
        self.running.discard(key)
        self.items[key].append(number)


async def _process(seed: int) -> None:
    random = Random(seed)
    handled = Handled(lambda: random.choice([None, None, 0, random.random()]))
    expected: defaultdict[object, list[int]] = defaultdict(list)
    workers = KeyedWorkers(
        handled.handle, workers=random.randint(1, 8), waiting_max=random.choice([1, 3, 10_000])
    )
    async with workers:
        for number in range(random.randint(1, 30)):
            batch = []
            for each in range(random.randint(0, 3 * ITEMS_A_TURN if number == 0 else 12)):
                key = random.choice([None, "a", "b", "c", 1, ("tuple",)])
                expected[key].append(number * 1000 + each)
                batch.append((key, (key, number * 1000 + each)))
            await workers.put(batch)
            if random.random() < 0.1:
                await workers.drain()
                assert _in_order(handled.items) == _in_order(expected)
    assert workers.unfinished == 0
    assert _in_order(handled.items) == _in_order(expected)


def _in_order(items: Mapping[object, list[int]]) -> dict[object, list[int]]:
    """Return the items by key; those without a key have no order, here that of their numbers."""
    return {key: sorted(numbers) if key is None else numbers for key, numbers in items.items()}


@pytest.mark.hunt(seeds=60)
def test_every_item_is_handled_once_in_the_order_of_its_key(seed: int) -> None:
    run_seeded(partial(_process, seed), seed=seed)


async def test_keys_run_side_by_side_and_no_more_than_there_are_workers() -> None:
    handled = Handled(lambda: 0.01)
    async with KeyedWorkers(handled.handle, workers=5) as workers:
        await workers.put((key, (key, 0)) for key in range(20))
    assert handled.at_once == 5


async def test_a_stuck_key_lets_the_others_go_on() -> None:
    stuck, others = anyio.Event(), anyio.Event()
    done: list[str] = []

    async def handle(key: str) -> None:
        if key == "stuck":
            await stuck.wait()
        done.append(key)
        if len(done) == 200:
            others.set()

    async with KeyedWorkers(handle, workers=2) as workers:
        await workers.put(("stuck", "stuck") for _ in range(3))
        await workers.put((f"k{number % 7}", f"k{number % 7}") for number in range(200))
        await others.wait()
        assert (workers.unfinished, "stuck" in done) == (3, False)
        stuck.set()
    assert done[200:] == ["stuck"] * 3


async def test_putting_waits_while_too_much_is_unfinished() -> None:
    go = anyio.Event()
    most = 0

    async def handle(item: int) -> None:
        await go.wait()

    async with KeyedWorkers(handle, workers=1, waiting_max=4) as workers:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(workers.put, ((number, number) for number in range(20)))
            await anyio.wait_all_tasks_blocked()
            most = workers.unfinished
            go.set()
        assert workers.unfinished <= 4
    assert most == 4


@pytest.mark.parametrize("where", ["put", "drain", "block", "end"])
async def test_what_a_handler_raises_ends_the_block_with_that_error(where: str) -> None:
    cancelled: list[int] = []

    async def handle(item: int) -> None:
        if item == 3:
            raise KeyError(item)
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            cancelled.append(item)
            raise

    async def process() -> None:
        async with KeyedWorkers(handle, workers=8, waiting_max=4 if where == "put" else 100) as workers:
            await workers.put((number, number) for number in range(6))
            if where == "drain":
                await workers.drain()
            elif where == "block":
                await anyio.sleep_forever()

    with pytest.raises(KeyError):
        await process()
    assert set(cancelled) <= {0, 1, 2, 4, 5}


async def test_an_error_of_the_block_is_raised_as_it_is_and_what_waits_is_dropped() -> None:
    handled: list[int] = []

    async def handle(item: int) -> None:
        await anyio.sleep(3600)
        handled.append(item)

    async def process() -> None:
        async with KeyedWorkers(handle, workers=2) as workers:
            await workers.put((number, number) for number in range(6))
            raise LookupError("of the block")

    with pytest.raises(LookupError, match="of the block"):
        await process()
    assert handled == []


async def test_cancelled_from_outside_it_ends_at_once() -> None:
    async def handle(item: int) -> None:
        await anyio.sleep_forever()

    with anyio.move_on_after(0.01) as scope:
        async with KeyedWorkers(handle, workers=2) as workers:
            await workers.put((number, number) for number in range(6))
    assert scope.cancelled_caught


async def test_several_who_drain_are_all_told() -> None:
    go = anyio.Event()
    drained: list[int] = []

    async def handle(item: int) -> None:
        await go.wait()

    async def drain(workers: KeyedWorkers[int], number: int) -> None:
        await workers.drain()
        drained.append(number)

    async with KeyedWorkers(handle, workers=2) as workers:
        await workers.put([("a", 1)])
        async with anyio.create_task_group() as tasks:
            for number in range(3):
                tasks.start_soon(drain, workers, number)
            await anyio.wait_all_tasks_blocked()
            go.set()
    assert sorted(drained) == [0, 1, 2]
