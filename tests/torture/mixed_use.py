"""What `everything` and `virtual_days` run: an app of each kind of handler, and a client that uses all of it.

The client writes, commits and aborts transactions, submits jobs, splits and merges, and reads what the app makes of it
as one reader of a group. What all groups have passed is truncated, so that everything may stay as it is. At the end
each event was copied once and in order; the windows that have closed counted each event once; each job was done once.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, Final, Protocol

import anyio
import attrs

import eventproc
from eventproc.windows import Tumbling, Window
from tests.support.torture import KeyAccount

EVENTS, COPIES, SPANS, JOBS, DONE, TICKS = "s/events", "s/copies", "s/spans", "s/jobs", "s/done", "s/ticks"
KEYS: Final = 10
TXN_KEY: Final = "txn"

BATCH: Final = 20
"""Events that the client writes together, `WRITES_S` after the batch before."""

WRITES_S: Final = 0.2
STEP_S: Final = 1.0
"""Pause between two transactions, and between two jobs."""

SCALE_S: Final = 30.0

SPAN_MS: Final = 10_000
"""How long a window is."""

GRACE_MS: Final = 30_000
SEGMENTS_MAX: Final = 4


@attrs.define
class CountedEvents:
    """The events of a key in a window: their number, and the numbers of the first and the last one."""

    first: int = -1
    last: int = -1
    events: int = 0


app = eventproc.App()


@app.processor(EVENTS, group="s/copiers", exactly_once=True)
async def copy(event: eventproc.Event, context: eventproc.Context) -> None:
    context.emit(COPIES, event.payload, key=event.key)


async def tell(window: Window[CountedEvents], context: eventproc.Context) -> None:
    context.emit(SPANS, json.dumps(attrs.asdict(window.value)).encode(), key=window.key)


@app.window(EVENTS, Tumbling(SPAN_MS, grace_ms=GRACE_MS), value=CountedEvents, on_close=tell, group="s/spans")
async def count(event: eventproc.Event, window: Window[CountedEvents]) -> None:
    number = json.loads(event.payload)["number"]
    if not window.value.events:
        window.value.first = number
    window.value.last, window.value.events = number, window.value.events + 1


@app.worker(JOBS, share_group="s/jobs", concurrency=4)
async def work(event: eventproc.Event, context: eventproc.Context) -> None:
    context.emit(DONE, event.payload, key="done")


class WindowAccount:
    """The windows of each key: each one begins with the event after the last one of the window before."""

    def __init__(self) -> None:
        self.events = 0
        self._next: Counter[str] = Counter()

    def take(self, key: str, span: dict[str, int]) -> None:
        """Count a window. Raises AssertionError if an event is missing, or is counted twice."""
        assert span["first"] == self._next[key], f"{key}: a window begins with {span}, not {self._next[key]}"
        assert span["last"] + 1 - span["first"] == span["events"], f"{key}: a window has {span}"
        self._next[key] = span["last"] + 1
        self.events += span["events"]


class CanExecute(Protocol):
    """A transaction, or a connection of SQLite."""

    def execute(self, sql: str, /) -> Any:
        """Run a statement."""


def rows_by_table(store: CanExecute) -> Iterator[tuple[str, int]]:
    """Yield the name of each table of a store in SQLite that has rows, with their number."""
    names = store.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    for (table,) in names:
        if rows := store.execute(f'SELECT count(*) FROM "{table}"').fetchone()[0]:
            yield table, rows


class MixedUse:
    """A client for so many seconds, with its accounts.

    note: called with the name of a measure and a value. slowed: how many times longer than usual its pauses are.
    tick_s: how often the schedule ticks: a part of a minute, or whole minutes of an hour.
    """

    def __init__(
        self,
        ep: eventproc.Eventproc,
        seconds: float,
        note: Callable[[str, float], None],
        *,
        slowed: int = 1,
        tick_s: int = 10,
    ) -> None:
        self._ep, self._note, self._slowed, self._tick_s = ep, note, slowed, tick_s
        self._clock = ep.db.clock
        self._ends_ms = self._clock.monotonic_ms() + round(seconds * 1000)
        self._random = Random(1)
        self._copied, self._spans = KeyAccount(), WindowAccount()
        self._open_jobs: set[bytes] = set()
        self._ticks: list[int] = []
        self._read = anyio.Event()
        self.written: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()

    @property
    def is_over(self) -> bool:
        """Whether the time has passed."""
        return self._clock.monotonic_ms() >= self._ends_ms

    async def create(self) -> None:
        """Create the streams, the group that reads them, and the schedule."""
        consumed = eventproc.RetentionPolicy(consumed=True)
        await self._ep.create_scope("s")
        for name in (EVENTS, COPIES, SPANS, JOBS, DONE, TICKS):
            await self._ep.create_stream(name, retention=consumed)
        cron = f"*/{self._tick_s} * * * * *" if self._tick_s < 60 else f"*/{self._tick_s // 60} * * * *"
        await self._ep.schedules.create(TICKS, cron=cron, stream=TICKS)
        await self._ep.create_group("s/client", [COPIES, SPANS, DONE, TICKS])

    async def run(self) -> None:
        """Use everything until the time has passed."""
        async with anyio.create_task_group() as clients:
            for client in (self._write, self._transact, self._submit, self._scale):
                clients.start_soon(client)

    async def read(self) -> None:
        """Be the reader of what the app makes of it, until cancelled. Raises AssertionError, KeyError."""
        group = await self._ep.group("s/client")
        async with group.reader("r") as reader:
            async for event in reader:
                self._take(event)
                self._read.set()

    async def wait_done(self) -> None:
        """Wait until everything that was written is copied, and every job done. Raises AssertionError."""
        while dict(self._copied.counts) != dict(self.written) or self._open_jobs:
            self._read = anyio.Event()
            await self._read.wait()
        assert self._spans.events and self._ticks, "no window has closed, or no schedule has ticked"
        self.counts["ticks"] = len(self._ticks)
        self.counts["in windows"] = self._spans.events

    async def _pause(self, seconds: float) -> None:
        left_ms = self._ends_ms - self._clock.monotonic_ms()
        await anyio.sleep(min(seconds * self._slowed, max(left_ms, 0) / 1000))

    def _events(self, key: str, count: int) -> list[eventproc.NewEvent[bytes]]:
        """Return the next events of a key, whose time is now."""
        at = self._clock.wall_ms()
        numbers = range(self.written[key], self.written[key] + count)
        payloads = (json.dumps({"key": key, "number": each, "at": at}).encode() for each in numbers)
        return [eventproc.NewEvent(each, key, event_time=at) for each in payloads]

    async def _write(self) -> None:
        stream = await self._ep.stream(EVENTS)
        async with stream.writer() as writer:
            while not self.is_over:
                key = f"k{self._random.randrange(KEYS)}"
                began = time.perf_counter()
                await writer.write_many(self._events(key, BATCH))
                self._note("write ms", (time.perf_counter() - began) * 1000)
                self.written[key] += BATCH
                await self._pause(WRITES_S)

    async def _transact(self) -> None:
        stream = await self._ep.stream(EVENTS)
        while not self.is_over:
            count, aborts = self._random.randint(1, 5), self._random.random() < 0.2
            async with stream.transaction() as txn:
                for each in self._events(TXN_KEY, count):
                    await txn.write(each.payload, key=each.key, event_time=each.event_time)
                if aborts:
                    await txn.abort()
            if not aborts:
                self.written[TXN_KEY] += count
            self.counts["aborted" if aborts else "committed"] += 1
            await self._pause(STEP_S)

    async def _submit(self) -> None:
        jobs = self._ep.jobs("s/jobs", JOBS)
        while not self.is_over:
            id = f"job{self.counts['jobs']}"
            self._open_jobs.add(id.encode())
            await jobs.submit(id.encode(), id=id, delay_ms=self._random.choice([None, None, 2_000]))
            self.counts["jobs"] += 1
            await self._pause(STEP_S)

    async def _scale(self) -> None:
        stream = await self._ep.stream(EVENTS)
        while not self.is_over:
            segments = await stream.segments()
            if len(segments) >= SEGMENTS_MAX:
                await stream.merge(*[each.id for each in segments[:2]])
            else:
                await stream.split(self._random.choice(segments).id)
            self.counts["scales"] += 1
            await self._pause(SCALE_S)

    def _take(self, event: eventproc.Event) -> None:
        if event.stream == COPIES:
            fields = json.loads(event.payload)
            self._copied.take(fields["key"], fields["number"])
            self._note("copy ms", self._clock.wall_ms() - fields["at"])
        elif event.stream == SPANS:
            self._spans.take(str(event.key), json.loads(event.payload))
        elif event.stream == DONE:
            self._open_jobs.remove(event.payload)  # KeyError: it is done twice
        else:
            self._ticks.append(event.event_time or 0)
            passed_ms = self._ticks[-1] - self._ticks[0]
            assert passed_ms == self._tick_s * 1000 * (len(self._ticks) - 1), "a tick is missing"
