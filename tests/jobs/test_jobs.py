"""Jobs whose outcome is asked for: their states, results, cancellation and retry."""

from __future__ import annotations

from pathlib import Path

import anyio
import attrs
import pytest

import eventproc
from eventproc import App, Context, Delivery, Event, Eventproc, RetryPolicy
from eventproc.errors import InvalidArgument, JobCancelled, JobFailed, NotFound
from eventproc.store.model.jobs import RESULT_BYTES_MAX
from eventproc.testing import VirtualClock
from tests.jobs.support import GROUP, JOBS, OUT, outcome, with_jobs
from tests.support.virtual_time import in_virtual_time

DAY_MS = 24 * 3_600_000


@attrs.frozen
class Thumbnail:
    url: str
    width: int


async def test_the_result_of_a_job_is_what_its_handler_returned(ep: Eventproc) -> None:
    await with_jobs(ep, [])
    app = App()

    @app.worker(JOBS, share_group="work")
    async def work(event: Event) -> object:
        return {"size": len(event.payload)}

    jobs = ep.jobs(GROUP, JOBS)
    early = await jobs.submit(b"before its worker ran")
    assert (await early.describe()).state == "waiting"
    with pytest.raises(TimeoutError, match=rf"job '{early.id}' of {GROUP} has not ended after 5 ms"):
        await early.result(timeout_ms=5)
    async with ep.run(app):
        assert await early.result(timeout_ms=60_000) == {"size": 21}
        later = await jobs.submit(b"1")
        assert await later.result(timeout_ms=60_000) == {"size": 1}
    found = await later.describe()
    assert (found.state, found.attempts, found.progress, found.payload) == ("done", 1, 1, b"1")
    assert await jobs.job(later.id).result(timeout_ms=0) == {"size": 1}


@pytest.mark.parametrize("delay_ms", [None, 7_200_000])
async def test_a_job_takes_the_place_of_a_delayed_one_of_a_group_that_was_deleted(
    ep: Eventproc, delay_ms: int | None
) -> None:
    await with_jobs(ep, [])
    jobs, group = ep.jobs(GROUP, JOBS), await ep.create_share_group(GROUP, [JOBS])
    await jobs.submit(b"old", id="a", delay_ms=7_200_000)
    await group.delete()
    await ep.create_share_group(GROUP, [JOBS])
    await jobs.submit(b"new", id="a", delay_ms=delay_ms)
    assert [each.payload for each in await jobs.list()] == [b"new"]
    assert [each.payload for each in await ep.delayed.list()] == ([] if delay_ms is None else [b"new"])


async def test_the_jobs_of_a_deleted_scope_are_forgotten_also_those_of_a_group_that_never_was(
    ep: Eventproc,
) -> None:
    jobs = ep.jobs(GROUP, JOBS)
    for payload in (b"old", b"new"):
        await with_jobs(ep, [])
        job = await jobs.submit(payload, id="a")
        assert ((found := await job.describe()).state, found.payload) == ("waiting", payload)
        await ep.delete_scope("s", recursive=True)
        with pytest.raises(NotFound):
            await job.describe()


async def test_results_have_a_type(ep: Eventproc) -> None:
    await with_jobs(ep, [])
    app = App()

    @app.worker(JOBS, share_group="work", payload=str)
    def work(event: Event[str]) -> Thumbnail:
        return Thumbnail(event.payload, 64)

    jobs = ep.jobs(GROUP, JOBS, payload=str, result=Thumbnail)
    async with ep.run(app):
        job = await jobs.submit("http://a")
        assert await job.result(timeout_ms=60_000) == Thumbnail("http://a", 64)


async def test_a_result_that_is_no_json_needs_its_class(ep: Eventproc) -> None:
    await with_jobs(ep, [])
    app = App()

    @app.worker(JOBS, share_group="work")
    async def work(event: Event) -> bytes:
        return b"\x00" + event.payload

    async with ep.run(app):
        job = await ep.jobs(GROUP, JOBS).submit(b"1")
        with pytest.raises(InvalidArgument, match=r"it is no JSON; name its class"):
            await job.result(timeout_ms=60_000)
        assert await ep.jobs(GROUP, result=bytes).job(job.id).result() == b"\x001"


