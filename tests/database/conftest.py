"""Databases for tests of what both forms promise; a test of the file form alone has its own `world`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.database.support import FORMS, World, open_world


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Where a test of the file form makes its database."""
    return tmp_path / "store"


@pytest.fixture
async def world(form: str, tmp_path: Path) -> AsyncIterator[World]:
    """An open database; its module lets `anyio_backend` follow from `form` (`worlds.backend_of`)."""
    async with open_world(form, tmp_path / "store") as world:
        yield world
