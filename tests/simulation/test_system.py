"""The system keeps its promises while instances die, hang, and have wrong clocks. `make simulate` looks longer."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from typing import Final

import pytest

from tests.simulation.__main__ import live
from tests.tidy.source import ROOT

SEEDS: Final = (2, 3)
"""One for trio, and one for asyncio."""


@cache
def lived(seed: int) -> tuple[int, str]:
    """Return the number of commits of a seed, and its trace."""
    simulation = live(seed)
    return simulation.happened.commits, simulation.trace


@pytest.mark.hunt(seeds=40)  # 20 in `make test`
def test_the_system_keeps_its_promises(seed: int) -> None:
    commits, _ = lived(seed)
    assert commits


@pytest.mark.subprocess
def test_the_same_seed_gives_the_same_trace_in_another_process_with_other_hashes() -> None:
    """Once on each event loop: the order of a set of texts, or of objects by address, decides nothing."""
    program = f"from tests.simulation.__main__ import live; print(*(live(seed).trace for seed in {SEEDS}))"
    with subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": "1"},
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        here = [lived(seed)[1] for seed in SEEDS]
        printed, _ = other.communicate()
    assert printed.split() == here
