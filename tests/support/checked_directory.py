"""A directory with a scope "s", in virtual time, whose content is checked at the end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import eventproc
from eventproc.runtime import Eventproc
from eventproc.testing import VirtualClock, check


@pytest.fixture
async def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def ep(tmp_path: Path, clock: VirtualClock) -> AsyncIterator[Eventproc]:
    async with eventproc.open(tmp_path / "data", durability="os", clock=clock) as ep:
        await ep.create_scope("s")
        yield ep
        await check(ep.db)
