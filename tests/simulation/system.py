"""The whole system from a seed: instances that die, hang and have wrong clocks, and all that users do meanwhile.

Writers, transactions, readers of a group, workers, and processors of three kinds work on one stream in several
instances of a `SimulatedWorld`. Meanwhile the stream is scaled by people and by its policy, other streams are
truncated, sealed and deleted, and instances die, hang, and meet full disks, busy locks and slow steps. What must hold
is what the simulations of the groups and of the processors check, here through the deaths of single instances instead
of all at once.
"""

from __future__ import annotations

from base64 import b64encode
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from functools import partial
from importlib import import_module
from random import Random

import anyio
import attrs

from eventproc import App, Event, Group, NewEvent
from eventproc.groups import GroupReader
from eventproc.processors.declarations import OrderName
from eventproc.runtime import Eventproc
from eventproc.store.database.memory_database import MemoryDatabase
from eventproc.store.faults import Moment, Step, point_of
from eventproc.store.model.errors import (
    Fenced,
    NotFound,
    Pending,
    Rejected,
    Retryable,
)
from eventproc.store.model.group_errors import ReaderOnline
from eventproc.store.schema import CONCURRENT_TABLES
from eventproc.testing import Fault, FaultPlan, SimulatedInstance, SimulatedWorld, check
from tests.groups.simulation import GroupSimulation
from tests.processors.simulation import NOTED, STREAM, ProcessorPlan, ProcessorSimulation
from tests.simulation.compacted import TableSimulation
from tests.simulation.kept_rows import checking_kept_rows
from tests.simulation.model import TOLD, check_model, model_app
from tests.simulation.policies import (
    KEPT,
    SCALED,
    PolicyWatch,
    check_kept,
    create_kept,
    scales_of_policies,
    write_kept,
)
from tests.simulation.work import WorkSimulation
from tests.support.lives import scale_at_random
from tests.support.reading import events_of

INSTANCES = 3
WRITERS = 2
BATCHES = 8
TXNS = 5
READERS = 2
COMPACTERS = 2
CHAOS = 6
KEPT_EVENTS = 40
LATE_MS_MAX = 30_000
"""Longest delay of an event."""
LIMIT_S = 1_200
"""Virtual time that a seed may take; most take a minute or two."""
BYTES_KIND = 2
"""Of the keys of a writer, this one is of bytes."""
GROUP = "s/readers"
STEPS = (
    Step.WRITER_APPEND,
    Step.DELAYED_DELIVERY,
    Step.COMPACTION,
    Step.TRANSACTION_STAGE,
    Step.TRANSACTION_END,
    Step.PROCESSOR_PROGRESS,
    Step.SHARE_ACQUIRE,
    Step.SHARE_SETTLE,
    Step.JOB_CHANGE,
    Step.GROUP_JOIN,
    Step.GROUP_REFRESH,
    Step.GROUP_RELEASE,
    Step.GROUP_PROGRESS,
    Step.REQUEST_SUBMIT,
    Step.REQUEST_RUN,
    Step.HOST_CLAIM,
    Step.HOST_PROGRESS,
    Step.HOST_SWEEP,
)
"""Steps at which faults are planned."""


import_module(
    "opentelemetry.metrics"
)  # a process that has it measures, which takes reads: each seed has them

ORDERS: tuple[OrderName | None, ...] = ("segment", "key", None)


@attrs.define
class Happened:
    """What a seed had of each kind."""

    deaths: int = 0
    takeovers: int = 0
    scales: int = 0
    commits: int = 0
    truncations: int = 0
    policy_scales: int = 0
    checked: int = 0

    @property
    def counts(self) -> bool:
        """Whether the seed had one of each."""
        return all((self.deaths, self.takeovers, self.scales, self.commits, self.truncations))


