"""A system with a scope, in memory or in a directory; every invariant is checked when a test is over.

A conftest or a module imports `ep` by name, or one of the others whose fixture has that name, too.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import eventproc
from eventproc.runtime import Eventproc
from eventproc.testing import VirtualClock, check


@pytest.fixture
async def ep() -> AsyncIterator[Eventproc]:
    async with eventproc.open_memory() as ep:
        await ep.create_scope("s")
        yield ep
        await check(ep.db)


@pytest.fixture
async def clock() -> VirtualClock:
    return VirtualClock()  # made within the event loop, whose time it follows


@pytest.fixture(name="ep")
async def timed_ep(clock: VirtualClock) -> AsyncIterator[Eventproc]:
    async with eventproc.open_memory(clock=clock) as ep:
        await ep.create_scope("s")
        yield ep
        await check(ep.db)


@pytest.fixture(name="ep")
async def stored_ep(tmp_path: Path) -> AsyncIterator[Eventproc]:
    """A system in a directory, for a module that runs on asyncio alone."""
    async with eventproc.open(tmp_path / "data", durability="os") as ep:
        await ep.create_scope("s")
        yield ep
        await check(ep.db)
