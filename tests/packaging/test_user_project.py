"""A project of a user, outside of the repository, with eventproc and pytest alone, runs the tests of the guide."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.docs.page import blocks
from tests.packaging.conftest import BIN, make_environment, run
from tests.tidy.source import ROOT

PAGE = ROOT / "docs" / "guide" / "testing-your-code.md"

HANDLER = """
from shop import app, sent


async def test_an_order_is_mailed(eventproc_runtime):
    async with eventproc_runtime.running(app) as t:
        await t.write("shop/orders", b"2 apples", key="ana")
        await t.settled()
        assert sent == [b"2 apples"]
"""
"""The test of five lines. The tests of a crash between the side effect and the commit are on the page."""


BOTH_LOOPS = "eventproc_backends=asyncio trio"
"""The setting of the page, with which each test runs twice: none may depend on what another one left."""


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_environment(tmp_path_factory.mktemp("user"), wheel, "pytest") / "python"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The files of the page that need no other package, and no settings."""
    for block in blocks(PAGE):
        if block.title and "confluent_kafka" not in block.code:
            (tmp_path / block.title).write_text(block.code, encoding="utf-8")
    (tmp_path / "test_handler.py").write_text(HANDLER)
    return tmp_path


def test_the_tests_of_the_guide_pass_with_eventproc_and_pytest_alone(python: Path, project: Path) -> None:
    listed = json.loads(run(BIN / "uv", "pip", "list", "--python", python, "--format", "json", cwd=project))
    installed = {package["name"] for package in listed}
    assert {"eventproc", "pytest"} <= installed
    assert not {name for name in installed if name.startswith("pytest-")}
    tests = sorted(project.glob("test_*.py"))
    assert {"test_handler.py", "test_side_effects.py", "test_kill.py"} <= {path.name for path in tests}
    printed = run(python, "-W", "error", "-m", "pytest", "-q", "-o", BOTH_LOOPS, cwd=project)
    assert " passed" in printed
