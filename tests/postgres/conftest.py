"""Tests of a store on a server run on asyncio."""

from __future__ import annotations

import pytest

from tests.support.asyncio_alone import anyio_backend as anyio_backend  # a fixture
from tests.support.postgres import Server


@pytest.fixture
def url(server: Server) -> str:
    """The address of a store that no other test uses."""
    return server.store(server.new_schema())
