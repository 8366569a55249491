"""Joint transactions deliver each input exactly once, through failures, scales, fenced readers and deaths."""

from __future__ import annotations

import anyio
import pytest

from eventproc.testing import run_seeded
from tests.joint.simulation import JointSimulation


@pytest.mark.hunt(seeds=10)
def test_outputs_equal_inputs_exactly_once_in_any_interleaving(seed: int) -> None:
    run_seeded(JointSimulation(seed, deaths=0).run, seed=seed)


@pytest.mark.hunt(seeds=20)
def test_outputs_equal_inputs_exactly_once_through_deaths_at_commits(seed: int) -> None:
    run_seeded(JointSimulation(seed, deaths=4).run, seed=seed)


@pytest.mark.hunt(seeds=2)
def test_outputs_equal_inputs_exactly_once_on_asyncio(seed: int) -> None:
    anyio.run(JointSimulation(seed, deaths=seed % 3, events=50, pace=0).run)
