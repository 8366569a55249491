"""Workers that are killed at each of their steps: what a job emitted, its SQL and its result are there once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from eventproc import App, AppTx, Context, Event, Eventproc
from eventproc.testing import CrashDirectory, check
from tests.jobs.support import GROUP, JOBS, OUT, outcome, with_jobs

pytestmark = pytest.mark.subprocess

COUNT = 300

app = App()


@app.setup
def tables(tx: AppTx) -> None:
    tx.execute("CREATE TABLE IF NOT EXISTS app_done (payload BLOB)")


def store(tx: AppTx, events: Sequence[Event]) -> None:
    tx.executemany("INSERT INTO app_done VALUES (?)", [(each.payload,) for each in events])


@app.worker(JOBS, share_group="work", on_commit=store, concurrency=20)
async def work(event: Event, context: Context) -> str:
    context.emit(OUT, event.payload)
    return event.payload.decode()


async def prepare(ep: Eventproc) -> list[str]:
    await with_jobs(ep, (b"%d" % number for number in range(COUNT)))
    await ep.create_share_group(GROUP, [JOBS], deliveries_max=5)
    jobs = ep.jobs(GROUP)
    return [(await jobs.submit(b"job %d" % number)).id for number in range(20)]


async def serve(ep: Eventproc) -> None:
    async with ep.run(app) as running:
        await running.wait_idle()


async def look(ep: Eventproc, jobs: Sequence[str]) -> None:
    expected = [*(b"%d" % number for number in range(COUNT)), *(b"job %d" % number for number in range(20))]
    assert Counter(await outcome(ep)) == Counter(expected)
    rows = await ep.query("SELECT payload FROM app_done")
    assert Counter(bytes(payload) for (payload,) in rows if isinstance(payload, bytes)) == Counter(expected)
    for number, job in enumerate(jobs):
        assert await ep.jobs(GROUP).job(job).result() == f"job {number}"
    assert await ep.dead_letters(GROUP).list() == []
    await check(ep.db)


@pytest.mark.parametrize(
    ("point", "nth"),
    [
        ("share.acquire.commit", 2),
        ("share.acquire.committed", 2),
        ("processor.progress.commit", 1),
        ("processor.progress.commit", 3),
        ("processor.progress.committed", 2),
    ],
)
def test_a_worker_killed_at_a_step_leaves_each_job_to_be_done_once(
    eventproc_crash: CrashDirectory, point: str, nth: int
) -> None:
    jobs = eventproc_crash.run(prepare)
    with eventproc_crash.start(serve, at=point, nth=nth) as process:
        process.wait_killed()
    eventproc_crash.run_app(app)
    eventproc_crash.run(look, jobs)
