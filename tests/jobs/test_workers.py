"""Workers of share groups: each job is done once, failing ones wait without holding up others."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Sequence

import anyio
import anyio.lowlevel
import pytest

import eventproc
from eventproc import App, Context, Event, Eventproc, Rate, RetryPolicy
from eventproc.errors import InvalidArgument, JobFailed, NotAProcessorGroup, ProcessorFailed
from eventproc.processors import AppTx
from eventproc.testing import SimulatedWorld, VirtualClock
from eventproc.testing.clock import START_MS
from tests.jobs.support import GROUP, JOBS, OUT, outcome, submit, with_jobs
from tests.support.apps import run_until_idle
from tests.support.simulated_world import in_simulated_world
from tests.support.virtual_time import in_virtual_time

HOUR_MS = 3_600_000


async def test_each_job_is_done_and_what_it_emits_and_its_sql_come_with_its_acceptance(ep: Eventproc) -> None:
    await with_jobs(ep, (b"%d" % number for number in range(300)))
    app = App()

    @app.setup
    def tables(tx: AppTx) -> None:
        tx.execute("CREATE TABLE IF NOT EXISTS app_done (number INTEGER PRIMARY KEY)")

    def store(tx: AppTx, events: Sequence[Event]) -> None:
        tx.executemany("INSERT INTO app_done VALUES (?)", [(int(each.payload),) for each in events])

    @app.worker(JOBS, share_group="work", on_commit=store, concurrency=7)
    async def work(event: Event, context: Context) -> None:
        context.emit(OUT, event.payload)

    async with ep.run(app) as running:
        await running.wait_idle(timeout_ms=60_000)
        (status,) = await running.status()
    assert (status.name, status.group, status.finished, status.lag_events) == ("work", GROUP, 300, 0)
    assert sorted(map(int, await outcome(ep))) == list(range(300))
    rows = await ep.query("SELECT number FROM app_done ORDER BY number")
    assert [number for (number,) in rows] == list(range(300))


@in_virtual_time
async def test_a_worker_is_listed_among_the_processors_with_its_failures(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = App()

    @app.worker(JOBS, share_group="work", retry=RetryPolicy(attempts=1))
    async def work(event: Event) -> None:
        raise ValueError("no such address")

    async with eventproc.open_memory(clock=VirtualClock()) as ep:
        await with_jobs(ep, [b"fails"])
        await ep.create_share_group("s/plain", [JOBS])  # which no worker has
        async with ep.run(app) as running:
            await anyio.sleep(5)
            (found,) = await ep.processors()
            assert (found.name, found.state, found.alive, found.group.events) == (GROUP, "running", 1, 0)
            status = found.members[0].status
            assert status is not None
            assert (status.processor, status.dead_letters) == ("work", 1)
            assert status.last_error == "ValueError: no such address"
            await running.pause("work")
            assert (await ep.processor(GROUP)).state == "paused"
            await running.resume("work")
        with pytest.raises(NotAProcessorGroup, match="s/plain"):
            await ep.processor("s/plain")
        found = await ep.processor(GROUP)
        assert (found.state, found.members) == ("stopped", ())
    assert "worker work: s/jobs segment 0.0 event 0 became a dead letter after 1 attempt" in caplog.text
    assert "processor work" not in caplog.text


@in_simulated_world
async def test_the_host_removes_the_process_of_a_worker_that_died(world: SimulatedWorld) -> None:
    app = App()

    @app.worker(JOBS, share_group="work")
    async def work(_: Event) -> None: ...

    await world.start()
    await with_jobs(world.ep, [b"job"])
    await world.start(app, host=False)
    first = await world.start(app, host=False)
    await anyio.sleep(5)
    assert (await world.ep.processor(GROUP)).alive == 2
    first.kill()
    await anyio.sleep(5)
    assert len((await world.ep.processor(GROUP)).members) == 1


@in_simulated_world
async def test_a_worker_keeps_its_events_after_an_operator_shortened_their_locks(
    world: SimulatedWorld,
) -> None:
    app, calls = App(), list[bytes]()

    @app.worker(JOBS, share_group="work", concurrency=4, lock_ms=30_000)
    async def work(event: Event) -> None:
        calls.append(event.payload)
        await anyio.sleep(20)

    await world.start()
    stream = await with_jobs(world.ep, [b"before"])
    await world.start(app, host=False)
    await anyio.sleep(1)
    group = await world.ep.share_group(GROUP)
    await group.update(lock_ms=500)
    await submit(stream, [b"after"])
    await anyio.sleep(60)
    assert calls == [b"before", b"after"]
    assert (await group.describe()).events == 0


@in_simulated_world
async def test_a_job_fails_when_its_group_allows_fewer_deliveries_than_its_worker(
    world: SimulatedWorld,
) -> None:
    app = App()

    @app.worker(JOBS, share_group="work", retry=RetryPolicy(attempts=8, wait_ms=100))
    async def work(_: Event) -> None:
        raise ValueError("no such address")

    await world.start()
    await with_jobs(world.ep, [])
    await world.start(app, host=False)
    await anyio.sleep(1)
    await (await world.ep.share_group(GROUP)).update(deliveries_max=2)
    job = await world.ep.jobs(GROUP).submit(b"job")
    with pytest.raises(JobFailed, match="no such address"):
        await job.result(timeout_ms=60_000)
    (letter,) = await world.ep.dead_letters(GROUP).list()
    assert (letter.attempts, letter.error) == (2, "no such address")


@in_virtual_time
async def test_a_job_whose_limit_is_lowered_while_it_fails_has_the_error_of_its_call() -> None:
    app = App()
    async with eventproc.open_memory(clock=VirtualClock()) as ep:
        await with_jobs(ep, [])

        @app.worker(JOBS, share_group="work", retry=RetryPolicy(attempts=8, wait_ms=100))
        async def work(_: Event, context: Context) -> None:
            if context.attempt == 2:
                await (await ep.share_group(GROUP)).update(deliveries_max=2)
            raise ValueError(f"no such address at attempt {context.attempt}")

        async with ep.run(app):
            job = await ep.jobs(GROUP, JOBS).submit(b"job")
            with pytest.raises(JobFailed, match="no such address at attempt 2"):
                await job.result(timeout_ms=60_000)
        (letter,) = await ep.dead_letters(GROUP).list()
        assert (letter.attempts, letter.error) == (2, "ValueError: no such address at attempt 2")
        assert (await job.describe()).error == letter.error


async def test_a_plain_function_works_on_threads(ep: Eventproc) -> None:
    await with_jobs(ep, [b"1", b"2", b"3"])
    app = App()

    @app.worker(JOBS, concurrency=2)
    def work(event: Event, context: Context) -> None:
        context.emit(OUT, event.payload)

    await run_until_idle(ep, app, timeout_ms=60_000)
    assert sorted(await outcome(ep)) == [b"1", b"2", b"3"]


async def test_a_blocked_thread_holds_up_no_result_of_jobs_that_are_done(ep: Eventproc) -> None:
    stream = await with_jobs(ep, [b"quick"] * 200)
    app = App()
    others_done = threading.Event()
    in_time: list[bool] = []

    @app.worker(JOBS, share_group="work", concurrency=1)
    def work(event: Event) -> str:
        if event.payload == b"blocks":
            in_time.append(others_done.wait(10))
        return "done"

    jobs = ep.jobs(GROUP)
    async with ep.run(app) as running:
        await running.wait_idle()  # so that many are acquired together
        await running.pause("work")
        await submit(stream, [b"quick"] * 200)
        made = [await jobs.submit(payload) for payload in (b"quick", b"quick", b"blocks")]
        await running.resume("work")
        for each in made[:2]:
            assert await each.result() == "done"
        others_done.set()
        await made[2].result()
    assert in_time == [True]


@in_virtual_time
async def test_a_failing_job_waits_for_long_while_others_go_on() -> None:
    clock = VirtualClock()
    began = anyio.current_time()
    tried: list[tuple[bytes, int, float]] = []
    app = App()

    @app.worker(JOBS, concurrency=1, retry=RetryPolicy(attempts=4, wait_ms=600_000, wait_ms_max=600_000))
    async def work(event: Event, context: Context) -> None:
        tried.append((event.payload, context.attempt, (anyio.current_time() - began) // 600))
        if event.payload == b"bad":
            raise ValueError("not today")

    async with eventproc.open_memory(clock=clock) as ep:
        stream = await with_jobs(ep, [b"bad", b"good"])
        async with ep.run(app) as running:
            await anyio.sleep(0.5)
            await submit(stream, [b"later"])
            await running.wait_idle()
        (letter,) = await ep.dead_letters("s/work").list()
    assert tried == [
        (b"bad", 1, 0),
        (b"good", 1, 0),
        (b"later", 1, 0),
        (b"bad", 2, 1),
        (b"bad", 3, 2),
        (b"bad", 4, 3),
    ]
    assert (letter.attempts, letter.error_type, letter.payload) == (4, "ValueError", b"bad")
    assert "not today" in (letter.traceback or "")


@in_virtual_time
async def test_events_that_fail_together_are_released_together_whatever_the_jitter() -> None:
    app = App()

    @app.worker(
        JOBS, concurrency=300, retry=RetryPolicy(wait_ms=HOUR_MS, wait_ms_max=HOUR_MS, jitter_ms=HOUR_MS)
    )
    async def work(event: Event) -> None:
        await anyio.sleep(1)
        raise ValueError("not today")

    async with eventproc.open_memory(clock=VirtualClock()) as ep:
        await with_jobs(ep, [b"1"] * 300)
        async with ep.run(app) as running:
            await anyio.sleep(5)
            group = await ep.share_group("s/work")
            assert sum(each.set_aside for each in (await group.describe()).segments) == 300
            rows = await ep.query("SELECT DISTINCT until_ms FROM delivery")
            assert (await running.status())[0].failed_calls == 300
    pauses_ms = [until_ms - START_MS for (until_ms,) in rows if isinstance(until_ms, int)]
    assert 0 < len(pauses_ms) < 100
    assert HOUR_MS <= min(pauses_ms) <= max(pauses_ms) <= 2.2 * HOUR_MS


@in_virtual_time
async def test_attempts_are_counted_over_workers_and_one_that_dies_counts_too() -> None:
    attempts: list[int] = []
    app = App()

    @app.worker(JOBS, retry=RetryPolicy(attempts=3, wait_ms=10))
    async def work(event: Event, context: Context) -> None:
        attempts.append(context.attempt)
        if context.attempt < 3:
            raise ValueError

    async with eventproc.open_memory(clock=VirtualClock()) as ep:
        await with_jobs(ep, [b"1"])
        group = await ep.create_share_group("work", [JOBS], deliveries_max=3)
        consumer = await group.consumer()
        await consumer.poll()
        await consumer.close()  # as one that died: the delivery counts
        await run_until_idle(ep, app)
        assert attempts == [2, 3]
        assert await ep.dead_letters("s/work").list() == []


@in_virtual_time
async def test_a_call_that_takes_too_long_fails_and_what_it_emitted_is_discarded() -> None:
    app = App()

    @app.worker(JOBS, timeout_ms=1_000, retry=RetryPolicy(attempts=2, wait_ms=10))
    async def work(event: Event, context: Context) -> None:
        context.emit(OUT, event.payload)
        if event.payload == b"slow":
            await anyio.sleep(5)

    async with eventproc.open_memory(clock=VirtualClock()) as ep:
        await with_jobs(ep, [b"slow", b"quick"])
        await run_until_idle(ep, app)
        (letter,) = await ep.dead_letters("s/work").list()
        assert (letter.payload, letter.attempts) == (b"slow", 2)
        assert str(letter.error_type).endswith("HandlerTimeout")
        assert await outcome(ep) == [b"quick"]


@in_virtual_time
async def test_a_long_call_keeps_its_event_and_nobody_else_gets_it() -> None:
    calls: Counter[bytes] = Counter()
    app = App()
    began = anyio.Event()

    @app.worker(JOBS, lock_ms=3_000)
    async def work(event: Event) -> None:
        calls[event.payload] += 1
        began.set()
        await anyio.sleep(60)

    async with eventproc.open_memory(clock=VirtualClock()) as ep:
        await with_jobs(ep, [b"long"])
        async with ep.run(app) as running:
            await began.wait()
            async with (await ep.share_group("s/work")).consumer() as other:
                assert await other.poll(timeout_ms=30_000) == []
            await running.wait_idle()
        assert calls == {b"long": 1}


@in_virtual_time
async def test_events_that_wait_behind_slow_calls_are_returned_to_other_consumers() -> None:
    app = App()
    quick = True

    @app.worker(JOBS, concurrency=1, lock_ms=3_000)
    async def work(event: Event) -> None:
        if not quick:
            await anyio.sleep(3_600)

    async with eventproc.open_memory(clock=VirtualClock()) as ep:
        stream = await with_jobs(ep, [b"%d" % number for number in range(500)])
        async with ep.run(app, grace_ms=0) as running:
            await running.wait_idle()
            quick = False
            await submit(stream, [b"%d" % number for number in range(500)])
            group = await ep.share_group("s/work")
            done = 0
            async with group.consumer() as other:
                while done < 499:
                    events = await other.poll(timeout_ms=30_000)
                    assert events, f"{done} of 499 jobs came"
                    assert {each.deliveries for each in events} == {1}
                    await other.accept(events)
                    done += len(events)


@in_virtual_time
async def test_a_rate_bounds_the_calls_of_all_processes_that_begin_in_a_time() -> None:
    began = anyio.current_time()
    starts: list[int] = []
    app = App()

    @app.worker(JOBS, limit=Rate(10, per_ms=1_000))
    async def work(event: Event) -> None:
        starts.append(int(anyio.current_time() - began))

    async with eventproc.open_memory(clock=VirtualClock()) as ep:
        await with_jobs(ep, (b"%d" % number for number in range(100)))
        async with ep.run(app) as first, ep.run(app) as second:
            await first.wait_idle()
            await second.wait_idle()
        assert await ep.dead_letters("s/work").list() == []
    by_second = Counter(starts)
    assert sum(by_second.values()) == 100
    assert by_second[0] <= 21, "ten at once, and ten in the first second"
    assert all(count <= 11 for second, count in by_second.items() if second)
    assert max(by_second) <= 12


@in_virtual_time
async def test_jobs_behind_a_rate_stay_in_their_stream_and_cost_nothing() -> None:
    app = App()
    done = 0

    @app.worker(JOBS, limit=Rate(10, per_ms=1_000))
    async def work(event: Event) -> None:
        nonlocal done
        done += 1

    async with eventproc.open_memory(clock=VirtualClock()) as ep:
        await with_jobs(ep, [b"1"] * 5_000)
        async with ep.run(app):
            await anyio.sleep(5)
            found = await (await ep.share_group("s/work")).describe()
    assert 50 <= done <= 61
    assert sum(each.set_aside for each in found.segments) == 0


@in_virtual_time
async def test_a_rate_goes_on_after_the_wall_clock_was_set_back() -> None:
    app = App()
    clock = VirtualClock()

    @app.worker(JOBS, limit=Rate(10, per_ms=1_000))
    async def work(event: Event) -> None: ...

    async with eventproc.open_memory(clock=clock) as ep:
        stream = await with_jobs(ep, [b"1"] * 15)
        async with ep.run(app) as running:
            await running.wait_idle()
            clock.step_wall(-HOUR_MS)
            began = anyio.current_time()
            await submit(stream, [b"1"] * 15)
            await running.wait_idle()
            assert anyio.current_time() - began < 30


@in_virtual_time
async def test_a_rate_by_key_holds_up_only_the_keys_that_exceed_it() -> None:
    done: list[tuple[bytes, int]] = []
    began = anyio.current_time()
    app = App()

    @app.worker(JOBS, limit=Rate(1, per_ms=600_000, key=lambda event: event.payload[:1].decode()))
    async def work(event: Event) -> None:
        done.append((event.payload, int(anyio.current_time() - began) // 600))

    async with eventproc.open_memory(clock=VirtualClock()) as ep:
        await with_jobs(ep, [b"a1", b"a2", b"b1"])
        await run_until_idle(ep, app)
    assert done == [(b"a1", 0), (b"b1", 0), (b"a2", 1)]


async def test_a_paused_worker_begins_no_call_until_it_is_resumed(ep: Eventproc) -> None:
    stream = await with_jobs(ep, [])
    app = App()
    began = anyio.Event()

    @app.worker(JOBS)
    async def work(event: Event) -> None:
        began.set()

    async with ep.run(app) as running:
        await running.pause("work")
        with anyio.fail_after(60):
            while (await running.status())[0].state != "paused":
                await anyio.lowlevel.checkpoint()
        await submit(stream, [b"1"])
        assert (await running.status())[0].lag_events == 1
        assert not began.is_set()
        await running.resume("work")
        await running.wait_idle(timeout_ms=60_000)
    assert began.is_set()


@in_virtual_time
async def test_jobs_whose_calls_are_cut_off_at_the_end_are_done_by_the_next_run_and_count_once() -> None:
    attempts: list[int] = []
    app = App()
    both_began = anyio.Event()

    @app.worker(JOBS, concurrency=2)
    async def work(event: Event, context: Context) -> None:
        attempts.append(context.attempt)
        if len(attempts) == 2:
            both_began.set()
        if len(attempts) <= 2:
            await anyio.sleep_forever()

    async with eventproc.open_memory(clock=VirtualClock()) as ep:
        await with_jobs(ep, [b"1", b"2", b"3"])
        async with ep.run(app, grace_ms=0):
            await both_began.wait()
        await run_until_idle(ep, app)
    assert attempts == [1] * 5


async def test_the_options_of_a_worker_are_those_of_its_group_from_its_next_run_on(ep: Eventproc) -> None:
    await with_jobs(ep, [])
    for attempts in (3, 7):
        app = App()

        @app.worker(JOBS, retry=RetryPolicy(attempts=attempts), lock_ms=5_000)
        async def work(event: Event) -> None: ...

        async with ep.run(app):
            info = await (await ep.share_group("s/work")).info()
        assert info.share is not None
        assert (info.share.deliveries_max, info.share.lock_ms) == (attempts, 5_000)


@pytest.mark.parametrize("kind", ["worker", "processor"])
@in_virtual_time
async def test_an_app_that_is_closed_while_it_begins_ends_at_once(kind: str) -> None:
    clock = VirtualClock()
    app = App()
    declare = app.worker(JOBS) if kind == "worker" else app.processor(JOBS, group=GROUP)

    @declare
    async def work(event: Event) -> None: ...

    async with eventproc.open_memory(clock=clock) as ep:
        await with_jobs(ep, [])
        for turns in range(12):
            began_ms = clock.monotonic_ms()
            async with ep.run(app):
                for _ in range(turns):
                    await anyio.lowlevel.checkpoint()
            assert clock.monotonic_ms() - began_ms < 1_000


@in_virtual_time
async def test_an_app_whose_share_group_is_deleted_as_a_worker_begins_ends_at_once() -> None:
    clock, failed = VirtualClock(), 0
    app = App()

    @app.worker(JOBS, share_group="work")
    async def work(event: Event) -> None: ...

    async with eventproc.open_memory(clock=clock) as ep:
        await with_jobs(ep, [])
        for turns in range(10):
            group = await ep.create_share_group(GROUP, [JOBS])
            running = await ep.run(app)
            began_ms = clock.monotonic_ms()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(group.delete)
                for _ in range(turns):
                    await anyio.lowlevel.checkpoint()
                try:
                    await running.close()
                except ProcessorFailed:
                    failed += 1
            assert clock.monotonic_ms() - began_ms < 1_000
        assert failed


@in_virtual_time
async def test_jobs_that_were_not_called_count_no_delivery_if_the_handler_stops_slowly() -> None:
    class Slow:
        async def process(self, event: Event) -> None:
            await anyio.sleep_forever()

        async def stop(self) -> None:
            await anyio.sleep(60)

    app = App()
    app.worker(JOBS, share_group="work", concurrency=2)(Slow)
    async with eventproc.open_memory(clock=VirtualClock()) as ep:
        await with_jobs(ep, (b"%d" % number for number in range(6)))
        async with ep.run(app) as running:
            await anyio.sleep(1)
            running.cancel_now()
        async with (await ep.share_group(GROUP)).consumer() as consumer:
            assert [each.deliveries for each in await consumer.poll()] == [1] * 6


async def test_a_worker_refuses_what_it_cannot_honour() -> None:
    app = App()
    with pytest.raises(InvalidArgument, match="limit"):
        app.worker(JOBS, limit="fast")(lambda event: None)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match=r"rate\.count"):
        Rate(0)
    with pytest.raises(InvalidArgument, match="lock"):
        app.worker(JOBS, lock_ms=0)(lambda event: None)
    with pytest.raises(InvalidArgument, match="lock"):
        app.worker(JOBS, lock_ms=sys.maxsize)(lambda event: None)
    with pytest.raises(InvalidArgument, match=r"rate\.per_ms"):
        Rate(1, sys.maxsize)
    with pytest.raises(InvalidArgument, match="streams"):
        app.worker()(lambda event: None)


async def test_a_closing_directory_drains_its_workers() -> None:
    app = App()
    began, goes_on = anyio.Event(), anyio.Event()

    @app.worker(JOBS)
    async def work(event: Event, context: Context) -> None:
        began.set()
        await goes_on.wait()

    ep = await eventproc.open_memory()
    await with_jobs(ep, [b"1"])
    running = await ep.run(app)
    await began.wait()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ep.close)
        await anyio.wait_all_tasks_blocked()
        goes_on.set()
    running.raise_failure()


@in_virtual_time
async def test_what_a_call_did_for_an_event_that_it_lost_meanwhile_is_discarded() -> None:
    app = App()
    began, goes_on = anyio.Event(), anyio.Event()

    @app.worker(JOBS)
    async def work(event: Event, context: Context) -> None:
        context.emit(OUT, event.payload)
        if not began.is_set():
            began.set()
            await goes_on.wait()

    async with eventproc.open_memory(clock=VirtualClock()) as ep:
        await with_jobs(ep, [b"1"])
        async with ep.run(app) as running:
            await began.wait()
            await (await ep.share_group(GROUP)).reset("head")
            goes_on.set()
            await running.wait_idle()
        assert await outcome(ep) == [b"1"]


async def test_what_kills_its_worker_lies_in_the_stream_of_dead_letters_that_the_worker_names(
    ep: Eventproc,
) -> None:
    stream = await with_jobs(ep, [])
    app = App()

    @app.worker(JOBS, share_group="work", dead_letters="s/dead", retry=RetryPolicy(attempts=1))
    async def work(event: Event) -> None:
        raise ValueError("it fails here")

    async with ep.run(app) as running:
        await submit(stream, [b"fails"])
        await running.wait_idle()
    await submit(stream, [b"kills"])
    async with (await ep.share_group(GROUP)).consumer() as consumer:
        (event,) = await consumer.poll()
        await consumer.release(event)  # as the end of a lock does
    assert await outcome(ep, "s/dead") == [b"fails", b"kills"]
    assert {each.stream for each in await ep.dead_letters(GROUP).list()} == {"s/dead"}


@in_simulated_world
async def test_call_ends_whose_job_another_process_cancels_after_the_clock_was_set_back(
    world: SimulatedWorld,
) -> None:
    app = App()
    begun, ended = ({each: anyio.Event() for each in (b"1", b"2")} for _ in range(2))

    @app.worker(JOBS, share_group="work")
    async def work(event: Event) -> None:
        begun[event.payload].set()
        try:
            await anyio.sleep_forever()
        finally:
            ended[event.payload].set()

    await world.start(app)
    for payload in begun:
        job = await world.ep.jobs(GROUP, JOBS).submit(payload)
        await begun[payload].wait()
        assert await job.cancel()
        with anyio.fail_after(10):
            await ended[payload].wait()
        world.clock.step_wall(-HOUR_MS)


@in_virtual_time
async def test_a_paused_worker_sleeps_while_an_attempt_is_due() -> None:
    app, attempts = App(), list[int]()

    @app.worker(JOBS, share_group="work", retry=RetryPolicy(attempts=2))
    async def work(_: Event, context: Context) -> None:
        attempts.append(context.attempt)
        if context.attempt == 1:
            raise ValueError("not today")

    async with eventproc.open_memory(clock=VirtualClock()) as ep:
        await with_jobs(ep, [b"job"])
        async with ep.run(app) as running:
            await anyio.sleep(0.01)
            await running.pause("work")
            await anyio.sleep(60)  # never ends if the worker looks again and again: no time passes then
            assert attempts == [1]
            await running.resume("work")
            await running.wait_idle()
            assert attempts == [1, 2]
