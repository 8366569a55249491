"""What `tests/conftest.py` gives to every other test."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from tests.conftest import GUARD, choose_forms
from tests.support.child_process import PATIENCE_S, REPOSITORY


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


HANGING = """
import threading

import anyio
import pytest

def wait_without_end():
    threading.Event().wait()


@pytest.mark.timeout(1)
async def test_that_hangs():
    await anyio.to_thread.run_sync(wait_without_end)


def test_that_follows():
    pass
"""


@pytest.mark.subprocess
@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_test_that_hangs_ends_with_the_stacks_of_its_threads_and_its_name(
    tmp_path: Path, workers: str
) -> None:
    (tmp_path / "conftest.py").write_text("from tests.conftest import *\n")
    (tmp_path / "test_hanging.py").write_text(HANGING)
    options = ["-n", workers, "--dist", "worksteal", "-p", "no:cacheprovider", f"--rootdir={tmp_path}"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-c", REPOSITORY / "pyproject.toml", *options, tmp_path],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    printed = done.stdout + done.stderr
    assert done.returncode == 1, printed
    assert "in wait_without_end" in printed, printed
    assert "test_hanging.py::test_that_hangs[asyncio] has reached its time limit" in printed, printed
    if workers != "0":  # the workers that ended were replaced
        assert "test_hanging.py::test_that_hangs[trio] has reached its time limit" in printed, printed
        assert "2 failed, 1 passed" in printed, printed