async def test_a_second_job_with_an_id_is_the_first_one(ep: Eventproc) -> None:
    await with_jobs(ep, [])
    app = App()

    @app.worker(JOBS, share_group="work")
    async def work(event: Event, context: Context) -> str:
        context.emit(OUT, event.payload)
        return event.payload.decode()

    jobs = ep.jobs(GROUP, JOBS)
    async with ep.run(app) as running:
        first = await jobs.submit(b"first", id="order-17")
        second = await jobs.submit(b"second", id="order-17")
        assert await second.result(timeout_ms=60_000) == "first"
        await running.wait_idle(timeout_ms=60_000)
    assert (first.id, second.id) == ("order-17", "order-17")
    assert await outcome(ep) == [b"first"]


async def test_groups_that_share_a_stream_do_not_take_each_other_s_jobs_of_an_id_for_their_own(
    ep: Eventproc,
) -> None:
    await with_jobs(ep, [])
    app = App()

    @app.worker(JOBS, share_group="work", retry=RetryPolicy(attempts=1))
    async def work(event: Event) -> str:
        if event.payload == b"bad":
            raise ValueError("no such address")
        return f"work {event.payload.decode()}"

    @app.worker(JOBS, share_group="bill", retry=RetryPolicy(attempts=1))
    async def bill(event: Event) -> str:
        if event.payload == b"bad":
            raise ValueError("no such account")
        return f"bill {event.payload.decode()}"

    works, bills = ep.jobs(GROUP, JOBS), ep.jobs("s/bill", JOBS)
    async with ep.run(app) as running:
        for id, mine, other in (("1", b"first", b"second"), ("2", b"bad", b"good"), ("3", b"good", b"bad")):
            await works.submit(mine, id=id)
            await bills.submit(other, id=id)
        await running.wait_idle(timeout_ms=60_000)
        assert await works.job("1").result(timeout_ms=0) == "work first"
        assert await bills.job("1").result(timeout_ms=0) == "bill second"
        with pytest.raises(JobFailed, match="no such address"):
            await works.job("2").result(timeout_ms=0)
        assert await bills.job("2").result(timeout_ms=0) == "bill good"
        for group in (GROUP, "s/bill"):
            letters = await ep.dead_letters(group).list()
            assert sorted([str(each.job) for each in letters]) == [("2" if group == GROUP else "3"), "None"]
        await ep.dead_letters(GROUP).redrive("all")
        await running.wait_idle(timeout_ms=60_000)
        assert (await works.job("3").describe()).state == "done"


@in_virtual_time
async def test_a_job_that_fails_for_good_says_why_and_can_be_retried() -> None:
    works = False
    app = App()

    @app.worker(JOBS, share_group="work", retry=RetryPolicy(attempts=2, wait_ms=1_000))
    async def work(event: Event) -> str:
        if not works:
            raise TimeoutError if event.payload == b"silent" else ValueError("no such address")
        return "sent"

    async with eventproc.open_memory(clock=VirtualClock()) as ep:
        await with_jobs(ep, [])
        jobs = ep.jobs(GROUP, JOBS)
        async with ep.run(app):
            job = await jobs.submit(b"1")
            with pytest.raises(JobFailed, match="no such address"):
                await job.result()
            (letter,) = await ep.dead_letters(GROUP).list()
            assert letter.job == job.id
            found = await job.describe()
            assert (found.attempts, found.error) == (2, "ValueError: no such address")
            with pytest.raises(JobFailed, match="TimeoutError"):
                await (await jobs.submit(b"silent")).result()
            works = True
            assert await job.retry()
            assert await job.result() == "sent"
            assert not await job.retry()
        assert [each.payload for each in await ep.dead_letters(GROUP).list()] == [b"silent"]


@in_virtual_time
async def test_between_attempts_a_job_waits_and_shows_its_error_and_progress() -> None:
    app = App()

    @app.worker(JOBS, share_group="work", retry=RetryPolicy(attempts=2, wait_ms=60_000, wait_ms_max=60_000))
    async def work(event: Event, context: Context) -> None:
        context.progress(0.25)
        await anyio.sleep(10)
        if context.attempt == 1:
            raise ValueError("busy")

    async with eventproc.open_memory(clock=VirtualClock()) as ep:
        await with_jobs(ep, [])
        async with ep.run(app):
            job = await ep.jobs(GROUP).submit(b"1")
            await anyio.sleep(5)
            found = await job.describe()
            assert (found.state, found.attempts, found.progress) == ("running", 1, 0.25)
            await anyio.sleep(10)
            found = await job.describe()
            assert (found.state, found.error) == ("waiting", "ValueError: busy")
            assert await job.result() is None
        found = await job.describe()
        assert (found.state, found.attempts, found.error) == ("done", 2, None)


