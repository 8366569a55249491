"""A system in memory with a stream of two segments; every invariant is checked when the test is over."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

import eventproc
from eventproc.runtime import Eventproc
from eventproc.streams import Stream
from eventproc.testing import check


@pytest.fixture
async def ep() -> AsyncIterator[Eventproc]:
    async with eventproc.open_memory() as ep:
        await ep.create_scope("s")
        yield ep
        await check(ep.db)


@pytest.fixture
async def stream(ep: Eventproc) -> Stream:
    return await ep.create_stream("s/t", scaling=eventproc.ScalingPolicy.fixed(2))
