"""Workers and jobs of a store on a PostgreSQL server."""

from __future__ import annotations

import pytest

import eventproc
from eventproc import App, Context, Event, Rate, RetryPolicy
from eventproc.errors import JobFailed
from tests.jobs.support import GROUP, JOBS, OUT, with_jobs
from tests.support.reading import payloads_of

pytestmark = pytest.mark.subprocess

ODD_TEXT = "\x00 \u00fc"


async def test_jobs_are_done_on_a_server(url: str) -> None:
    app = App()
    limit = Rate(1_000, key=lambda event: (event.payload.decode() * 400)[:4_000])

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
        fails = await jobs.submit(b"fails", priority=9)
        dropped = await jobs.submit(b"dropped", id="a/\u00fc", delay_ms=3_600_000)
        assert await dropped.cancel()
        good = [await jobs.submit(b"%d" % number, priority=number) for number in range(5)]
        async with ep.run(app) as running:
            with pytest.raises(JobFailed):
                await fails.result(timeout_ms=60_000)
            for number, job in enumerate(good):
                assert await job.result(timeout_ms=60_000) == {"text": str(number)}
            await running.wait_idle(timeout_ms=60_000)
            group = await ep.share_group(GROUP)
            assert (await group.describe()).events == 0
        states = [(each.state, each.attempts) for each in await jobs.list()]
        assert states == [("failed", 2), ("cancelled", 0), *[("done", 1)] * 5]
        assert (await fails.describe()).error == "\\x00 \u00fc"
        (letter,) = await ep.dead_letters(GROUP).list()
        assert letter.job == fails.id
        assert sorted(await payloads_of(await ep.stream(OUT))) == [b"%d" % number for number in range(5)]
        await group.reset()
        await group.delete()
        assert await jobs.list() == []
