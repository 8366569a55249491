"""Processors of each kind keep their promises through failures, scales, comings and goings, and deaths."""

from __future__ import annotations

import pytest

from eventproc.processors.app import OrderName
from eventproc.testing import run_seeded
from tests.processors.simulation import Plan, Simulation

ORDERS: tuple[OrderName | None, ...] = ("segment", "key", None)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.hunt(seeds=8)
def test_apps_that_come_and_go_in_order_handle_each_event_once(seed: int, order: OrderName | None) -> None:
    batch = (None, 4)[seed % 2]
    run_seeded(Simulation(seed, Plan(order=order, batch=batch, calm=True)).run, seed=seed)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.hunt(seeds=10)
def test_no_event_is_lost_or_overtaken(seed: int, order: OrderName | None) -> None:
    run_seeded(Simulation(seed, Plan(order=order, batch=(None, None, 4)[seed % 3])).run, seed=seed)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.hunt(seeds=10)
def test_no_event_is_lost_or_overtaken_through_deaths(seed: int, order: OrderName | None) -> None:
    run_seeded(Simulation(seed, Plan(order=order, batch=(None, None, 4)[seed % 3], deaths=5)).run, seed=seed)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.hunt(seeds=12)
def test_exactly_once_outputs_are_there_once(seed: int, order: OrderName | None) -> None:
    plan = Plan(order=order, batch=(None, None, 4)[seed % 3], exactly_once=True, deaths=(0, 5)[seed % 2])
    run_seeded(Simulation(seed, plan).run, seed=seed)
