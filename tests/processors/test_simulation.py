"""Processors of each kind keep their promises through failures, scales, comings and goings, and deaths."""

from __future__ import annotations

import anyio
import pytest

from eventproc.processors.declarations import OrderName
from eventproc.testing import run_seeded
from tests.processors.join_simulation import JoinSimulation
from tests.processors.simulation import ProcessorPlan, ProcessorSimulation
from tests.processors.window_simulation import WindowSimulation

ORDERS: tuple[OrderName | None, ...] = ("segment", "key", None)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.hunt(seeds=4)
def test_apps_that_come_and_go_in_order_handle_each_event_once(seed: int, order: OrderName | None) -> None:
    batch = (None, 4)[seed % 2]
    run_seeded(ProcessorSimulation(seed, ProcessorPlan(order=order, batch=batch, calm=True)).run, seed=seed)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("deaths", [0, 5])
@pytest.mark.hunt(seeds=4)
def test_no_event_is_lost_or_overtaken(seed: int, order: OrderName | None, deaths: int) -> None:
    plan = ProcessorPlan(order=order, batch=(None, None, 4)[seed % 3], deaths=deaths)
    run_seeded(ProcessorSimulation(seed, plan).run, seed=seed)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.hunt(seeds=6)
def test_exactly_once_outputs_are_there_once(seed: int, order: OrderName | None) -> None:
    plan = ProcessorPlan(
        order=order, batch=(None, None, 4)[seed % 3], exactly_once=True, deaths=(0, 5)[seed % 2]
    )
    run_seeded(ProcessorSimulation(seed, plan).run, seed=seed)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.hunt(seeds=2)
def test_processors_keep_their_promises_on_asyncio(seed: int, order: OrderName | None) -> None:
    plan = ProcessorPlan(order=order, exactly_once=seed % 2 == 0, deaths=2, events=60, pace=0.02)
    anyio.run(ProcessorSimulation(seed, plan).run)


@pytest.mark.parametrize("order", ["segment", "key"])
@pytest.mark.hunt(seeds=10)
def test_the_state_of_a_key_has_each_event_once_and_in_order(seed: int, order: OrderName) -> None:
    plan = ProcessorPlan(
        order=order,
        exactly_once=seed % 3 == 0,
        deaths=(0, 5)[seed % 2],
        state=True,
        cache_bytes=(1, 700, 2**20)[seed // 2 % 3],
    )
    run_seeded(ProcessorSimulation(seed, plan).run, seed=seed)


@pytest.mark.hunt(seeds=12)
def test_each_event_is_once_in_the_results_of_its_windows_or_late(seed: int) -> None:
    plan = ProcessorPlan(exactly_once=seed % 4 == 3, deaths=(0, 5)[seed % 2], calm=seed % 5 == 4)
    run_seeded(WindowSimulation(seed, plan).run, seed=seed)


@pytest.mark.hunt(seeds=12)
def test_each_pair_is_joined_once_unless_one_of_it_is_late(seed: int) -> None:
    plan = ProcessorPlan(exactly_once=seed % 4 == 3, deaths=(0, 5)[seed % 2], calm=seed % 5 == 4)
    run_seeded(JoinSimulation(seed, plan).run, seed=seed)


def test_the_same_seed_gives_the_same_life() -> None:
    lives = [ProcessorSimulation(3, ProcessorPlan(deaths=2)) for _ in range(2)]
    for life in lives:
        run_seeded(life.run, seed=3)
    assert lives[0].record.times == lives[1].record.times
