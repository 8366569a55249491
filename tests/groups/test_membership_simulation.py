"""A group keeps its invariants through random changes of its members, subscriptions, assignors and streams."""

from __future__ import annotations

import pytest

from eventproc.testing import run_seeded
from tests.groups.membership_simulation import MembershipSimulation


@pytest.mark.hunt(seeds=20)
@pytest.mark.acceptance("K36", differs="simulated members")
def test_every_segment_has_one_owner_at_most_and_comes_to_its_target(seed: int) -> None:
    run_seeded(MembershipSimulation(seed).run, seed=seed)


def test_the_same_seed_gives_the_same_steps_and_the_same_generations() -> None:
    lives = [MembershipSimulation(5) for _ in range(2)]
    for life in lives:
        run_seeded(life.run, seed=5)
    assert lives[0].log == lives[1].log
    assert lives[0].generation == lives[1].generation
