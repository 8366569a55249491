"""What `tests/conftest.py` promises to every other test."""

from __future__ import annotations

import anyio
import pytest


async def test_an_async_test_needs_no_mark_and_trio_s_time_is_virtual(anyio_backend_name: str) -> None:
    if anyio_backend_name == "trio":
        began = anyio.current_time()
        await anyio.sleep(3600)  # nothing else runs, so the clock jumps
        assert anyio.current_time() - began == pytest.approx(3600)


async def test_each_test_has_a_clock_of_its_own(anyio_backend_name: str) -> None:
    if anyio_backend_name == "trio":
        assert anyio.current_time() < 3600


@pytest.mark.hunt(seeds=3)
def test_a_hunt_is_given_its_seeds_and_may_begin_anywhere(seed: int, pytestconfig: pytest.Config) -> None:
    first, factor = pytestconfig.getoption("--hunt-from"), pytestconfig.getoption("--hunt")
    assert isinstance(first, int)
    assert isinstance(factor, int)
    assert first <= seed < first + 3 * factor
