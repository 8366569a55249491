"""A group keeps its promises through random joins, leaves, pauses, deaths, scales and schedules."""

from __future__ import annotations

import anyio
import pytest

from eventproc.testing import run_seeded
from tests.groups.simulation import GroupSimulation


@pytest.mark.hunt(seeds=8)
@pytest.mark.acceptance("K42")
def test_each_event_is_delivered_to_exactly_one_reader_in_order_of_its_key(seed: int) -> None:
    run_seeded(GroupSimulation(seed, deaths=False).run, seed=seed)


@pytest.mark.hunt(seeds=8)
@pytest.mark.acceptance("K36", differs="simulated members")
def test_through_deaths_every_event_is_delivered_in_order_of_its_key(seed: int) -> None:
    run_seeded(GroupSimulation(seed, deaths=True).run, seed=seed)


def test_the_same_seed_gives_the_same_deliveries() -> None:
    lives = [GroupSimulation(3, deaths=True) for _ in range(2)]
    for life in lives:
        run_seeded(life.run, seed=3)
    assert lives[0].log == lives[1].log


def test_the_promises_are_kept_on_asyncio() -> None:
    simulation = GroupSimulation(1, deaths=True, events=40, pace=0.02)
    anyio.run(simulation.run)
    assert simulation.log
