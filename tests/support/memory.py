"""A system in memory with a scope; every invariant is checked when a test is over.

The conftest of a folder imports the fixture by name.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

import eventproc
from eventproc.runtime import Eventproc
from eventproc.testing import check


@pytest.fixture
async def ep() -> AsyncIterator[Eventproc]:
    async with eventproc.open_memory() as ep:
        await ep.create_scope("s")
        yield ep
        await check(ep.db)
