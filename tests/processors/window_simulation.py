"""Windows in several apps, and all that may happen to them, from a seed.

What must hold, whatever happened: each event that was not given up is counted once in each of its windows that was
open, or is late, once; each window has one result, with the events of its key in their order; and in the end exactly
the windows are open that event time has not reached.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from random import Random
from typing import Any

import anyio

from eventproc import App, Context, Event, Eventproc, NewEvent, RetryPolicy, Stream
from eventproc.store.model.windows import Span, WindowKind, closes_at, spans_of
from eventproc.windows import Hopping, Sessions, Tumbling, Window
from tests.processors.simulation import (
    IDLE_MS,
    KEYS,
    STREAM,
    Numbers,
    ProcessorPlan,
    ProcessorSimulation,
    SimulatedHandler,
)
from tests.processors.support import events

LATE = "s/late"
IDLE_SEGMENT_MS = 2_000
CLOCK_STEP_MS = 20_000
"""By how much the wall clock jumps, back or forth."""


def kind_of(random: Random) -> WindowKind:
    """Return windows of any kind."""
    grace_ms = random.choice([0, 3_000])
    kinds: list[WindowKind] = [
        Tumbling(10_000, grace_ms=grace_ms),
        Hopping(12_000, 4_000, grace_ms=grace_ms, offset_ms=1_000),
        Sessions(3_000, _joined, grace_ms=grace_ms),
    ]
    return random.choice(kinds)


def _joined(one: Numbers, other: Numbers) -> Numbers:
    return Numbers(sorted(one.numbers + other.numbers))


class WindowSimulation(ProcessorSimulation):
    """The simulation of processors, whose handlers fold numbered events with times into windows."""

    def __init__(self, seed: int, plan: ProcessorPlan) -> None:
        super().__init__(seed, plan)
        self.kind = kind_of(self.random)
        self.time_of: dict[tuple[str, int], int] = {}
        self.clock_ms = 0
        self.names = (STREAM, plan.out, LATE)

    async def recount(self, stream: Stream) -> None:
        """Learn what of the events written in the life before is there, and their times."""
        await super().recount(stream)
        self.time_of.clear()
        async with stream.reader() as reader:
            async for event in reader.until(await stream.tail()):
                assert event.key is not None
                assert event.event_time is not None
                self.time_of[event.key, int(event.payload)] = event.event_time

    async def _write(self, stream: Stream) -> None:
        async with stream.writer() as writer:
            while sum(self.written.values()) < self.plan.events:
                batch = []
                for _ in range(self.random.choice([1, 2, 10, 30])):
                    key = f"k{self.random.randrange(KEYS)}"
                    self.clock_ms += self.random.choice([0, 50, 300, 2_000])
                    time = max(self.clock_ms - self.random.choice([0, 0, 100, 4_000, 30_000]), 0)
                    self.time_of[key, self.written[key]] = time
                    batch.append(NewEvent(b"%d" % self.written[key], key=key, event_time=time))
                    self.written[key] += 1
                await writer.write_many(batch)
                if not self.plan.calm and self.random.random() < 0.1:
                    self.clock.step_wall(self.random.choice([-CLOCK_STEP_MS, CLOCK_STEP_MS]))
                await self._pause(self.random.random())

    def app(self) -> App:
        """Return the windows, as an app of one process."""
        app = App()

        async def fold(event: Event, window: Window[Numbers], context: Context) -> None:
            window.value.numbers.append(int(event.payload))
            if self.random.random() < 0.3:
                await anyio.sleep(self.plan.pace * self.random.random())
            if not self.plan.calm and self.random.random() < 0.1:
                raise ValueError("now and then")

        async def close(window: Window[Numbers], context: Context) -> None:
            await anyio.sleep(self.plan.pace * self.random.choice([0, 0.02]))
            if not self.plan.calm and context.attempt == 1 and self.random.random() < 0.1:
                raise ValueError("now and then")  # a timer that fails for ever stops the processor
            result = {"begins": window.begins, "ends": window.ends, "numbers": window.value.numbers}
            context.emit(self.plan.out, json.dumps(result).encode(), key=window.key)

        app.window(STREAM, self.kind, value=Numbers, on_close=close, **self.options())(fold)
        return app

    def options(self) -> dict[str, Any]:
        """Return the options of the processor of one process."""
        return {
            "late": LATE,
            "name": "p",
            "group": self.plan.group,
            "concurrency": self.random.randint(1, 5),
            "retry": RetryPolicy(attempts=3, wait_ms=50, wait_ms_max=200, jitter_ms=0),
            "timeout_ms": round(20_000 * self.plan.pace),
            "supervise": SimulatedHandler(self).spent,
            "exactly_once": self.plan.exactly_once,
            "idle_ms": IDLE_SEGMENT_MS,
        }

    async def run_until_silent(self, ep: Eventproc) -> None:
        """Run an app until segments without events are left out, and nothing is left to do."""
        async with ep.run(self.app()) as running:
            await anyio.sleep(2 * IDLE_SEGMENT_MS / 1_000)
            await running.wait_idle(timeout_ms=IDLE_MS)

    async def check_progress(self, ep: Eventproc) -> None:
        """The calls of a window processor are not those of its handler: what they made is checked at the end."""

    async def check_end(self, ep: Eventproc) -> None:
        """Assert that each event is where it belongs, and each window has one result."""
        await self.run_until_silent(ep)
        lost = {
            (each.key, int(each.payload)) for each in await ep.dead_letters(self.plan.group).list(limit=1000)
        }
        late = Counter((event.key, int(event.payload)) for event in await events(ep, LATE))
        results: dict[tuple[str | None, Span], list[int]] = {}
        for event in await events(ep, self.plan.out):
            found = json.loads(event.payload)
            where = event.key, Span(found["begins"], found["ends"])
            assert where not in results, f"the window {where} has two results"
            results[where] = found["numbers"]
        still_open: dict[tuple[str | None, Span], list[int]] = {}
        for state in await ep.state(self.plan.group, dict[str, Numbers]).list(limit=1000):
            for text, value in state.value.items():
                still_open[state.key, Span.parse(text)] = value.numbers
        watermark = (await ep.state(self.plan.group).describe()).watermark_ms
        ((newest,),) = await ep.query(
            "SELECT max(event_ms) FROM group_segment WHERE group_name = ?", (self.plan.group,)
        )
        assert isinstance(newest, int)
        assert watermark is not None
        assert newest <= watermark <= max(self.time_of.values()), "event time came as far as segments know"
        assert all(closes_at(self.kind, span) > watermark for _, span in still_open)
        assert all(closes_at(self.kind, span) <= watermark for _, span in results)
        assert max(late.values(), default=1) == 1, "an event is late once"
        counted: defaultdict[tuple[str | None, int], list[Span]] = defaultdict(list)
        for (key, span), numbers in [*results.items(), *still_open.items()]:
            if not isinstance(self.kind, Sessions):
                assert numbers == sorted(numbers), f"{key} {span}: {numbers}"
            for number in numbers:
                counted[key, number].append(span)
        for key, count in self.written.items():
            assert key is not None
            for number in range(count):
                self._check_event(
                    key, number, counted[key, number], (key, number) in late, (key, number) in lost
                )

    def _check_event(self, key: str, number: int, spans: list[Span], is_late: bool, is_lost: bool) -> None:
        what, time = f"event {number} of {key}", self.time_of[key, number]
        assert bool(spans) + is_late + is_lost == 1, f"{what}: {spans}, late: {is_late}, lost: {is_lost}"
        assert len(set(spans)) == len(spans), f"{what} is counted twice: {spans}"
        if isinstance(self.kind, Sessions):
            assert len(spans) <= 1
            assert all(each.begins <= time <= each.ends - self.kind.gap_ms for each in spans)
        else:
            assert set(spans) <= set(spans_of(self.kind, time)), f"{what} is in windows of other times"