@in_virtual_time
async def test_a_long_job_shows_how_far_it_is_again_and_again() -> None:
    app = App()

    @app.worker(JOBS, share_group="work")
    async def work(_event: Event, context: Context) -> None:
        for done in (1, 2, 3):
            await anyio.sleep(10)
            context.progress(done / 4)
        await anyio.sleep(10)

    async with eventproc.open_memory(clock=VirtualClock()) as ep:
        await with_jobs(ep, [])
        async with ep.run(app):
            job = await ep.jobs(GROUP).submit(b"1")
            seen = []
            for _ in range(3):
                await anyio.sleep(12)
                seen.append((await job.describe()).progress)
            assert seen == [0.25, 0.5, 0.75]


@in_virtual_time
async def test_a_call_that_has_lost_its_job_does_not_change_what_the_next_call_has_shown() -> None:
    calls: list[int] = []
    app = App()

    @app.worker(JOBS, share_group="work", concurrency=2)
    async def work(_event: Event, context: Context) -> None:
        calls.append(len(calls))
        is_first = len(calls) == 1
        context.progress(0.5)
        await anyio.sleep(2)
        if is_first:
            context.progress(0.9)
        await anyio.sleep(3_600)

    async with eventproc.open_memory(clock=VirtualClock()) as ep:
        await with_jobs(ep, [])
        async with ep.run(app) as running:
            job = await ep.jobs(GROUP).submit(b"1")
            await anyio.sleep(1)
            await (await ep.share_group(GROUP)).reset()
            await anyio.sleep(2)
            assert len(calls) == 2
            assert (await job.describe()).progress == 0.5
            running.cancel_now()


@in_virtual_time
async def test_a_cancelled_job_is_not_done_whether_it_runs_waits_or_is_delayed() -> None:
    begun: list[bytes] = []
    app = App()

    @app.worker(JOBS, share_group="work", concurrency=1)
    async def work(event: Event, context: Context) -> None:
        begun.append(event.payload)
        context.emit(OUT, event.payload)
        if event.payload == b"runs":
            await anyio.sleep(3_600)

    async with eventproc.open_memory(clock=VirtualClock()) as ep:
        await with_jobs(ep, [])
        jobs = ep.jobs(GROUP, JOBS)
        async with ep.run(app) as running:
            runs = await jobs.submit(b"runs")
            await anyio.sleep(1)
            waits = await jobs.submit(b"waits")
            delayed = await jobs.submit(b"delayed", delay_ms=7_200_000)
            assert len(await ep.delayed.list()) == 1
            for job in (waits, runs, delayed):
                assert await job.cancel()
                assert not await job.cancel()
                with pytest.raises(JobCancelled):
                    await job.result()
            last = await jobs.submit(b"last")
            await last.result(timeout_ms=60_000)
            assert await ep.delayed.list() == []
            await running.wait_idle()
        assert begun == [b"runs", b"last"]
        assert await outcome(ep) == [b"last"]
        assert [each.state for each in await jobs.list(state="cancelled")] == ["cancelled"] * 3


@in_virtual_time
async def test_a_job_that_is_cancelled_while_its_event_comes_to_the_worker_does_not_run_on() -> None:
    running: set[bytes] = set()
    app = App()

    @app.worker(JOBS, share_group="work")
    async def work(event: Event) -> None:
        running.add(event.payload)
        try:
            await anyio.sleep(3_600)
        finally:
            running.remove(event.payload)

    async with eventproc.open_memory(clock=VirtualClock()) as ep:
        await with_jobs(ep, [])
        jobs = ep.jobs(GROUP, JOBS)
        async with ep.run(app):
            for number in range(100):
                job = await jobs.submit(b"%d" % number)
                for _ in range(3 + number % 2):  # by then its event is acquired, and mostly not in hand
                    await anyio.lowlevel.checkpoint()
                assert await job.cancel()
                await anyio.sleep(1)
                assert not running


