"""A worker in the whole-system simulation: several instances work off the events of the stream, and jobs, as a queue.

What must hold: each event is done once, so that what was emitted for it is there once, or it is a dead letter; a job
that was cancelled emitted nothing; and each job that was submitted again and again is one. A schedule ticks meanwhile:
each tick is one event, in order.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random

import anyio

from eventproc import App, Context, Event, Rate, RetryPolicy
from eventproc.describe import MissedTicks
from eventproc.runtime import Eventproc
from tests.support.reading import events_of

GROUP, JOBS, OUT, TICKS = "s/work", "s/jobs", "s/worked", "s/ticks"
TICK_MS = 2_000
COUNT = 8
ATTEMPTS = 12

Somewhere = Callable[[Callable[[Eventproc], Awaitable[object]]], Awaitable[bool]]
"""Lets some instance do something; returns whether it did."""


class WorkSimulation:
    """What outlives the instances."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.limit = self.random.choice([None, Rate(20, per_ms=1_000)])
        self.cancelled: set[str] = set()

    async def create(self, ep: Eventproc) -> None:
        """Create the streams, and the schedule."""
        for name in (JOBS, OUT, TICKS):
            await ep.create_stream(name)
        await ep.schedules.create(
            TICKS, cron=f"*/{TICK_MS // 1000} * * * * *", stream=TICKS, missed=MissedTicks.ALL
        )

    def app(self, stream: str) -> App:
        """Return the worker, as an app of one process."""
        app = App()

        @app.worker(
            stream,
            JOBS,
            name="w",
            share_group=GROUP,
            concurrency=self.random.randint(1, 8),
            retry=RetryPolicy(attempts=ATTEMPTS, wait_ms=50, wait_ms_max=2_000),
            timeout_ms=2_000,
            limit=self.limit,
            lock_ms=5_000,
        )
        async def work(event: Event, context: Context) -> str:
            await anyio.sleep(self.random.choice([0, 0, 0.05, 0.5]))
            context.progress(0.5)
            context.emit(OUT, _place_of(event))
            if self.random.random() < 0.1:
                raise ValueError("again")
            return _place_of(event)

        return app

    async def submit(self, somewhere: Somewhere) -> None:
        """Submit jobs, each once or several times, and cancel some."""
        for number in range(COUNT):
            job, delay_ms = f"job{number}", self.random.choice([None, None, 3_000])
            priority = self.random.randrange(3)

            async def submit(
                ep: Eventproc, job: str = job, delay_ms: int | None = delay_ms, priority: int = priority
            ) -> None:
                jobs = ep.jobs(GROUP, JOBS)
                await jobs.submit(job.encode(), id=job, delay_ms=delay_ms, priority=priority)

            async def cancel(ep: Eventproc, job: str = job) -> None:
                if await ep.jobs(GROUP).job(job).cancel():
                    self.cancelled.add(job)

            for _ in range(self.random.randint(1, 3)):
                while not await somewhere(submit):
                    pass
            if self.random.random() < 0.3:
                await anyio.sleep(self.random.random())
                await somewhere(cancel)
            await anyio.sleep(self.random.random() * 4)

    async def check_end(self, ep: Eventproc, stream: str) -> None:
        """Assert what must hold at the end."""
        emitted = [event.payload.decode() for event in await events_of(await ep.stream(OUT))]
        done = set(emitted)
        assert len(done) == len(emitted), "what was emitted for an event is there twice"
        letters = await ep.dead_letters(GROUP).list(limit=10_000)
        dead = {f"{each.origin_stream} {each.origin_segment}:{each.origin_number}" for each in letters}
        assert not done & dead, "a dead letter emitted something"
        events = [*await events_of(await ep.stream(stream)), *await events_of(await ep.stream(JOBS))]
        jobs = {each.id: each for each in await ep.jobs(GROUP).list(limit=1_000)}
        assert set(jobs) == {f"job{number}" for number in range(COUNT)}
        states = {id: each.state for id, each in jobs.items()}
        assert {id for id, state in states.items() if state == "cancelled"} >= self.cancelled
        for event in events:
            place, id = _place_of(event), event.payload.decode()
            if event.stream == JOBS and states[id] == "cancelled":
                assert place not in done, f"{id} was cancelled, and done"
            else:
                assert place in done | dead, f"{place} is neither done nor a dead letter"
            if event.stream == JOBS:
                assert (states[id] == "done") is (place in done), f"{id} is {states[id]}"
                assert (states[id] == "failed") is (place in dead), f"{id} is {states[id]}"
        assert len([each for each in events if each.stream == JOBS]) <= COUNT, "a job is there twice"
        ticks = [event.event_time for event in await events_of(await ep.stream(TICKS))]
        assert ticks[0] is not None and ticks == [ticks[0] + n * TICK_MS for n in range(len(ticks))]


def _place_of(event: Event) -> str:
    return f"{event.stream} {event.segment}:{event.number}"
