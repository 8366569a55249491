"""Fixtures of the system tests: real processes on one directory, so asyncio and real time."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.system.support import Arena


@pytest.fixture
def arena(tmp_path: Path) -> Arena:
    return Arena(tmp_path)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
