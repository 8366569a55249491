"""Fixtures with a database that has every table, in each of its forms, for folders of tests.

The conftest of a folder imports the fixtures that it needs by name.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import eventproc
from eventproc.runtime import Eventproc
from eventproc.store.catalog import SYSTEM_MIGRATIONS
from eventproc.store.database import Database
from eventproc.testing import VirtualClock, check
from tests.database.support import FORMS, World, backend_of, open_world


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def anyio_backend(form: str) -> tuple[str, dict[str, object]]:
    return backend_of(form)


@pytest.fixture
async def world(form: str, tmp_path: Path) -> AsyncIterator[World]:
    async with open_world(form, tmp_path / "store", SYSTEM_MIGRATIONS) as world:
        yield world


@pytest.fixture
def db(world: World) -> Database:
    return world.db


@pytest.fixture
async def ep(form: str, tmp_path: Path) -> AsyncIterator[Eventproc]:
    """An open system with a scope "s"."""
    path = tmp_path / "store"
    async with eventproc.open(path) if form == "file" else eventproc.open_memory(clock=VirtualClock()) as ep:
        await ep.create_scope("s")
        yield ep
        await check(ep.db)
