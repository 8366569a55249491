"""What supervisors, tasks and workers keep on a server: every opening reads it."""

from __future__ import annotations

import pytest

import eventproc
from eventproc.runtime import system
from eventproc.testing import VirtualClock, check
from tests.ingestion.conftest import run_none
from tests.ingestion.support import Bench, add_worker

pytestmark = pytest.mark.subprocess


async def test_logs_workers_and_totals_are_read_by_another_opening(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system, "keep_supervisors", run_none)
    async with eventproc.open(url) as ep, eventproc.open(url, host=False) as other:
        await ep.create_scope("s")
        bench = Bench(ep, VirtualClock())
        await bench.begin()
        (task,) = (await bench.start_tasks()).tasks
        await add_worker(ep, ep.db.instance_id)
        listed = {each.instance: each for each in await other.ingestion_workers()}
        found = listed[ep.db.instance_id]
        assert (found.alive, found.machine, found.pid) == (True, "m1", 7)
        assert listed["w1"].tasks == (task.id,)
        await bench.write(3)
        await task.step()
        for _ in range(3):
            await task.close()
            task.n += 1
        await task.finish("no space")
        await bench.run()
        messages = [each.message async for each in other.follow_ingestion_log(task.id)]
        assert messages[0] == "created, as replica 0; it waits for a worker"
        assert messages[-1] == "failed: no space"
        first = await other.ingestion_log(task.id, limit=2)
        after = await other.ingestion_log(task.id, after=first[-1].id)
        assert [each.message for each in [*first, *after]] == messages
        totals = (await (await other.supervisor("clicks")).status()).totals
        assert (totals.failed, totals.succeeded) == (1, 0)
        assert await other.suspend_supervisors() == ["clicks"]
        await check(ep.db)
