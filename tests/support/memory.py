"""A system in memory with a scope; every invariant is checked when a test is over.

A conftest or a module imports `ep` by name, or `clock` and `timed_ep`, whose name is `ep`, too, to move the clock.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

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
