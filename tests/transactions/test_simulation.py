"""Transactions across random scales, timeouts, a seal and deaths keep every promise."""

from __future__ import annotations

import anyio
import pytest

from eventproc.testing import run_seeded
from tests.transactions.simulation import TransactionSimulation


@pytest.mark.hunt(seeds=10)
def test_transactions_keep_their_promises_in_any_interleaving(seed: int) -> None:
    run_seeded(TransactionSimulation(seed, deaths=0).run, seed=seed)


@pytest.mark.hunt(seeds=25)
def test_transactions_keep_their_promises_through_deaths_at_commits(seed: int) -> None:
    run_seeded(TransactionSimulation(seed, deaths=4).run, seed=seed)


@pytest.mark.hunt(seeds=3)
def test_transactions_keep_their_promises_on_asyncio(seed: int) -> None:
    anyio.run(TransactionSimulation(seed, deaths=seed % 3, transactions=8, pace=0).run)
