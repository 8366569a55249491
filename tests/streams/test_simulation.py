"""Writers and readers across random scales, truncations and deaths keep the invariants."""

from __future__ import annotations

import anyio
import pytest

from eventproc.testing import run_seeded
from tests.streams.simulation import StreamSimulation


@pytest.mark.hunt(seeds=15)
def test_a_stream_keeps_its_promises_in_any_interleaving(seed: int) -> None:
    run_seeded(StreamSimulation(seed, deaths=0).run, seed=seed)


@pytest.mark.hunt(seeds=40)
def test_a_stream_keeps_its_promises_through_deaths_at_commits(seed: int) -> None:
    run_seeded(StreamSimulation(seed, deaths=4).run, seed=seed)


@pytest.mark.hunt(seeds=4)
def test_a_stream_keeps_its_promises_on_asyncio(seed: int) -> None:
    anyio.run(StreamSimulation(seed, deaths=seed % 3, events_each=40).run)
