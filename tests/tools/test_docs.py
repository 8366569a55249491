"""The generated documents: what is collected, and what the gate refuses."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from eventproc.store.model.states import NEXT, SCOPE_NEXT
from eventproc.store.model.transactions import TXN_NEXT
from tools.docs import acceptance, states
from tools.docs.acceptance import Mark
from tools.docs.acceptance_cases import REQUIRED

MARKED = """
@pytest.mark.acceptance("A99", differs="no " "clock")
def test_a_late_case(): ...

@pytest.mark.acceptance("A2")
@pytest.mark.acceptance("A1", differs="a | b")
async def test_two_cases_at_once(): ...

def test_none(): ...
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    (tmp_path / "tests" / "model").mkdir(parents=True)
    (tmp_path / "tests" / "model" / "test_marked.py").write_text(MARKED)
    return tmp_path


def test_marks_are_read_from_the_source(repository: Path) -> None:
    assert sorted(acceptance.collect(repository / "tests")) == [
        Mark("A1", "tests/model/test_marked.py::test_two_cases_at_once", "a | b"),
        Mark("A2", "tests/model/test_marked.py::test_two_cases_at_once", ""),
        Mark("A99", "tests/model/test_marked.py::test_a_late_case", "no clock"),
    ]


def test_cases_come_in_the_order_of_the_reference_with_their_tests(repository: Path) -> None:
    text = acceptance.render(repository).removeprefix(acceptance.HEAD)
    assert re.findall(r"^\*\*(\w+)\.\*\*", text, re.MULTILINE) == ["A1", "A2", "A99"]
    tests = re.findall(r"^- .*$", text, re.MULTILINE)
    assert tests[0] == "- [two cases at once](../tests/model/test_marked.py). Differs: a | b"


def test_a_missing_case_and_an_unknown_one_are_problems(repository: Path) -> None:
    problems = acceptance.problems(repository)
    assert [line for line in problems if "A99" in line] == [
        "acceptance case A99 is not described in tools/docs/acceptance_cases.py"
    ]
    assert len(problems) == len(REQUIRED) - 2 + 1


def test_every_row_and_transition_of_the_tables_is_written() -> None:
    written = states.render().splitlines()
    for table in (NEXT, SCOPE_NEXT, TXN_NEXT):
        for state, row in table.items():
            after = ", ".join(f"{event.value} → {target.value}" for event, target in row.items())
            assert f"| {state.value} | {after} |" in written
