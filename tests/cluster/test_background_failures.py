"""Background failures are logged and survived; they never end the user's program."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import partial
from pathlib import Path

import anyio
import pytest

import eventproc
from eventproc.cluster import TASK_JOBS, keep_buckets, keep_policies, keep_supervisors, run_tasks
from eventproc.cluster.extent_joiner import join_tiny_extents
from eventproc.cluster.host import CONTROLLER, HostTimings, run_host
from eventproc.cluster.internal_processors import run_internal_processors
from eventproc.store.database import Database, Tx
from eventproc.store.model.errors import CorruptRecord, DatabaseStopped, Truncated
from eventproc.store.model.ids import SegmentId
from eventproc.store.ownership import Owner, claim, find_owner
from eventproc.store.segments import INLINE_EXTENT_COUNTER, InlineExtentCounter
from tests.cluster.support import running_host

CORRUPT = CorruptRecord(key="progress", reason="it is not JSON")
STOPPED = DatabaseStopped(path="here", reason="the disk is gone")


QUICK = HostTimings(failed_pause_ms=1, fenced_pause_ms=1)


async def test_failed_host_becomes_a_candidate_again(caplog: pytest.LogCaptureFixture) -> None:
    async def corrupt_once(db: Database, owner: Owner) -> None:
        if owner.owner_epoch == 1:
            raise CORRUPT
        await run_internal_processors(db, owner)

    async with (
        eventproc.open_memory(host=False) as ep,
        running_host(ep.db, timings=QUICK, run_processors=corrupt_once),
    ):
        await ep.create_scope("s")
        with anyio.fail_after(10):
            await ep.create_stream("s/a")
        owner = await ep.db.read(lambda tx: find_owner(tx, CONTROLLER))
    assert owner is not None
    assert owner.owner_epoch == 2
    assert [record.getMessage() for record in caplog.records] == [
        f"the host failed and will try again: {CORRUPT!r}"
    ]
    assert caplog.records[0].exc_info


async def test_replaced_host_reports_fencing_whatever_error_it_met(caplog: pytest.LogCaptureFixture) -> None:
    async def replaced(db: Database, owner: Owner) -> None:
        if owner.owner_epoch == 1:
            await db.write(lambda tx: claim(tx, CONTROLLER, "another"))
            raise Truncated(stream="_system/request", segment="0.0", offset=0, head=100)
        await run_internal_processors(db, owner)

    caplog.set_level(logging.INFO, "eventproc.host")
    async with (
        eventproc.open_memory(host=False) as ep,
        running_host(ep.db, timings=QUICK, run_processors=replaced),
    ):
        await ep.create_scope("s")
        with anyio.fail_after(10):
            await ep.create_stream("s/a")
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("INFO", "no longer the host: controller: owner epoch 1 was fenced by 2")
    ]


async def test_host_of_a_stopped_database_ends_with_one_log_line(caplog: pytest.LogCaptureFixture) -> None:
    async def stopped(db: Database, owner: Owner) -> None:
        raise STOPPED

    async with eventproc.open_memory(host=False) as ep:
        with anyio.fail_after(10):
            await run_host(ep.db, run_processors=stopped)
    assert [record.getMessage() for record in caplog.records] == [f"no longer the host: {STOPPED}"]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_host_that_cannot_write_its_heartbeat_continues_to_serve(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with eventproc.open(tmp_path / "store", host=False):
        pass
    (tmp_path / "store" / "controller.beat").mkdir()  # stands for a full disk, or no descriptors
    async with eventproc.open(tmp_path / "store") as ep:
        await ep.create_scope("s")
        with anyio.fail_after(10):
            await ep.create_stream("s/a")
    assert [record.getMessage().partition(" to ")[0] for record in caplog.records] == [
        "cannot write the heartbeat"
    ]


@pytest.mark.parametrize(
    "keep", [keep_buckets, keep_policies, keep_supervisors, partial(run_tasks, jobs=TASK_JOBS)]
)
async def test_work_that_waits_for_a_change_ends_without_an_error_when_its_database_is_closed(
    keep: Callable[[Database], Coroutine[object, object, None]], caplog: pytest.LogCaptureFixture
) -> None:
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks, eventproc.open_memory(host=False) as ep:
            tasks.start_soon(keep, ep.db)
            await anyio.wait_all_tasks_blocked()
    assert caplog.records == []


@pytest.fixture
async def db() -> AsyncIterator[Database]:
    async with eventproc.open_memory(host=False) as ep:
        yield ep.db


async def test_extent_joiner_ends_when_the_database_stops(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def stopped(fn: Callable[[Tx], object], **_: object) -> object:
        raise STOPPED

    monkeypatch.setattr(db, "write", stopped)
    tiny = InlineExtentCounter()
    db.shared[INLINE_EXTENT_COUNTER] = tiny
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(join_tiny_extents, db)
            await anyio.wait_all_tasks_blocked()
            make_due(tiny)


@pytest.mark.parametrize(("following", "writes"), [(255, 2), (256, 1), (None, 1)])
async def test_extent_joiner_ends_behind_the_run(
    db: Database, monkeypatch: pytest.MonkeyPatch, following: int | None, writes: int
) -> None:
    asked: list[object] = []

    async def joined(fn: Callable[[Tx], object], **_: object) -> int | None:
        asked.append(fn)
        return following if len(asked) == 1 else None

    monkeypatch.setattr(db, "write", joined)
    tiny = InlineExtentCounter()
    db.shared[INLINE_EXTENT_COUNTER] = tiny
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(join_tiny_extents, db)
        await anyio.wait_all_tasks_blocked()
        make_due(tiny)
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    assert len(asked) == writes


async def test_extent_joiner_skips_a_run_that_cannot_be_joined(
    db: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[object] = []

    async def broken(fn: Callable[[Tx], object], **_: object) -> object:
        asked.append(fn)
        raise CORRUPT

    monkeypatch.setattr(db, "write", broken)
    tiny = InlineExtentCounter()
    db.shared[INLINE_EXTENT_COUNTER] = tiny
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(join_tiny_extents, db)
        for _ in range(2):
            await anyio.wait_all_tasks_blocked()
            make_due(tiny)
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    assert len(asked) == 2
    assert len(caplog.records) == 2


def make_due(tiny: InlineExtentCounter) -> None:
    for start in range(256):
        tiny.note(7, SegmentId(0), start)
