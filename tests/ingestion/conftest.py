"""Each test of this folder runs on both forms of event loops, in memory and in virtual time."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio
import pytest

import eventproc
from eventproc.runtime import system
from eventproc.store.database import Database
from eventproc.testing import VirtualClock, check
from tests.ingestion.support import Bench


async def run_none(db: Database) -> None:
    """Stand in for the loop in the background: the tests run supervisors themselves."""
    await anyio.sleep_forever()


@pytest.fixture
async def bench(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    """A system with a scope "s", whose supervisors the test runs."""
    monkeypatch.setattr(system, "keep_supervisors", run_none)
    clock = VirtualClock()
    async with eventproc.open_memory(clock=clock) as ep:
        await ep.create_scope("s")
        bench = Bench(ep, clock)
        await bench.begin()
        yield bench
        await check(ep.db)
