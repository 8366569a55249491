"""Fixtures of the system tests: real processes on one directory, so asyncio and real time."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.system.support import WorkerProcesses


@pytest.fixture
def processes(tmp_path: Path) -> WorkerProcesses:
    return WorkerProcesses(tmp_path)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