async def test_a_job_whose_event_is_cancelled_or_whose_stream_is_deleted_is_cancelled(ep: Eventproc) -> None:
    stream = await with_jobs(ep, [])
    jobs = ep.jobs(GROUP, JOBS)
    delayed = await jobs.submit(b"delayed", id="a:b", delay_ms=7_200_000)
    waiting = await jobs.submit(b"waiting")
    later = await jobs.submit(b"later", delay_ms=7_200_000)
    (event,) = [each for each in await ep.delayed.list() if each.payload == b"delayed"]
    await ep.delayed.cancel(event.id)
    with pytest.raises(JobCancelled):
        await delayed.result(timeout_ms=0)
    await stream.seal()
    await stream.delete()
    for job in (waiting, later):
        with pytest.raises(JobCancelled):
            await job.result(timeout_ms=0)
    assert [each.state for each in await jobs.list()] == ["cancelled"] * 3


@in_virtual_time
async def test_jobs_of_a_deleted_stream_are_forgotten_also_if_they_were_cancelled_before() -> None:
    clock = VirtualClock()
    async with eventproc.open_memory(clock=clock) as ep:
        stream = await with_jobs(ep, [])
        jobs = ep.jobs(GROUP, JOBS)
        before, with_it = await jobs.submit(b"before"), await jobs.submit(b"with it")
        await before.cancel()

        async def delete() -> None:
            await anyio.sleep(1)
            await stream.seal()
            await stream.delete()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(delete)
            with pytest.raises(JobCancelled):
                await with_it.result(timeout_ms=60_000)
        assert len(await jobs.list(state="cancelled")) == 2
        clock.advance(2 * DAY_MS)
        await anyio.sleep(100)  # a sweep
        assert await jobs.list() == []


async def test_a_job_shows_the_time_to_which_its_event_is_moved(ep: Eventproc) -> None:
    await with_jobs(ep, [])
    job = await ep.jobs(GROUP, JOBS).submit(b"delayed", delay_ms=7_200_000)
    (event,) = await ep.delayed.list()
    assert (await job.describe()).due_ms == event.due_ms
    moved = await ep.delayed.move(event.id, delay_ms=3_600_000)
    assert (await job.describe()).due_ms == moved.due_ms != event.due_ms


@in_virtual_time
async def test_a_delayed_job_is_done_when_it_is_due() -> None:
    app = App()
    times: list[float] = []
    began = anyio.current_time()

    @app.worker(JOBS, share_group="work")
    async def work(event: Event) -> None:
        times.append(anyio.current_time() - began)

    async with eventproc.open_memory(clock=VirtualClock()) as ep:
        await with_jobs(ep, [])
        async with ep.run(app):
            job = await ep.jobs(GROUP, JOBS).submit(b"1", delay_ms=600_000)
            assert (await job.describe()).due_ms is not None
            await job.result()
    assert [int(each) for each in times] == [600]


@in_virtual_time
async def test_ended_jobs_are_known_for_a_day() -> None:
    app = App()
    clock = VirtualClock()

    @app.worker(JOBS, share_group="work")
    async def work(event: Event) -> int:
        return 1

    async with eventproc.open_memory(clock=clock) as ep:
        await with_jobs(ep, [])
        async with ep.run(app):
            job = await ep.jobs(GROUP, JOBS).submit(b"1", id="a")
            assert await job.result() == 1
        clock.advance(DAY_MS - 60_000)
        await anyio.sleep(50)  # the next sweep
        assert (await job.describe()).state == "done"
        await anyio.sleep(100)
        with pytest.raises(NotFound):
            await job.describe()
        async with ep.run(app):
            again = await ep.jobs(GROUP, JOBS).submit(b"1", id="a")
            assert await again.result() == 1


@in_virtual_time
async def test_a_job_that_was_cancelled_is_not_done_however_late_a_worker_comes() -> None:
    begun: list[bytes] = []
    app = App()
    clock = VirtualClock()

    @app.worker(JOBS, share_group="work")
    async def work(event: Event) -> None:
        begun.append(event.payload)

    async with eventproc.open_memory(clock=clock) as ep:
        await with_jobs(ep, [])
        jobs = ep.jobs(GROUP, JOBS)
        waits = await jobs.submit(b"waits")
        delayed = await jobs.submit(b"delayed", delay_ms=7 * DAY_MS)
        for job in (waits, delayed):
            await job.cancel()
        clock.advance(2 * DAY_MS)
        await anyio.sleep(100)  # a sweep
        with pytest.raises(NotFound):
            await delayed.describe()  # its event is gone
        async with ep.run(app):
            await (await jobs.submit(b"last")).result()
        assert begun == [b"last"]
        clock.advance(2 * DAY_MS)
        await anyio.sleep(100)
        assert await jobs.list() == []


