"""Takeover between two openings of one directory: the replaced host changes nothing."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import anyio
import pytest

import eventproc
from eventproc.cluster.host import CONTROLLER, HostTimings
from eventproc.runtime import Eventproc
from eventproc.store.database.locks import TryLock
from eventproc.store.model.errors import OwnerFenced
from eventproc.store.model.policies import ScalingPolicy, StreamConfig
from eventproc.store.ownership import Owner, claim, find_owner, owner_epoch
from eventproc.store.requests import RequestStatus
from eventproc.testing import Deaths, check, run_until_death
from eventproc.workflows.requests import CreateStream
from eventproc.workflows.sweeps import free_due
from tests.cluster.support import running_host
from tests.support.asyncio_alone import anyio_backend as anyio_backend  # a fixture


async def _owner(ep: Eventproc) -> Owner:
    found = await ep.db.read(partial(find_owner, name=CONTROLLER))
    assert found is not None
    return found


async def test_second_opening_becomes_the_host_when_the_first_closes(tmp_path: Path) -> None:
    hosting, leave, left = anyio.Event(), anyio.Event(), anyio.Event()
    instances: list[str] = []

    async def first() -> None:
        async with eventproc.open(tmp_path, durability="os") as ep:
            await ep.create_scope("s")
            await ep.create_stream("s/a")
            instances.append(ep.db.instance_id)
            hosting.set()
            await leave.wait()
        left.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(first)
        await hosting.wait()
        async with eventproc.open(tmp_path) as second:
            await second.create_stream("s/b")
            assert (await _owner(second)).instance == instances[0]
            leave.set()
            await left.wait()
            with anyio.fail_after(10):
                await second.create_stream("s/c")
            owner = await _owner(second)
            assert (owner.instance, owner.owner_epoch) == (second.db.instance_id, 2)
            assert [stream.name for stream in await second.streams()] == ["s/a", "s/b", "s/c"]
            await check(second.db)


@pytest.mark.acceptance(
    "B16", differs="they lie in a stream of the system, which the next host goes on reading"
)
async def test_requests_posted_without_a_host_are_run_by_the_next_host(tmp_path: Path) -> None:
    async with eventproc.open(tmp_path, durability="os", host=False) as ep:
        await ep.create_scope("s")
        config = StreamConfig(scaling=ScalingPolicy.fixed(1))
        posted = [await ep.requests.submit(CreateStream(f"s/{number}", config)) for number in range(20)]
    async with eventproc.open(tmp_path) as ep:
        for request in posted:
            assert (await ep.requests.wait(request.id, timeout_ms=10_000)).status is RequestStatus.DONE
        await check(ep.db)


async def test_host_replaced_by_a_claim_changes_nothing_and_becomes_a_candidate(tmp_path: Path) -> None:
    async with (
        eventproc.open(tmp_path, durability="os", host=False) as ep,
        eventproc.open(tmp_path, host=False) as other,
        running_host(ep.db, timings=HostTimings(fenced_pause_ms=1)),  # no successor needs the pause
    ):
        await ep.create_scope("s")
        await ep.create_stream("s/a")
        old = await _owner(ep)
        await other.db.write(partial(claim, name=CONTROLLER, instance="usurper"))
        with pytest.raises(OwnerFenced):
            await other.db.write(old.fencing(free_due))
        with anyio.fail_after(20):
            await other.create_stream("s/b")  # the replaced host notices when it acts, and claims again
        owner = await _owner(ep)
        assert owner.instance == ep.db.instance_id
        assert owner.owner_epoch >= 3
        await check(ep.db)


@pytest.mark.usefixtures("commit_path")
async def test_suspended_host_is_replaced_when_only_a_commit_is_pending(tmp_path: Path) -> None:
    async with eventproc.open(tmp_path, durability="os") as ep:
        await ep.create_scope("s")
        await ep.create_stream("s/a")
    stopped = TryLock(tmp_path / "controller.lock")
    assert stopped.try_acquire()
    try:
        every_heartbeat_is_too_old = HostTimings(heartbeat_ms=1, heartbeat_age_ms_max=-1)
        async with (
            eventproc.open(tmp_path, host=False) as ep,
            running_host(ep.db, timings=every_heartbeat_is_too_old),
        ):
            stream = await ep.stream("s/a")
            with anyio.fail_after(20):
                async with stream.transaction() as txn:
                    await txn.write(b"x")
                    await txn.flush()  # staged, so that only a host can commit it
            assert (await _owner(ep)).instance == ep.db.instance_id
    finally:
        stopped.close()


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("nth", range(1, 7))
async def test_reopened_directory_continues_after_a_death_at_any_commit(
    tmp_path: Path, nth: int, when: str
) -> None:
    faults = Deaths()
    acknowledged: list[str] = []

    async def live() -> None:
        async with eventproc.open(tmp_path, faults=faults) as ep:
            stream = await ep.stream("s/a")
            async with stream.writer() as writer:
                await writer.write(b"event", key="k")
                acknowledged.append("event")
            await stream.split(0)
            acknowledged.append("split")
            await stream.truncate(await stream.tail())
            acknowledged.append("truncate")

    async with eventproc.open(tmp_path, durability="os") as ep:
        await ep.create_scope("s")
        await ep.create_stream("s/a")
    (faults.die_before_commit if when == "before" else faults.die_after_commit)(nth)
    await run_until_death(live)
    async with eventproc.open(tmp_path) as ep:
        stream = await ep.stream("s/a")
        for request in await ep.requests.list():
            await ep.requests.wait(request.id, timeout_ms=10_000)
        info = await stream.describe()
        assert info.epoch >= acknowledged.count("split")
        assert info.events in ((0,) if "truncate" in acknowledged else (0, 1))
        assert info.events or "event" not in acknowledged or info.epoch == 1
        await ep.create_stream("s/b")  # needs the host, which may have had nothing to claim for until now
        assert await ep.db.read(partial(owner_epoch, name=CONTROLLER)) >= 2
        await check(ep.db)
