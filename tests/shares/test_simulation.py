"""A share group keeps its promises through deaths, expired locks, releases, rejections, renewals and scales."""

from __future__ import annotations

import pytest

from eventproc.testing import run_seeded
from tests.shares.simulation import ShareSimulation


@pytest.mark.hunt(seeds=20)
def test_events_are_accepted_once_or_become_dead_letters(seed: int) -> None:
    run_seeded(ShareSimulation(seed).run, seed=seed)


def test_the_same_seed_gives_the_same_shared_deliveries() -> None:
    lives = [ShareSimulation(3) for _ in range(2)]
    for life in lives:
        run_seeded(life.run, seed=3)
    assert lives[0].log == lives[1].log
