"""What goes wrong in the background of a program is logged and survived; it never ends the program."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import anyio
import pytest

import eventproc
from eventproc.cluster import host
from eventproc.cluster.internal import serve_internal
from eventproc.cluster.joiner import join_tiny_extents
from eventproc.store.database import Database, Tx
from eventproc.store.model.errors import CorruptRecord, DatabaseStopped, Truncated
from eventproc.store.model.ids import SegmentId
from eventproc.store.ownership import Owner, claim, find_owner
from eventproc.store.segments import TinyExtents

CORRUPT = CorruptRecord(key="progress", reason="it is not JSON")
STOPPED = DatabaseStopped(path="here", reason="the disk is gone")


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "FAILED_PAUSE_MS", 1)
    monkeypatch.setattr(host, "FENCED_PAUSE_MS", 1)


@pytest.mark.usefixtures("quick")
async def test_a_host_that_fails_is_a_candidate_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def corrupt_once(db: Database, owner: Owner) -> None:
        if owner.owner_epoch == 1:
            raise CORRUPT
        await serve_internal(db, owner)

    monkeypatch.setattr(host, "serve_internal", corrupt_once)
    async with eventproc.open_memory() as ep:
        await ep.create_scope("s")
        with anyio.fail_after(10):
            await ep.create_stream("s/a")
        owner = await ep.db.read(lambda tx: find_owner(tx, host.CONTROLLER))
    assert owner is not None
    assert owner.owner_epoch == 2
    assert [record.getMessage() for record in caplog.records] == [
        f"the host failed and will try again: {CORRUPT!r}"
    ]
    assert caplog.records[0].exc_info


@pytest.mark.usefixtures("quick")
async def test_whatever_a_replaced_host_meets_it_was_fenced(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def replaced(db: Database, owner: Owner) -> None:
        if owner.owner_epoch == 1:
            await db.write(lambda tx: claim(tx, host.CONTROLLER, "another"))
            raise Truncated(stream="_system/request", segment="0.0", offset=0, head=100)
        await serve_internal(db, owner)

    caplog.set_level(logging.INFO, "eventproc.host")
    monkeypatch.setattr(host, "serve_internal", replaced)
    async with eventproc.open_memory() as ep:
        await ep.create_scope("s")
        with anyio.fail_after(10):
            await ep.create_stream("s/a")
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("INFO", "no longer the host: controller: owner epoch 1 was fenced by 2")
    ]


async def test_a_host_without_a_database_ends_quietly(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def stopped(db: Database, owner: Owner) -> None:
        raise STOPPED

    monkeypatch.setattr(host, "serve_internal", stopped)
    async with eventproc.open_memory(host=False) as ep:
        with anyio.fail_after(10):
            await host.run_host(ep.db)
    assert [record.getMessage() for record in caplog.records] == [f"no longer the host: {STOPPED}"]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_host_that_cannot_leave_a_sign_of_life_serves_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with eventproc.open(tmp_path / "store", host=False):
        pass
    (tmp_path / "store" / "controller.beat").mkdir()  # stands for a full disk, or no descriptors
    async with eventproc.open(tmp_path / "store") as ep:
        await ep.create_scope("s")
        with anyio.fail_after(10):
            await ep.create_stream("s/a")
    assert [record.getMessage().partition(" at ")[0] for record in caplog.records] == [
        "no sign of life can be left"
    ]


@pytest.fixture
async def db() -> AsyncIterator[Database]:
    async with eventproc.open_memory(host=False) as ep:
        yield ep.db


async def test_joining_ends_quietly_without_a_database(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    async def stopped(fn: Callable[[Tx], object]) -> object:
        raise STOPPED

    monkeypatch.setattr(db, "write", stopped)
    tiny = TinyExtents()
    monkeypatch.setattr(db.shared, "get", lambda kind: tiny)
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(join_tiny_extents, db)
            await anyio.wait_all_tasks_blocked()
            make_due(tiny)


async def test_a_run_that_cannot_be_joined_stays_and_the_next_is_joined(
    db: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[object] = []

    async def broken(fn: Callable[[Tx], object]) -> object:
        asked.append(fn)
        raise CORRUPT

    monkeypatch.setattr(db, "write", broken)
    tiny = TinyExtents()
    monkeypatch.setattr(db.shared, "get", lambda kind: tiny)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(join_tiny_extents, db)
        for _ in range(2):
            await anyio.wait_all_tasks_blocked()
            make_due(tiny)
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    assert len(asked) == 2
    assert len(caplog.records) == 2


def make_due(tiny: TinyExtents) -> None:
    for start in range(256):
        tiny.note(7, SegmentId(0), start)
