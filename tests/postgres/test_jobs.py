"""Workers and jobs on a PostgreSQL store, also of two processes at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

import eventproc
from eventproc import App, AppTx, Context, Event, Rate, RetryPolicy
from eventproc.errors import JobFailed
from eventproc.testing import check
from tests.support.reading import payloads_of

pytestmark = pytest.mark.subprocess

COUNT = 400


async def test_two_openings_do_each_job_once_with_priorities_and_delays(url: str) -> None:
    app = App()

    @app.setup
    def tables(tx: AppTx) -> None:
        tx.execute("CREATE TABLE IF NOT EXISTS app_done (number bigint PRIMARY KEY)")

    def store(tx: AppTx, events: Sequence[Event]) -> None:
        tx.executemany("INSERT INTO app_done VALUES (?)", [(int(each.payload),) for each in events])

    @app.worker("s/jobs", share_group="work", on_commit=store, retry=RetryPolicy(wait_ms=10))
    async def work(event: Event, context: Context) -> int:
        context.emit("s/out", event.payload)
        if event.payload.endswith(b"7") and context.attempt == 1:
            raise ValueError
        return int(event.payload)

    async with eventproc.open(url) as first, eventproc.open(url) as second:
        await first.create_scope("s")
        stream = await first.create_stream("s/jobs")
        out = await first.create_stream("s/out")
        async with stream.writer() as writer:
            for number in range(COUNT):
                await writer.post(b"%d" % number, priority=number % 10)
        jobs = first.jobs("s/work", "s/jobs")
        job = await jobs.submit(b"%d" % COUNT, delay_ms=50, id="last")
        async with first.run(app) as running, second.run(app):
            assert await job.result(timeout_ms=60_000) == COUNT
            await running.wait_idle(timeout_ms=60_000)
        assert Counter(await payloads_of(out)) == Counter(b"%d" % number for number in range(COUNT + 1))
        rows = await first.query("SELECT number FROM app_done ORDER BY number")
        assert [number for (number,) in rows] == list(range(COUNT + 1))
        assert [each.state for each in await jobs.list(state="done")] == ["done"]
        (segment,) = (await (await first.share_group("s/work")).describe()).segments
        assert segment.events == 0
        await check(first.db)


async def test_rates_failures_and_cancelled_jobs(url: str) -> None:
    app = App()

    @app.worker("s/jobs", share_group="work", limit=Rate(50, per_ms=100), retry=RetryPolicy(attempts=1))
    async def work(event: Event) -> None:
        if event.payload == b"bad":
            raise ValueError("bad")

    async with eventproc.open(url) as ep:
        await ep.create_scope("s")
        await ep.create_stream("s/jobs")
        jobs = ep.jobs("s/work", "s/jobs")
        cancelled = await jobs.submit(b"never")
        assert await cancelled.cancel()
        bad = await jobs.submit(b"bad", key="a", headers={"trace": "1"})
        good = [await jobs.submit(b"%d" % number) for number in range(80)]
        async with ep.run(app) as running:
            with pytest.raises(JobFailed, match="bad"):
                await bad.result(timeout_ms=60_000)
            for each in good:
                assert await each.result(timeout_ms=60_000) is None
            await running.wait_idle(timeout_ms=60_000)
        assert Counter(each.state for each in await jobs.list(limit=1_000)) == {
            "done": 80,
            "failed": 1,
            "cancelled": 1,
        }
        (letter,) = await ep.dead_letters("s/work").list()
        assert (letter.job, letter.headers) == (bad.id, {"trace": "1"})
        await check(ep.db)