async def test_jobs_are_listed_in_pages_and_by_state(ep: Eventproc) -> None:
    await with_jobs(ep, [])
    jobs = ep.jobs(GROUP, JOBS)
    made = [(await jobs.submit(b"%d" % number)).id for number in range(5)]
    first = await jobs.list(limit=2)
    rest = await jobs.list(after=first[-1].id)
    assert [each.id for each in (*first, *rest)] == made
    await jobs.job(made[2]).cancel()
    assert [each.id for each in await jobs.list(state="cancelled")] == [made[2]]


async def test_what_cannot_be_a_job_is_refused_by_name(ep: Eventproc) -> None:
    await with_jobs(ep, [])
    jobs = ep.jobs(GROUP)
    with pytest.raises(NotFound, match="name the stream"):
        await jobs.submit(b"1")
    await ep.create_share_group(GROUP, [JOBS, OUT])
    with pytest.raises(InvalidArgument, match="has the streams"):
        await jobs.submit(b"1")
    for bad in ("", "a\0", "a" * 201):
        with pytest.raises(InvalidArgument, match="job id"):
            jobs.job(bad)
    with pytest.raises(InvalidArgument, match="priority"):
        await ep.jobs(GROUP, JOBS).submit(b"1", priority=10)
    with pytest.raises(InvalidArgument, match="state"):
        await jobs.list(state="gone")  # type: ignore[arg-type]
    with pytest.raises(NotFound):
        await jobs.job("unknown").describe()


async def test_who_waits_for_a_job_learns_that_its_group_was_deleted(ep: Eventproc) -> None:
    await with_jobs(ep, [])
    group = await ep.create_share_group(GROUP, [JOBS])
    job = await ep.jobs(GROUP).submit(b"1")

    async def delete() -> None:
        await anyio.wait_all_tasks_blocked()
        await group.delete()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(delete)
        with pytest.raises(NotFound, match=job.id):
            await job.result(timeout_ms=10_000)
    assert await ep.jobs(GROUP).list() == []


async def test_a_group_without_workers_takes_no_jobs(ep: Eventproc) -> None:
    stream = await with_jobs(ep, [])
    await ep.create_group("s/readers", [JOBS])
    for named in (None, JOBS):
        with pytest.raises(NotFound, match="no share group 's/readers'"):
            await ep.jobs("s/readers", named).submit(b"1")
    assert (await stream.describe()).events == 0


async def test_a_job_that_kills_its_worker_again_and_again_fails_for_good(ep: Eventproc) -> None:
    await with_jobs(ep, [])
    group = await ep.create_share_group(GROUP, [JOBS], lock_ms=1_000, deliveries_max=1)
    job = await ep.jobs(GROUP).submit(b"1")
    async with group.consumer() as consumer:
        (event,) = await consumer.poll()
        assert event.job == job.id
        await consumer.release(event)
    with pytest.raises(JobFailed):
        await job.result(timeout_ms=60_000)


async def test_priorities_of_jobs_go_first(ep: Eventproc) -> None:
    await with_jobs(ep, [])
    jobs = ep.jobs(GROUP, JOBS)
    for number in range(20):
        await jobs.submit(b"%d" % (number % 10), priority=number % 10)
    group = await ep.create_share_group(GROUP, [JOBS])
    async with group.consumer() as consumer:
        events: list[Delivery] = []
        while len(events) < 20:
            events += await consumer.poll(5)
    assert [int(each.event.payload) for each in events] == sorted(
        (number % 10 for number in range(20)), reverse=True
    )


@in_virtual_time
async def test_what_a_cancelled_job_emitted_is_discarded_even_if_its_call_returned_first() -> None:
    app = App()

    @app.worker(JOBS, share_group="work")
    async def work(event: Event, context: Context) -> str:
        context.emit(OUT, event.payload)
        assert await ep.jobs(GROUP).job("a").cancel()
        return "done"

    async with eventproc.open_memory(clock=VirtualClock()) as ep:
        await with_jobs(ep, [])
        job = await ep.jobs(GROUP, JOBS).submit(b"1", id="a")
        async with ep.run(app) as running:
            with pytest.raises(JobCancelled):
                await job.result()
            await running.wait_idle()
        assert await outcome(ep) == []