class SystemSimulation:
    """One seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.happened = Happened()
        self.trace = ""
        self.written: Counter[str] = Counter()
        self.acked: Counter[str] = Counter()
        self.readers = GroupSimulation(seed, deaths=True)
        once = self.random.randrange(3)
        self.parts = [
            ProcessorSimulation(
                seed,
                ProcessorPlan(
                    order=order,
                    exactly_once=number == once,
                    frees_key=number != once and self.random.random() < 0.3,
                    batch=self.random.choice([None, None, 4]),
                    group=f"s/g{number}",
                    out=f"s/out{number}",
                ),
            )
            for number, order in enumerate(ORDERS)
        ]
        self.work = WorkSimulation(seed)
        self.table = TableSimulation(seed)
        self._ending = False
        self._is_disturbed = self.random.random() < 0.7
        self.policies = PolicyWatch(is_disturbed=self._is_disturbed)

    async def run(self) -> None:
        """Live through the seed, and assert what must hold. Raises TimeoutError if nothing goes on any more."""
        with (
            anyio.fail_after(LIMIT_S),
            self.policies.noting_looks(),
            self.table.in_small_parts(),
            checking_kept_rows(MemoryDatabase, CONCURRENT_TABLES, self.seed) as checked,
        ):
            await self._live()
        self.happened.checked = checked[0]

    async def _live(self) -> None:
        async with SimulatedWorld(seed=self.seed) as self.world:
            ep = self.world.ep
            await self._start()
            await ep.create_scope("s")
            await ep.create_stream(STREAM, scaling=SCALED)
            for name in (*(part.plan.out for part in self.parts), NOTED, TOLD):
                await ep.create_stream(name)
            await create_kept(ep)
            await self.work.create(ep)
            await self.table.create(ep)
            await ep.create_group(GROUP, [STREAM])
            for _ in range(INSTANCES - 1):
                await self._start()
            for instance in self.world.instances:
                await self._run_apps(instance)
            async with anyio.create_task_group() as readers:
                for number in range(READERS):
                    readers.start_soon(self._read, number)
                readers.start_soon(self._watch)
                readers.start_soon(self._watch_policies)
                async with anyio.create_task_group() as actors:
                    for number in range(WRITERS):
                        actors.start_soon(self._write, number)
                    actors.start_soon(self._transact)
                    actors.start_soon(self._scale)
                    actors.start_soon(self._use_other_streams)
                    actors.start_soon(self._write_kept)
                    actors.start_soon(self.work.submit, self._somewhere)
                    actors.start_soon(self.table.write, self._somewhere)
                    for _ in range(COMPACTERS):
                        actors.start_soon(self.table.compact, self._somewhere)
                    actors.start_soon(self._pause_and_expire)
                    actors.start_soon(self._harm)
                await self._calm()
                while (left_ms := await self.world.delayed_ms()) is not None:  # noqa: ASYNC110  # virtual time
                    await anyio.sleep((left_ms + 50) / 1000)
                await self.policies.have_run()
                self.policies.check(STREAM, KEPT)
                await (await ep.stream(STREAM)).seal()
                self._ending = True
                self._noting.cancel()
            await self.world.settled()
            await self._check_end()
            self.happened.deaths = self.world.deaths
            self.happened.takeovers = await self.world.takeovers()
            self.happened.policy_scales = await scales_of_policies(ep)
            self.happened.commits = self.world.commits.total()
            self.trace = self.world.trace

    # Instances.

    async def _start(self) -> SimulatedInstance:
        return await self.world.start(faults=FaultPlan())

    async def _run_apps(self, instance: SimulatedInstance) -> None:
        for part in self.parts:
            if self.random.random() < 0.7:
                await self._on(instance, partial(_run, instance, part.app()))
        if self.random.random() < 0.7:
            await self._on(instance, partial(_run, instance, self.work.app(STREAM)))
        if self.random.random() < 0.7:
            await self._on(instance, partial(_run, instance, model_app(STREAM)))

    def _able(self) -> list[SimulatedInstance]:
        return [each for each in self.world.instances if each.alive and not each.suspended]

    async def _some_able(self) -> list[SimulatedInstance]:
        """Return the instances that can act: a new one if the others died or are suspended."""
        return self._able() or [await self._start()]

    async def _on(self, instance: SimulatedInstance, work: Callable[[Eventproc], Awaitable[object]]) -> bool:
        """Let an instance do something; return whether it did, False if it died first or met a transient error."""
        done, ended = False, anyio.Event()

        async def run() -> None:
            nonlocal done
            try:
                await work(instance.ep)
                done = True
            except (Retryable, Pending, Fenced):
                await anyio.lowlevel.checkpoint()
            finally:
                ended.set()

        if not instance.alive:
            await anyio.sleep(0.1)
            return False
        instance.start_soon(run)
        await ended.wait()
        return done

    async def _somewhere(self, work: Callable[[Eventproc], Awaitable[object]]) -> bool:
        return await self._on(self.random.choice(await self._some_able()), work)

    async def _pause(self, most_s: float) -> None:
        await anyio.sleep(self.random.random() * most_s)

    # What users do.

    async def _write(self, number: int) -> None:
        """Write batches under one name, or with ids; a batch whose writer died is repeated, elsewhere."""
        for sequence in range(1, BATCHES + 1):
            batch = []
            for _ in range(self.random.choice([1, 2, 8])):
                kind = self.random.randrange(3)
                key = f"w{number}{kind}"
                given: str | bytes = key
                if kind == BYTES_KIND:
                    given, key = b"w%d\xff" % number, _text_of(b"w%d\xff" % number)
                priority = self.random.choice([0, 0, 0, 1, 9])
                batch.append(NewEvent(b"%d" % self.written[key], given, priority=priority))
                self.written[key] += 1
            key, delay_ms = f"w{number} later {sequence}", self.random.randrange(LATE_MS_MAX)
            self.written[key] = self.random.randrange(4)
            batch += [NewEvent(b"%d" % each, key, delay_ms=delay_ms) for each in range(self.written[key])]
            has_ids, repeats = self.random.random() < 0.5, self.random.randrange(3)
            if has_ids:
                batch = [attrs.evolve(each, id=f"w{number} {sequence} {at}") for at, each in enumerate(batch)]

            async def send(
                ep: Eventproc,
                batch: list[NewEvent[bytes]] = batch,
                sequence: int | None = None if has_ids else sequence,
            ) -> None:
                name = None if sequence is None else f"w{number}"
                async with (await ep.stream(STREAM)).writer(name=name) as writer:
                    await writer.write_many(batch, sequence=sequence)

            for _ in range(1 + repeats):
                while not await self._somewhere(send):
                    pass
                await self._pause(2)
            await self._pause(2)

    async def _transact(self) -> None:
        """Commit and abort transactions, each with a key of its own: all of its events are there, or none."""
        for number in range(TXNS):
            key, count = f"t{number}", self.random.choice([1, 3, 6])
            aborts = self.random.random() < 0.2

            async def transact(
                ep: Eventproc, key: str = key, count: int = count, aborts: bool = aborts
            ) -> None:
                async with (await ep.stream(STREAM)).transaction() as txn:
                    for each in range(count):
                        await txn.write(b"%d" % each, key=key)
                        await self._pause(0.3)
                    if aborts:
                        await txn.abort()

            self.written[key] = 0 if aborts else count
            if await self._somewhere(self._refusable(transact)) and not aborts:
                self.acked[key] = count
            await self._pause(2)

    def _refusable(
        self, work: Callable[[Eventproc], Awaitable[object]]
    ) -> Callable[[Eventproc], Awaitable[object]]:
        async def run(ep: Eventproc) -> None:
            try:
                await work(ep)
            except Rejected as why:
                raise NotDone from why

        return run

    async def _scale(self) -> None:
        for _ in range(self.random.randint(2, 4)):
            await self._pause(5)
            self.happened.scales += await self._somewhere(self._scale_once)

    async def _scale_once(self, ep: Eventproc) -> None:
        if not await scale_at_random(await ep.stream(STREAM), self.random, into_max=3):
            raise NotDone

    async def _pause_and_expire(self) -> None:
        """Pause processors and resume them, and declare processes offline that are not."""
        for part in self.parts:
            await self._pause(8)
            group = part.plan.group
            if self.random.random() < 0.5 and await self._somewhere(partial(_pause_group, group)):
                await self._pause(4)
            await self._until_done(partial(_resume_group, group))
            await self._somewhere(part.expire)

    async def _use_other_streams(self) -> None:
        """Create, fill, truncate, seal and delete a stream, twice under the same name."""
        for _ in range(2):
            await self._until_done(lambda ep: _create(ep, "s/other"))
            await self._until_done(lambda ep: _fill(ep, "s/other"))
            await self._until_done(_truncate)
            self.happened.truncations += 1
            left = await self.world.events("s/other")
            assert not left, f"{len(left)} events are before the head"
            await self._until_done(_delete)
            await self._pause(3)

    async def _write_kept(self) -> None:
        for number in range(KEPT_EVENTS):
            await self._until_done(partial(write_kept, number=number))
            await self._pause(1)

    async def _watch_policies(self) -> None:
        with anyio.CancelScope() as self._noting:
            await self.policies.note_deaths(self.world)

    async def _until_done(self, work: Callable[[Eventproc], Awaitable[object]]) -> None:
        while not await self._somewhere(work):
            await self._pause(1)

    async def _read(self, number: int) -> None:
        """Be one reader of the group after the other, in any instance, until the stream has ended."""
        ended = False

        async def read(ep: Eventproc) -> None:
            nonlocal ended
            group = await ep.group(GROUP)
            ended = await self._read_for_a_while(group, f"r{number}")

        while not ended:
            await self._pause(1)
            await self._somewhere(read)

    async def _read_for_a_while(self, group: Group, name: str) -> bool:
        left = self.random.choice([1, 5, 20, 1000])
        try:
            async with group.reader(name) as reader, aclosing(aiter(reader)) as events:
                async for event in events:
                    await self._take(reader, event)
                    left -= 1
                    if left <= 0:
                        return False
        except ReaderOnline:
            return False  # the one before hangs
        return True

    async def _take(self, reader: GroupReader[bytes], event: Event) -> None:
        await self.readers.take(reader, [event])

    async def _watch(self) -> None:
        while not self._ending:
            await anyio.sleep(2)
            for part in self.parts:
                await part.check_progress(self.world.ep)

    # What goes wrong.

    async def _harm(self) -> None:
        for number in range(CHAOS):
            await self._pause(4)
            able = await self._some_able()
            victim = self.random.choice(able)
            harm = self.random.choice(["kill", "point", "suspend", "wall", "disk", "delay"])
            if not self._is_disturbed:
                harm = self.random.choice(["kill", "point"])
            elif number < 2:  # each seed kills a host, and suspends one
                victim, harm = await self.world.host() or victim, ("kill", "suspend")[number]
            match harm:
                case "kill":
                    await self._replace(victim.kill)
                case "point":
                    self._plan(victim, "die", self.random.choice(list(Moment)))
                case "suspend" if len(able) > 1:
                    victim.suspend()
                    await anyio.sleep(self.random.choice([0.2, 3, 8, 15]))
                    victim.resume()
                case "wall":
                    victim.clock.step_wall(self.random.randint(-60_000, 60_000))
                case "disk":
                    self._plan(victim, self.random.choice(["full", "busy"]), Moment.COMMIT)
                case _:
                    self._plan(victim, "delay", Moment.BEGUN)
            await self._replace(lambda: None)

    def _plan(self, victim: SimulatedInstance, action: str, moment: Moment) -> None:
        assert isinstance(victim.faults, FaultPlan)
        point = point_of(self.random.choice(STEPS), moment)
        victim.faults.add(
            Fault(point, action, nth=self.random.randint(1, 4), times=self.random.randint(1, 3), ms=700)  # type: ignore[arg-type]
        )

    async def _replace(self, kill: Callable[[], object]) -> None:
        """Harm, and start instances for those that died. The last one that can act is never harmed alone."""
        if len(self._able()) == 1:
            await self._run_apps(await self._start())
        kill()
        while sum(each.alive for each in self.world.instances) < INSTANCES:
            await self._run_apps(await self._start())

    async def _calm(self) -> None:
        """Let nothing go wrong any more, and let every processor run somewhere."""
        for each in self.world.instances:
            assert isinstance(each.faults, FaultPlan)
            if each.alive:
                each.faults.heal()
                each.resume()
        last = await self._start()
        for part in self.parts:
            await last.run(part.app())
        await last.run(self.work.app(STREAM))
        await last.run(model_app(STREAM))

    # What must hold.

    async def _check_end(self) -> None:
        ep = self.world.ep
        found: Counter[str] = Counter()
        ids: set[str] = set()
        events = await events_of(await ep.stream(STREAM))
        for event in events:
            assert int(event.payload) == found[str(event.key)], (
                f"{event.key}: {event.payload!r} is out of order"
            )
            found[str(event.key)] += 1
            assert event.id is None or event.id not in ids, f"the id {event.id} lies twice"
            ids.update([] if event.id is None else [event.id])
        for key, count in self.written.items():
            expected = {0, count} if key[0] == "t" and not self.acked[key] else {count}
            assert found[key] in expected, f"{key}: {found[key]} events are there, {count} were written"
        self.readers.written = Counter(found)
        self.readers.compare()
        for part in self.parts:
            part.written.clear()
            part.written.update(found.elements())
            await part.check_progress(ep)
            await part.check_end(ep)
        await check_kept(ep, KEPT_EVENTS)
        await self.work.check_end(ep, STREAM)
        await check_model(ep, events)
        await self.table.check_end(ep)
        await check(ep.db)


def _text_of(key: bytes) -> str:
    """Return the text of a key that is no UTF-8, as readers get it."""
    return f"data:;base64,{b64encode(key).decode()}"


async def _run(instance: SimulatedInstance, app: App, _: Eventproc) -> None:
    await instance.run(app)


async def _pause_group(group: str, ep: Eventproc) -> None:
    try:
        await ep.pause_processor(group)
    except NotFound:
        await anyio.lowlevel.checkpoint()  # no instance has run it yet


async def _resume_group(group: str, ep: Eventproc) -> None:
    try:
        await ep.resume_processor(group)
    except NotFound:
        await anyio.lowlevel.checkpoint()


class NotDone(Retryable):
    """It did not happen: the system refused it."""


async def _create(ep: Eventproc, name: str) -> None:
    try:
        await ep.create_stream(name)
    except Rejected:
        await ep.stream(name)  # by a request of an instance that died


async def _fill(ep: Eventproc, name: str) -> None:
    async with (await ep.stream(name)).writer(name="filler") as writer:
        await writer.write_many([(b"%d" % number, f"k{number % 3}") for number in range(9)])


async def _truncate(ep: Eventproc) -> None:
    stream = await ep.stream("s/other")
    await stream.truncate(await stream.tail())


async def _delete(ep: Eventproc) -> None:
    try:
        stream = await ep.stream("s/other")
        await stream.seal()
        await stream.delete()
    except (NotFound, Rejected):
        pass  # an instance that died had asked for it
