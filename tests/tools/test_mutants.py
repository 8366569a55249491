"""Planted bugs: each names an existing test, its patch applies, and only a test that fails finds it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.mutants import Ending, Mutation, misfit, mutations, problem, run

BUG = Mutation("late", "Nothing comes in time.", "tests/test_late.py::test_it_comes", Path("late.patch"))
ENDLESS = Mutation(BUG.name, BUG.bug, BUG.test, BUG.path, hangs="nobody wakes the waiter")


@pytest.mark.subprocess
@pytest.mark.parametrize("mutation", mutations(), ids=lambda each: each.name)
def test_a_planted_bug_applies_and_names_its_test(mutation: Mutation) -> None:
    assert misfit(mutation) is None


def test_only_a_test_that_fails_finds_a_bug() -> None:
    assert problem(BUG, Ending.FAILED) is None
    assert problem(BUG, Ending.PASSED) == f"{BUG.test} passes with the bug"
    assert problem(BUG, Ending.TIMED_OUT) == f"{BUG.test} timed out after 600 s"


def test_a_test_that_does_not_end_finds_only_a_bug_that_hangs() -> None:
    assert problem(ENDLESS, Ending.TIMED_OUT) is None
    assert problem(ENDLESS, Ending.PASSED) == f"{BUG.test} passes with the bug"
    assert problem(ENDLESS, Ending.FAILED) == f"{BUG.test} ends: take the line `# hangs: ...` from the patch"


@pytest.mark.subprocess
@pytest.mark.parametrize(
    ("body", "timeout_s", "ending"),
    [
        ("pass", 60, Ending.PASSED),
        ("assert False", 60, Ending.FAILED),
        ("__import__('threading').Event().wait()", 0.1, Ending.TIMED_OUT),
    ],
)
def test_a_run_tells_a_failure_from_a_test_that_does_not_end(
    body: str, timeout_s: float, ending: Ending, tmp_path: Path
) -> None:
    (tmp_path / "test_it.py").write_text(f"def test_it():\n    {body}\n")
    assert run(["test_it.py"], tmp_path, timeout_s=timeout_s) is ending