@in_virtual_time
async def test_a_call_that_fails_while_it_is_cancelled_leaves_its_worker_running() -> None:
    app = App()
    began = anyio.Event()

    @app.worker(JOBS, share_group="work")
    async def work(event: Event) -> str:
        if event.payload == b"fails":
            began.set()
            try:
                await anyio.sleep_forever()
            finally:
                raise ValueError("while it ended")
        return "done"

    async with eventproc.open_memory(clock=VirtualClock()) as ep:
        await with_jobs(ep, [])
        jobs = ep.jobs(GROUP, JOBS)
        async with ep.run(app) as running:
            job = await jobs.submit(b"fails")
            await began.wait()
            assert await job.cancel()
            assert await (await jobs.submit(b"1")).result() == "done"
            await running.wait_idle()
        assert (await job.describe()).state == "cancelled"


class StoppedClock(VirtualClock):
    """Everything happens in the same millisecond."""

    def wall_ms(self) -> int:
        return 1_700_000_000_000


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_calls_end_whose_jobs_another_opening_cancels_within_a_millisecond(tmp_path: Path) -> None:
    app = App()
    began, ended = [anyio.Event(), anyio.Event()], [anyio.Event(), anyio.Event()]

    @app.worker(JOBS, share_group="work", payload=int)
    async def work(event: Event[int]) -> None:
        began[event.payload].set()
        try:
            await anyio.sleep_forever()
        finally:
            ended[event.payload].set()

    clock = StoppedClock()
    async with eventproc.open(tmp_path, clock=clock) as ep, eventproc.open(tmp_path, clock=clock) as other:
        await with_jobs(ep, [])
        jobs = other.jobs(GROUP, JOBS, payload=int)
        async with ep.run(app):
            made = [await jobs.submit(0), await jobs.submit(1)]
            with anyio.fail_after(60):
                for begins in began:
                    await begins.wait()
                for job, ends in zip(made, ended, strict=True):
                    assert await job.cancel()
                    await ends.wait()


@in_virtual_time
async def test_a_job_whose_call_is_cut_off_waits_again_without_an_attempt() -> None:
    app = App()
    began = anyio.Event()

    @app.worker(JOBS, share_group="work")
    async def work(event: Event) -> None:
        began.set()
        await anyio.sleep_forever()

    async with eventproc.open_memory(clock=VirtualClock()) as ep:
        await with_jobs(ep, [])
        job = await ep.jobs(GROUP, JOBS).submit(b"1")
        async with ep.run(app, grace_ms=0):
            await began.wait()
            found = await job.describe()
            assert (found.state, found.attempts) == ("running", 1)
        found = await job.describe()
        assert (found.state, found.attempts) == ("waiting", 0)


@in_virtual_time
async def test_a_result_that_is_too_large_fails_its_job() -> None:
    app = App()

    @app.worker(JOBS, share_group="work", retry=RetryPolicy(attempts=1))
    async def work(event: Event) -> str:
        return "x" * RESULT_BYTES_MAX

    async with eventproc.open_memory(clock=VirtualClock()) as ep:
        await with_jobs(ep, [])
        async with ep.run(app):
            job = await ep.jobs(GROUP, JOBS).submit(b"1")
            with pytest.raises(JobFailed, match="1048578 bytes"):
                await job.result()


@in_virtual_time
async def test_progress_that_is_noted_after_a_call_timed_out_does_not_change_an_ended_job() -> None:
    app = App()
    contexts: list[Context] = []

    @app.worker(JOBS, share_group="work")
    async def work(event: Event, context: Context) -> None:
        contexts.append(context)

    async with eventproc.open_memory(clock=VirtualClock()) as ep:
        await with_jobs(ep, [])
        jobs = ep.jobs(GROUP, JOBS)
        async with ep.run(app):
            job = await jobs.submit(b"1")
            await job.result()
            ended = await job.describe()
            await anyio.sleep(5)
            contexts[0].progress(0.5)
            await anyio.sleep(5)
            assert await job.describe() == ended
