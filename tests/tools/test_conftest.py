"""What `tests/conftest.py` gives to every other test."""

from __future__ import annotations

import subprocess

import anyio
import pytest

from tests.conftest import GUARD, choose_forms


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
    assert isinstance(factor, float)
    assert first <= seed < first + max(3 * factor, 1)


def test_one_form_of_each_test_and_parameter_is_chosen_and_all_forms_have_their_turn() -> None:
    variants = [
        (f"test_{number}", {"form": form, "size": size})
        for number in range(30)
        for size in range(2)
        for form in range(3)
    ]
    variants.append(("test_alone", {}))
    kept = [variant for variant, is_chosen in zip(variants, choose_forms(variants), strict=True) if is_chosen]
    assert len(kept) == 30 * 2 + 1
    assert len({(name, indices.get("size")) for name, indices in kept}) == len(kept)
    assert {indices.get("form") for _, indices in kept} == {0, 1, 2, None}


def test_a_test_without_a_mark_may_not_start_a_process() -> None:
    with pytest.raises(AssertionError, match="mark this test"):
        subprocess.run(["true"], check=True)
    assert GUARD.refused.pop() == "subprocess.Popen"


@pytest.mark.subprocess
def test_a_marked_test_may_start_a_process() -> None:
    subprocess.run(["true"], check=True)
