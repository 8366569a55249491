"""A world for tests: several instances on one system in memory, each of which can die, hang, and have a wrong clock.

It simulates one machine. An instance stands for a process that opened the directory: it has its own caches, tasks and
clock, and the instances share only the database, the locks and the heartbeat of the host. So a test sees what happens
between processes, such as a takeover, in one process and in virtual time. docs/design/virtual-time.md says how.
"""

from __future__ import annotations

import hashlib
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from functools import partial
from itertools import count
from random import Random
from types import TracebackType
from typing import Any, Final, TypeAlias, TypeVarTuple

import anyio

from eventproc.base.tasks import BackgroundTasks
from eventproc.cluster.host import CONTROLLER
from eventproc.groups.time_limit import within
from eventproc.processors import App, Running
from eventproc.processors.engine.timers import has_due_timers
from eventproc.processors.observe.status import describe_processors
from eventproc.processors.options import Options
from eventproc.runtime import Eventproc, open_in_store
from eventproc.store.catalog import SYSTEM_MIGRATIONS, list_streams
from eventproc.store.database import Tx
from eventproc.store.database.memory_database import MemoryDatabase, MemoryStore
from eventproc.store.delayed_events import first_once_due_ms
from eventproc.store.faults import NO_FAULTS, Died, Faults
from eventproc.store.model.argument_checks import invalid_argument
from eventproc.store.model.errors import EventprocError
from eventproc.store.ownership import find_owner
from eventproc.store.requests import pending_requests
from eventproc.store.transactions import list_open
from eventproc.testing.clock import VirtualClock
from eventproc.testing.faults import Action, Fault, FaultPlan
from eventproc.testing.virtual_runtime import LONGER, SETTLE_MS_MAX, SystemInTest, create_streams

LOG = logging.getLogger("eventproc.testing")

Args = TypeVarTuple("Args")

_Opening: TypeAlias = Callable[[], Awaitable[Eventproc]]

LOOK_MS_MAX: Final = 500
"""Longest virtual pause between two looks of `settled`. Higher: it returns later. Lower: long waits cost more looks."""

EXTRA_TURNS_MAX: Final = 2
"""Most scheduling points that a call to the database takes beyond one, chosen by the seed. This varies the schedule on
asyncio too, which calls back in order. Higher: more schedules, slower runs."""

OBSERVER: Final = "observer"
"""Name of the instance that belongs to the test itself."""


class SimulatedInstance:
    """One instance of a `SimulatedWorld`. Made by `SimulatedWorld.start`.

    Attributes:
        name: its name.
        ep: the open system, as this instance sees it.
        clock: its clock. `clock.step_wall(ms)` moves its wall clock only.
        faults: what was planned for it.
    """

    ep: Eventproc

    def __init__(self, name: str, clock: VirtualClock, faults: Faults) -> None:
        self.name = name
        self.clock = clock
        self.faults = faults
        self._scope = anyio.CancelScope()
        self._db: MemoryDatabase | None = None
        self._tasks: BackgroundTasks | None = None
        self._running: list[Running] = []
        self._processors: list[Options] = []
        self._started = anyio.Event()
        self._stopping = anyio.Event()
        self._ended = anyio.Event()
        self._killed = False

    def __repr__(self) -> str:
        state = "alive" if self.alive else "killed" if self._killed else "stopped"
        return f"SimulatedInstance({self.name!r}, {'suspended' if self.suspended else state})"

    @property
    def alive(self) -> bool:
        """Whether it runs, or is suspended."""
        return not self._killed and not self._ended.is_set()

    @property
    def killed(self) -> bool:
        """Whether it died."""
        return self._killed

    @property
    def suspended(self) -> bool:
        """Whether it is suspended."""
        return self._db is not None and self._db.is_suspended

    async def run(self, app: App) -> Running:
        """Run one more app in this instance.

        Args:
            app: the app.
        """
        running = await self.ep.run(app)
        self._running.append(running)
        self._processors += [each.options for each in app.processors]
        return running

    def start_soon(self, function: Callable[[*Args], Coroutine[Any, Any, object]], *args: *Args) -> None:
        """Start a task that belongs to this instance: its death ends the task.

        Args:
            function: the async function.
            args: its arguments.
        """
        assert self._tasks is not None, f"{self.name} has ended"
        self._tasks.start_soon(function, *args)

    def kill(self) -> None:
        """Let it die, as by SIGKILL: its tasks end, nothing of it reaches the database any more, its locks are free."""
        if self.alive:
            LOG.info("%s dies", self.name)
            self._killed = True
            if self._db is not None:
                self._db.kill()
            for running in self._running:
                running.cancel_now()
            self._scope.cancel()

    def suspend(self) -> None:
        """Suspend it, as by SIGSTOP: its calls to the database wait until `resume`, and its locks stay locked."""
        if self._db is not None:
            self._db.suspend()

    def resume(self) -> None:
        """Let a suspended instance continue."""
        if self._db is not None:
            self._db.resume()

    async def stop(self) -> None:
        """Let it end in order: its apps drain, its readers leave their groups."""
        self.resume()
        self._stopping.set()
        await self._ended.wait()

    async def ended(self) -> None:
        """Return when it has died or was stopped."""
        await self._ended.wait()

    def failure(self) -> None:
        """Raise the failure of a processor of it, if one failed.

        Raises:
            ProcessorFailed: a processor failed.
        """
        for running in self._running:
            running.raise_failure()

    async def _live(self, open_it: _Opening, run_apps: Callable[[], Awaitable[object]]) -> None:
        try:
            with self._scope:
                await self._open_and_wait(open_it, run_apps)
        except BaseException as why:
            if not self._killed or not _is_of_death(why):
                raise
        finally:
            self._ended.set()
            self._started.set()

    async def _open_and_wait(self, open_it: _Opening, run_apps: Callable[[], Awaitable[object]]) -> None:
        async with await open_it() as self.ep:
            assert isinstance(self.ep.db, MemoryDatabase), "a world is in memory"
            self._db = self.ep.db
            if self._killed:
                self._db.kill()
            await run_apps()
            async with BackgroundTasks() as self._tasks:
                self._started.set()
                await self._stopping.wait()


