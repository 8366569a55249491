"""Databases for tests of both forms. A module that tests only the file form defines its own `world`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.database.support import FORMS_AND_SERVER, World, open_world
from tests.support.asyncio_alone import anyio_backend as anyio_backend  # a fixture


@pytest.fixture(params=FORMS_AND_SERVER)
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """The directory of the database, for tests of the file form."""
    return tmp_path / "store"


@pytest.fixture
async def world(form: str, tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[World]:
    """An open database. The test module derives `anyio_backend` from `form` with `support.backend_of`."""
    server = request.getfixturevalue("server") if form == "server" else None
    async with open_world(form, tmp_path / "store", server=server) as world:
        yield world
