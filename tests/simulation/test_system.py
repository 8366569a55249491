"""The system keeps its promises while instances die, hang, and have wrong clocks. `make simulate` looks longer."""

from __future__ import annotations

import pytest

from tests.simulation.__main__ import live


@pytest.mark.hunt(seeds=40)  # 20 in `make test`
def test_the_system_keeps_its_promises(seed: int) -> None:
    assert live(seed).happened.commits


def test_the_same_seed_of_the_system_gives_the_same_trace() -> None:
    assert live(2).trace == live(2).trace
