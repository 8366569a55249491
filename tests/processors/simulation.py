"""A stream, processors of one kind in several apps, and all that may happen to them, from a seed.

What must hold, whatever happened: no event is begun before those that it follows were finished; durable progress
covers finished events only; in the end every event was finished, and what handlers emitted is there: exactly once,
in the order of keys, if the processor has that order. If no process died, every event was handled exactly once.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from random import Random

import anyio
import attrs

import eventproc
from eventproc.groups import describe_group
from eventproc.groups.operations import reader_offline
from eventproc.processors import App, AppTx, Context, Directive, Failure, KeyState, RetryPolicy, run_app
from eventproc.processors.declarations import OrderName
from eventproc.runtime import Eventproc
from eventproc.store.database import Tx
from eventproc.store.model.errors import NotFound
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.progress import Progress
from eventproc.store.progress import progress_of_text
from eventproc.store.segments import Event
from eventproc.streams import Stream
from eventproc.testing import Deaths, VirtualClock, check, run_until_death
from tests.processors.support import events
from tests.support.lives import ensured, hosted, scale_at_random

STREAM, OUT, GROUP = "s/t", "s/out", "s/g"
KEYS = 6
IDLE_MS = 3_600_000


@attrs.frozen(kw_only=True)
class ProcessorPlan:
    """What kind of processor, and what happens. calm: apps come and go in order, and handlers never fail.

    pace: how many seconds one of the simulation takes; virtual ones cost nothing.
    group, out: the processor's group, and the stream that it emits to.
    frees_key: a failing event is set aside, and the order of its key, or segment, is given up.
    state: it keeps a state by key; `cache_bytes` of it are at hand.
    """

    order: OrderName | None = "key"
    exactly_once: bool = False
    frees_key: bool = False
    batch: int | None = None
    deaths: int = 0
    calm: bool = False
    apps: int = 3
    events: int = 120
    pace: float = 1.0
    group: str = GROUP
    out: str = OUT
    state: bool = False
    cache_bytes: int = 2**20


class ProcessorSimulation:
    """State that outlives deaths: what handlers did, and the database."""

    def __init__(self, seed: int, plan: ProcessorPlan) -> None:
        self.random = Random(seed)
        self.plan = plan
        self.record = HandlingRecord(None if plan.frees_key else plan.order, alone=plan.calm)
        self.written: Counter[str | None] = Counter()
        self.deaths = plan.deaths
        self.done = False
        self.names: tuple[str, ...] = (STREAM, plan.out, NOTED)

    async def run(self) -> None:
        faults = Deaths()
        self.clock = VirtualClock(self.random.randrange(2**32))
        async with eventproc.open_memory(host=False, clock=self.clock, faults=faults) as ep:
            while not self.done:
                if self.deaths > 0:
                    self.deaths -= 1
                    plan = self.random.choice([faults.die_before_commit, faults.die_after_commit])
                    plan(self.random.randint(1, 150))
                await run_until_death(partial(self._live, ep))
                faults.heal()
                self.record.cut_off()
                await check(ep.db)
                await self.check_progress(ep)
            await self.check_end(ep)

    async def _live(self, ep: Eventproc) -> None:
        async with hosted(ep) as background:
            await ep.create_scope("s")
            for name in self.names:
                await ensured(ep, name)
            stream = await ep.stream(STREAM)
            await self.recount(stream)
            background.start_soon(self._watch, ep)
            async with anyio.create_task_group() as actors:
                actors.start_soon(self._write, stream)
                actors.start_soon(self._scale, stream)
                if not self.plan.calm:
                    actors.start_soon(self.expire, ep)
                for _ in range(self.plan.apps):
                    actors.start_soon(self._apps, ep)
            async with run_app(ep.db, self.app()) as running:
                await running.resume("p")
                await running.wait_idle(timeout_ms=IDLE_MS)
        self.done = True

    # What happens.

    async def _pause(self, seconds: float) -> None:
        await anyio.sleep(seconds * self.plan.pace)

    async def recount(self, stream: Stream) -> None:
        """Learn what of the events written in the life before is there."""
        self.written.clear()
        async with stream.reader() as reader:
            async for batch in reader.batches(until=await stream.tail()):
                self.written.update(event.key for event in batch)

    async def _write(self, stream: Stream) -> None:
        async with stream.writer() as writer:
            while sum(self.written.values()) < self.plan.events:
                batch = []
                for _ in range(self.random.choice([1, 2, 10, 30])):
                    key = self.random.choice([None, *(f"k{n}" for n in range(KEYS))])
                    batch.append((b"%d" % self.written[key], key))
                    self.written[key] += 1
                await writer.write_many(batch)
                await self._pause(self.random.random())

    async def _scale(self, stream: Stream) -> None:
        for _ in range(self.random.randint(0, 5)):
            await self._pause(self.random.random() * 3)
            await scale_at_random(stream, self.random, into_max=3)

    async def expire(self, ep: Eventproc) -> None:
        """Declare processes of the processor offline that are not."""
        for _ in range(self.random.randint(0, 6)):
            await self._pause(self.random.random() * 4)

            def expire(tx: Tx) -> None:
                readers = [each.reader for each in describe_group(tx, self.plan.group).members]
                if readers:
                    reader_offline(tx, self.plan.group, self.random.choice(readers))

            try:
                await ep.db.write(expire)
            except NotFound:
                pass  # no app made the group yet

    async def _apps(self, ep: Eventproc) -> None:
        """Start an app, end it in some way, again."""
        for _ in range(self.random.randint(1, 3)):
            await self._pause(self.random.random() * 3)
            grace_ms = IDLE_MS if self.plan.calm else self.random.choice([0, 300, IDLE_MS])
            with anyio.CancelScope() as scope:
                async with run_app(ep.db, self.app(), grace_ms=grace_ms) as running:
                    if self.random.random() < 0.2:
                        await running.pause("p")
                        await self._pause(self.random.random() * 3)
                        await running.resume("p")
                    await self._pause(self.random.random() * 6)
                    if not self.plan.calm and self.random.random() < 0.4:
                        scope.cancel()

    def app(self) -> App:
        """Return the processor, as an app of one process."""
        app, plan = App(), self.plan
        handler = SimulatedHandler(self)
        round_events, linger_ms = self.random.choice([1, 7, 100]), self.random.choice([0, 300])
        declare = app.processor(
            STREAM,
            name="p",
            group=plan.group,
            order=plan.order,
            concurrency=self.random.randint(1, 5),
            batch=plan.batch,
            linger_ms=None if plan.batch is None else linger_ms,
            retry=RetryPolicy(attempts=2, wait_ms=50, wait_ms_max=200, jitter_ms=0, frees_key=plan.frees_key),
            timeout_ms=round(2_000 * plan.pace),
            supervise=handler.spent,
            exactly_once=plan.exactly_once,
            on_commit=_note_handled if plan.exactly_once else None,
            round_events=round_events if plan.exactly_once else None,
            state=KeyState(Numbers, cache_bytes=plan.cache_bytes) if plan.state else None,
        )
        if plan.state:
            declare(handler.with_state)
        else:
            declare(handler.one if plan.batch is None else handler.several)
        app.setup(_make_table)
        return app

    # What must hold.

    async def _watch(self, ep: Eventproc) -> None:
        while True:
            await self._pause(self.random.random())
            await self.check_progress(ep)

    async def check_progress(self, ep: Eventproc) -> None:
        """Assert that durable progress covers finished events only."""

        def look(tx: Tx) -> list[tuple[int, str]]:
            rows = tx.execute(
                "SELECT segment, finished FROM group_segment WHERE group_name = ? AND waiting IS NULL",
                (self.plan.group,),
            )
            return [(segment, text) for segment, text in rows.fetchall()]

        for segment, text in await ep.db.read(look):
            progress = progress_of_text(text, self.plan.group, 0, SegmentId(segment))
            progress.check()
            self.record.verify(SegmentId(segment), progress)

    async def check_end(self, ep: Eventproc) -> None:
        """Assert that every event was finished, and that what handlers emitted is there."""
        self.record.verify_end(self.written)
        letters = await ep.dead_letters(self.plan.group).list(limit=1000)
        lost = Counter((each.key, int(each.payload)) for each in letters)
        handled = Counter(
            (key, number) for key, number in await ep.db.read(lambda tx: tx.execute(TABLE_ROWS).fetchall())
        )
        found = await events(ep, self.plan.out)
        outputs = Counter((event.key, int(event.payload)) for event in found)
        wanted = {(key, number) for key, count in self.written.items() for number in range(count)}
        assert outputs.keys() | lost.keys() == wanted
        if self.plan.state:
            await self._check_state(ep, wanted - lost.keys())
        if not self.plan.exactly_once:
            return
        assert max([*outputs.values(), *lost.values(), *handled.values()], default=1) == 1
        assert not outputs.keys() & lost.keys(), "an event was handled, and given up"
        assert handled.keys() == outputs.keys()
        noted = Counter((event.key, int(event.payload)) for event in await events(ep, NOTED))
        assert noted == handled, "what `on_commit` emits comes with its SQL"
        by_key: defaultdict[str | None, list[int]] = defaultdict(list)
        for event in found:
            by_key[event.key].append(int(event.payload))
        for key, numbers in by_key.items():
            assert self.plan.order is None or key is None or numbers == sorted(numbers), f"{key}: {numbers}"

    async def _check_state(self, ep: Eventproc, handled: set[tuple[str | None, int]]) -> None:
        """Assert that the state of each key has each of its events that was handled once, in their order."""
        kept = await ep.state(self.plan.group, Numbers).list()
        by_key: defaultdict[str | None, list[int]] = defaultdict(list)
        for key, number in sorted(handled, key=lambda each: each[1]):
            by_key[key].append(number)
        assert {each.key: each.value.numbers for each in kept} == by_key


@attrs.define
class Numbers:
    """What the processor keeps for a key: the numbers of its events, as they were handled."""

    numbers: list[int] = attrs.field(factory=list)


class SimulatedHandler:
    """The handler of one app."""

    def __init__(self, simulation: ProcessorSimulation) -> None:
        self.simulation = simulation
        self.plan = simulation.plan
        self.random = simulation.random

    async def one(self, event: Event, context: Context) -> None:
        await self._handle([event], context)

    async def with_state(self, event: Event, kept: Numbers, context: Context) -> None:
        kept.numbers.append(int(event.payload))
        await self._handle([event], context)

    async def several(self, events: list[Event], context: Context) -> None:
        await self._handle(events, context)

    async def _handle(self, events: Sequence[Event], context: Context) -> None:
        with self.simulation.record.calls(self, events):
            if self.random.random() < 0.5:
                await anyio.sleep(self.plan.pace * self.random.choice([0, 0, 0.1, self.random.random()]))
            if not self.plan.calm:
                chance = self.random.random()
                if chance < 0.01:
                    await anyio.sleep_forever()  # its timeout ends it
                if chance < 0.1:
                    raise ValueError("now and then")
        for event in events:
            context.emit(self.plan.out, event.payload, key=event.key)

    def spent(self, failure: Failure) -> Directive:
        self.simulation.record.finish(failure.event)
        return self.random.choice([Directive.RESUME, Directive.RESTART])


NOTED = "s/noted"
"""Gets the event that `on_commit` emits for each that was handled."""

TABLE_ROWS = "SELECT key, number FROM app_handled"


def _make_table(tx: AppTx) -> None:
    tx.execute("CREATE TABLE IF NOT EXISTS app_handled (key TEXT, number INTEGER)")


def _note_handled(tx: AppTx, events: Sequence[Event]) -> None:
    tx.executemany(
        "INSERT INTO app_handled VALUES (?, ?)", [(each.key, int(each.payload)) for each in events]
    )
    for each in events:
        tx.emit(NOTED, each.payload, key=each.key)


class HandlingRecord:
    """Events are known by segment and number, and by key and count: their payload counts those of their key.

    alone: no two calls of different processes may run for what follows each other, and no event is handled twice;
    a process that was cut off does not know of the takeover.
    """

    def __init__(self, order: str | None, *, alone: bool) -> None:
        self.order = order
        self.alone = alone
        self.finished: defaultdict[SegmentId, set[int]] = defaultdict(set)
        self.by_key: defaultdict[str | None, set[int]] = defaultdict(set)
        self.times: Counter[tuple[SegmentId, int]] = Counter()
        self.problems: list[str] = []  # an assertion within a handler would only be one of its failures
        self._running: set[object] = set()

    def cut_off(self) -> None:
        """All processes died."""
        self._running.clear()

    @contextmanager
    def calls(self, owner: object, events: Sequence[Event]) -> Iterator[None]:
        """A call for these events begins, and at the block's end returns, or fails."""
        queues = {self._lane(owner, event) for event in events} - {None}
        if queues & self._running:
            self.problems.append(f"two calls for {queues & self._running} at the same time")
        begun: defaultdict[object, set[int]] = defaultdict(set)
        for event in events:
            self._check_order(event, begun)
        self._running |= queues
        try:
            yield
        finally:
            self._running -= queues
        for event in events:
            self.finish(event)
            self.times[event.segment, event.number] += 1

    def finish(self, event: Event) -> None:
        """The event is done with, in whatever way."""
        self.finished[event.segment].add(event.number)
        self.by_key[event.key].add(int(event.payload))

    def _lane(self, owner: object, event: Event) -> object:
        queue = {"segment": event.segment, "key": event.key, None: None}[self.order]
        return None if queue is None else (None if self.alone else owner, queue)

    def _check_order(self, event: Event, begun: defaultdict[object, set[int]]) -> None:
        """No event is begun before those it follows were finished, or are before it in the same call."""
        count = int(event.payload)
        if self.order is not None and event.key is not None:
            missing = set(range(count)) - self.by_key[event.key] - begun[event.key]
            if missing:
                self.problems.append(f"{event.key}: {count} is begun before {sorted(missing)[:5]}")
            begun[event.key].add(count)
        if self.order == "segment":
            missing = set(range(event.number)) - self.finished[event.segment] - begun[event.segment]
            if missing:
                self.problems.append(f"{event.segment}: {event.number} is begun before {sorted(missing)[:5]}")
            begun[event.segment].add(event.number)

    def verify(self, segment: SegmentId, progress: Progress) -> None:
        """Durable progress covers nothing that is not finished."""
        assert not self.problems, self.problems[:3]
        passed = set(range(progress.number)).union(*(range(low, high) for low, high, _ in progress.finished))
        assert passed <= self.finished[segment], (
            f"{segment}: {progress} passes unfinished {sorted(passed - self.finished[segment])[:5]}"
        )

    def verify_end(self, written: Mapping[str | None, int]) -> None:
        """Every event was finished; exactly once if no process died."""
        assert not self.problems, self.problems[:3]
        for key, count in written.items():
            missing = set(range(count)) - self.by_key[key]
            assert not missing, f"{key}: {sorted(missing)[:5]} were never finished"
        if self.alone:
            twice = [each for each, times in self.times.items() if times > 1]
            assert not twice, f"handled twice: {sorted(twice)[:5]}"
