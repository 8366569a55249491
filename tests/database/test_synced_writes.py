"""Lone brief writes of a synced database: the event loop waits for them, but neither for long nor beside other work."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import anyio
import pytest

from eventproc.store.database import Tx
from eventproc.store.database import writer as writer_module
from eventproc.store.database.file_database import FileDatabase
from eventproc.store.faults import WRITE_COMMIT
from tests.database.support import World, insert, names, open_world

pytestmark = pytest.mark.anyio

LONG_MS = 60_000


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def world(directory: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    monkeypatch.setattr(writer_module, "ALONE_MS_MAX", LONG_MS)
    monkeypatch.setattr(writer_module, "ALONE_TURN_MS_MAX", LONG_MS)
    async with open_world("file", directory) as world:
        await world.db.write(insert("first"), brief=True)
        yield world


async def turns_during(world: World, fn: str, *, brief: bool = True) -> int:
    """Write, and return how many callbacks of the event loop ran meanwhile."""
    ran: list[None] = []
    asyncio.get_running_loop().call_soon(ran.append, None)
    await world.db.write(insert(fn), brief=brief)
    return len(ran)


async def test_event_loop_waits_with_a_lone_brief_write(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "SYNC_WAIT_MS_MAX", LONG_MS)
    assert await turns_during(world, "second") == 0
    assert await turns_during(world, "third", brief=False) == 1
    assert await world.db.read(names) == ["first", "second", "third"]


async def test_event_loop_goes_on_when_the_commit_takes_long_and_does_not_wait_for_the_next(
    world: World,
) -> None:
    assert isinstance(world.db, FileDatabase)
    world.db._writer._wait_pause_ms = LONG_MS
    goes_on = threading.Event()

    def slow(tx: Tx) -> None:
        assert goes_on.wait(60)

    asyncio.get_running_loop().call_soon(goes_on.set)
    await world.db.write(slow, brief=True)
    assert await turns_during(world, "second") == 1


async def test_event_loop_does_not_wait_while_other_tasks_are_busy(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "ALONE_MS_MAX", 0)
    monkeypatch.setattr(writer_module, "ALONE_TURN_MS_MAX", -1)
    await world.db.write(insert("second"), brief=True)
    assert await turns_during(world, "third") == 1


async def test_brief_writes_of_many_tasks_share_commits(world: World) -> None:
    assert isinstance(world.db, FileDatabase)
    world.db._writer._alone_until = 0
    before = world.faults.reached.count(WRITE_COMMIT)
    async with anyio.create_task_group() as tasks:
        for number in range(50):
            tasks.start_soon(partial(world.db.write, insert(f"{number:02}"), brief=True))
    assert world.faults.reached.count(WRITE_COMMIT) - before <= 3
    assert len(await world.db.read(names)) == 51
