"""Tests of what exists on asyncio alone, as a database in a file. A module or a folder imports the fixture by name."""

from __future__ import annotations

import pytest


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