class SimulatedWorld(SystemInTest):
    """Several instances on one system in memory; the fixture `eventproc_world`.

    Use it as `async with SimulatedWorld(seed=...) as world`. The test's own instance is `world.ep`, never the host.

    Args:
        seed: seed of ids, of the jitter of retries, and of the schedule.

    Attributes:
        seed: the seed.
        ep: the open system, as the test sees it.
        clock: the clock of the machine. `clock.step_wall(ms)` moves the wall clocks of all instances.
        instances: every instance that was started, also those that ended.
        deaths: how many of them died.
        commits: how many commits there were, by name of the instance.
    """

    def __init__(self, *, seed: int = 0) -> None:
        self.seed = seed
        self.instances: list[SimulatedInstance] = []
        self.commits: Counter[str] = Counter()
        self._names: dict[str, str] = {}
        self._trace = hashlib.sha256()

    async def __aenter__(self) -> SimulatedWorld:
        self._tasks = BackgroundTasks()
        random = Random(self.seed)
        self.clock = VirtualClock(self.seed)
        self._store = MemoryStore(
            migrations=SYSTEM_MIGRATIONS,
            clock=self.clock,
            extra_turns=lambda: random.randint(0, EXTRA_TURNS_MAX),
            on_commit=self._note_commit,
        )
        await self._tasks.__aenter__()
        self._observer = await self._start(OBSERVER, (), host=False, faults=NO_FAULTS)
        self.ep = self._observer.ep
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, why: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        all_instances = [*self.instances, self._observer]
        try:
            if why is None:
                for each in all_instances:
                    await each.stop()
        finally:
            for each in all_instances:
                each.kill()
            handled = await self._tasks.__aexit__(kind, why, trace)
            self._store.close()
        return handled

    async def start(
        self,
        *apps: App,
        name: str | None = None,
        host: bool = True,
        faults: Faults | Iterable[Fault | tuple[str, Action]] = (),
    ) -> SimulatedInstance:
        """Start an instance that runs the apps, and return it once they run, or once it died.

        The streams that their processors read are created, with one segment.

        Args:
            apps: the apps. Default: none.
            name: its name, unused so far. None (default): "i1", "i2" and so on, without the used ones.
            host: whether it may be the host. Default: True.
            faults: a `FaultPlan`, or what one is made of. A death ends this instance only. Default: none.

        Raises:
            InvalidArgument: the name is used.
        """
        used = {OBSERVER, *(each.name for each in self.instances)}
        if name is None:
            name = next(each for number in count(len(used)) if (each := f"i{number}") not in used)
        if name in used:
            raise invalid_argument("name", name, "another instance of this world has it")
        plan = faults if isinstance(faults, Faults) else FaultPlan(faults)
        return await self._start(name, apps, host=host, faults=plan)

    async def _start(
        self, name: str, apps: Sequence[App], *, host: bool, faults: Faults = NO_FAULTS
    ) -> SimulatedInstance:
        clock = VirtualClock(_seed_of(self.seed, name), machine=self.clock)
        instance = SimulatedInstance(name, clock, faults)
        if isinstance(faults, FaultPlan):
            faults.on_death = instance.kill
        if name != OBSERVER:
            self.instances.append(instance)
        self._tasks.start_soon(
            instance._live, partial(self._open, name, host, clock, faults), partial(self._run, instance, apps)
        )
        await instance._started.wait()
        return instance

    async def _open(self, name: str, host: bool, clock: VirtualClock, faults: Faults) -> Eventproc:
        ep = await open_in_store(self._store, host=host, clock=clock, faults=faults)
        self._names[ep.db.instance_id] = name
        return ep

    async def _run(self, instance: SimulatedInstance, apps: Sequence[App]) -> None:
        read = [each for app in apps for processor in app.processors for each in processor.options.streams]
        if read:
            await create_streams(self.ep, read)
        for app in apps:
            await instance.run(app)

    @property
    def deaths(self) -> int:
        """How many instances died."""
        return sum(each.killed for each in self.instances)

    @property
    def trace(self) -> str:
        """Digest of all commits: when, by which instance, and what. The same seed gives the same trace."""
        return self._trace.hexdigest()[:16]

    async def host(self) -> SimulatedInstance | None:
        """Return the instance that became host last, also if it ended; None if there was none."""
        owner = await self.ep.db.read(lambda tx: find_owner(tx, CONTROLLER))
        name = None if owner is None else self._names.get(owner.instance)
        return next((each for each in self.instances if each.name == name), None)

    async def takeovers(self) -> int:
        """Return how often another instance became host."""
        owner = await self.ep.db.read(lambda tx: find_owner(tx, CONTROLLER))
        return 0 if owner is None else owner.owner_epoch - 1

    async def settled(self, *, timeout_ms: int = SETTLE_MS_MAX) -> None:
        """Return when nothing is left to do: requests, events and timers of processors, delayed events, transactions.

        Virtual time passes as far as that needs.

        Args:
            timeout_ms: how much virtual time may pass, in ms. Default: a day.

        Raises:
            TimeoutError: the time is over.
            ProcessorFailed: a processor failed.
            AssertionError: something is left, and no instance runs that could do it.
        """
        pause_ms = 1
        with within(timeout_ms, "work is left", LONGER):
            while await self._is_busy():
                able = [each for each in self.instances if each.alive and not each.suspended]
                assert able, "work is left, and no instance runs: start one"
                for each in able:
                    each.failure()
                await anyio.sleep(pause_ms / 1000)
                pause_ms = min(2 * pause_ms, LOOK_MS_MAX)

    async def _is_busy(self) -> bool:
        # The first look also stores the transactions that this opening has not begun in the database yet.
        return await self.has_open_transactions() or await self.ep.db.read(self._has_work)

    def _has_work(self, tx: Tx) -> bool:
        """Return whether anything is left to do, all at one moment: an event that moves is in one place then."""
        return (
            any(each.group.events for each in describe_processors(tx, self.ep.db.peers))
            or bool(pending_requests(tx))
            or first_once_due_ms(tx) is not None
            or any(has_due_timers(tx, each) for instance in self.instances for each in instance._processors)
            or any(list_open(tx, each.stream_id, limit=1) for each in list_streams(tx))
        )

    def _note_commit(self, instance_id: str, steps: Sequence[str]) -> None:
        name = self._names.get(instance_id, "?")
        self.commits[name] += 1
        self._trace.update(f"{self.clock.monotonic_ms()} {name} {' '.join(steps)}\n".encode())


def _seed_of(seed: int, name: str) -> int:
    return int.from_bytes(hashlib.sha256(f"{seed}/{name}".encode()).digest()[:6], "big")


def _is_of_death(why: BaseException) -> bool:
    """Return whether an error is a death, or follows from one."""
    if isinstance(why, BaseExceptionGroup):
        return all(map(_is_of_death, why.exceptions))
    return isinstance(why, Died | EventprocError)
