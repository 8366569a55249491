"""Workers and jobs on a PostgreSQL store, also of two processes at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

import eventproc
from eventproc import App, AppTx, Context, Event, Rate, RetryPolicy
from eventproc.errors import JobFailed
from eventproc.testing import check
from tests.jobs.support import GROUP, JOBS, OUT, with_jobs
from tests.support.reading import payloads_of

pytestmark = pytest.mark.subprocess

COUNT = 400
ODD_TEXT = "\x00 \u00fc"


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


@pytest.mark.parametrize(
    "limit",
    [Rate(50, per_ms=100), Rate(1_000, key=lambda event: (event.payload.decode() * 400)[:4_000])],
    ids=["of all", "by long keys"],
)
async def test_jobs_are_done_at_their_rate_fail_with_odd_texts_and_are_cancelled(
    url: str, limit: Rate
) -> None:
    app = App()

    @app.worker(JOBS, share_group="work", limit=limit, retry=RetryPolicy(attempts=2, wait_ms=10))
    async def work(event: Event, context: Context) -> object:
        context.progress(0.5)
        if event.payload == b"fails":
            raise ValueError(ODD_TEXT)
        context.emit(OUT, event.payload)
        return {"text": event.payload.decode()}

    async with eventproc.open(url) as ep:
        await with_jobs(ep, [])
        jobs = ep.jobs(GROUP, JOBS)
        fails = await jobs.submit(b"fails", priority=9, key="a", headers={"trace": "1"})
        dropped = await jobs.submit(b"dropped", id="a/\u00fc", delay_ms=3_600_000)
        assert await dropped.cancel()
        good = [await jobs.submit(b"%d" % number, priority=number % 10) for number in range(80)]
        async with ep.run(app) as running:
            with pytest.raises(JobFailed):
                await fails.result(timeout_ms=60_000)
            for number, job in enumerate(good):
                assert await job.result(timeout_ms=60_000) == {"text": str(number)}
            await running.wait_idle(timeout_ms=60_000)
            group = await ep.share_group(GROUP)
            assert (await group.describe()).events == 0
        states = [(each.state, each.attempts) for each in await jobs.list(limit=1_000)]
        assert states == [("failed", 2), ("cancelled", 0), *[("done", 1)] * 80]
        assert (await fails.describe()).error == "ValueError: \\x00 \u00fc"
        (letter,) = await ep.dead_letters(GROUP).list()
        assert (letter.job, letter.headers) == (fails.id, {"trace": "1"})
        assert sorted(int(each) for each in await payloads_of(await ep.stream(OUT))) == list(range(80))
        await check(ep.db)
        await group.reset()
        await group.delete()
        assert await jobs.list() == []
