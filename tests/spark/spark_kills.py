"""Every process of an ingestion with Spark is killed and suspended: `python -m tests.spark.spark_kills KILLS [SEED]`.

Processes write numbered events, host the supervisors, and run their tasks with Spark. They are killed with SIGKILL
and suspended while the stream splits and merges: the writers, the hosts, the workers, their JVMs, and the
Python processes of these. At the end each acknowledged event is stored once, in order, and each stored one lies once
in both tables, or, if it is no row of one, in the stream of unparseable events. No session is needed here: the
published files are read with pyarrow. `tests.torture.ingestion_machines` does the same on several machines.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from pathlib import Path
from random import Random
from threading import Event as Signal
from typing import Final

import attrs
import psutil
import pyarrow.parquet
from anyio import to_thread

from eventproc import Event
from eventproc.blocking import BlockingEventproc, BlockingStream, open_blocking
from eventproc.cli.exit_codes import WRONG_STATE
from eventproc.ingestion import SupervisorSpec
from eventproc.store.ingestion import read_offsets, read_tasks
from eventproc.store.ingestion.iceberg import StoreTables
from eventproc.store.ingestion.table_access import on_tables
from eventproc.store.ingestion.unpublished import unpublished_events
from eventproc.store.model.errors import EventprocError
from eventproc.store.model.ingestion import Positions
from eventproc.store.model.policies import ScalingPolicy
from eventproc.testing import check
from tests.spark.cluster import Machine
from tests.spark.conftest import CHEAP
from tests.spark.ingestion_account import (
    ODD,
    SPECS,
    STREAM,
    TASK_TIMEOUT_MS,
    IngestionAccount,
    account_of,
    event_of,
    payload_of,
)
from tests.support.torture import KeyAccount, TortureProcess, run_torture, say

PAUSE: Final = Signal()
"""Never set: the moments of the disturbances are random, and nothing announces them."""

WRITERS: Final = 3
HOSTS: Final = 2
WORKERS: Final = 2

VICTIMS: Final = ("writer",) * 8 + ("host",) * 4 + ("worker", "jvm", "python")
"""What is killed, as often as it occurs. One that runs Spark is killed only after tasks have gone on."""

BATCH_MAX: Final = 20
"""Events between two acknowledgements of a writer."""

FAST_BATCH_MAX: Final = 2_000
"""The same of a writer that is to write many."""

WRITER_PAUSE_S: Final = 0.5
"""Longest pause of a writer between two batches: the tables must not fall behind for ever."""

RUN_S_MAX: Final = 1.0
"""Longest pause between two disturbances."""

SUSPENDED: Final = 0.4
"""Chance that a process is suspended before it is killed; half of them continue instead."""

SUSPENDED_S_MAX: Final = 2.0
"""How long a process is suspended, at most: perhaps inside the write lock."""

FENCED_S: Final = TASK_TIMEOUT_MS // 1000 + 5
"""How long some JVMs are suspended: their tasks are replaced meanwhile."""

SCALED: Final = 0.2
"""Chance that a segment is split, or two are merged, before a disturbance."""

LOOK_S: Final = 0.2

STALL_S: Final = 900
"""How long nothing may go on. A machine that others use needs minutes to start a driver."""


@attrs.define
class SparkKillsReport:
    """What happened.

    kills, suspensions: by kind. ended: processes that ended themselves, because their link was cut. acknowledged:
    events; stored: those and others whose writers were killed before they could say so. unparseable: those that are no
    rows, once for each table. tasks: of both supervisors, by state. pause_s: the longest time without progress of the
    tasks. orphans: files that no table uses; workers delete them.
    """

    kills: Counter[str] = attrs.field(factory=Counter)
    suspensions: Counter[str] = attrs.field(factory=Counter)
    ended: Counter[str] = attrs.field(factory=Counter)
    scales: int = 0
    writers: int = 0
    acknowledged: int = 0
    stored: int = 0
    unparseable: int = 0
    tasks: dict[str, int] = attrs.field(factory=dict)
    files: int = 0
    orphans: int = 0
    pause_s: int = 0


class KillsSite:
    """Where a run takes place: on this machine, in a directory. Other sites override what differs.

    address: of the store, for the processes. copies: streams that get every event, by processes of the site's own.
    specs: of the supervisors. slots: of each worker.
    """

    machines: Mapping[str, Sequence[Machine]] = {
        "worker": [Machine()] * WORKERS,
        "host": [Machine()] * HOSTS,
        "writer": [Machine()] * WRITERS,
    }
    """Where the processes of each kind run, in the order in which they start."""

    copies: Sequence[str] = ()
    specs: Sequence[SupervisorSpec] = SPECS
    slots = 4

    def __init__(self, folder: Path, *, master: str = "local[1]") -> None:
        """master: Spark's, for the workers."""
        self.folder: Final = folder
        self.master: Final = master
        self.address = str(folder / "streams")

    def open(self, *, host: bool = False) -> BlockingEventproc:
        """Open the store in this process."""
        return open_blocking(self.address, durability="os", host=host)

    def command(self, kind: str) -> list[str]:
        """Return the arguments of the interpreter for a process of a kind, but for a writer's own."""
        if kind == "worker":
            worker = ["ingest", "worker", "--slots", str(self.slots), "--master", self.master]
            return ["-m", "eventproc", "-C", self.address, *worker]
        return ["-m", "tests.spark.spark_kills", kind, self.address]

    def variables(self, machine: Machine) -> dict[str, str]:
        """Return what the processes of a machine have in their environment."""
        return {"SPARK_LAUNCHER_OPTS": CHEAP, "JDK_JAVA_OPTIONS": CHEAP}

    def processes(
        self, kind: str, workers: Iterable[KindProcess]
    ) -> list[tuple[KindProcess, psutil.Process]]:
        """Return the processes of a kind that run Spark, each with the worker that it belongs to."""
        found: list[tuple[KindProcess, psutil.Process]] = []
        for worker in workers:
            with suppress(psutil.NoSuchProcess):
                process = psutil.Process(worker.pid)
                jvms = [each for each in process.children() if "java" in each.name()]
                if kind == "python":
                    found += [(worker, each) for jvm in jvms for each in pythons_of(jvm)]
                else:
                    found += [(worker, each) for each in ([process] if kind == "worker" else jvms)]
        return found

    def cut(self, machine: Machine) -> AbstractContextManager[None]:
        """Cut a machine off during the block."""
        return nullcontext()

    def check(self, kills: SparkKills) -> None:
        """Compare what the site's own supervisors have published. Raises AssertionError."""


class KindProcess(TortureProcess):
    """A process of a kind on a machine of a site."""

    def __init__(self, site: KillsSite, kind: str, machine: Machine, *arguments: str) -> None:
        self.kind = kind
        self.machine = machine
        super().__init__(
            [*site.command(kind), *arguments],
            site.folder / f"{kind}s.log",
            site.variables(machine),
            enter=machine.enter,
        )


class WriterProcess(KindProcess):
    """Writes numbered events under one name, and notes in a journal how many are acknowledged.

    quota: how many it writes without pauses.
    """

    def __init__(self, site: KillsSite, machine: Machine, name: str, quota: int) -> None:
        self.name = name
        self.quota = quota
        self._journal = site.folder / f"{name}.journal"
        super().__init__(site, "writer", machine, name, str(self._journal), str(quota))

    @property
    def acknowledged(self) -> int:
        """How many events are acknowledged, from 0 on."""
        lines = self._journal.read_text().split("\n") if self._journal.exists() else []
        return int(lines[-2]) if len(lines) > 1 else 0  # the last line may be cut


class TaskProgress:
    """What the tasks of living workers do, since `begin`."""

    def __init__(self, ep: BlockingEventproc, specs: Sequence[SupervisorSpec]) -> None:
        self._ep = ep
        self._specs = specs
        self.begin()

    def begin(self) -> None:
        """Count from now on."""
        self._before = self._seen = self._reads()
        self._left, self._since = unpublished(self._ep, self._specs), time.monotonic()

    @property
    def pause_s(self) -> float:
        """How long nothing has changed."""
        return time.monotonic() - self._since

    def made(self) -> bool:
        """Return whether a task that a living worker runs has read on, or something was published.

        Raises AssertionError if the reports of all tasks stay as they are for STALL_S.
        """
        left, now = unpublished(self._ep, self._specs), self._reads()
        if left < self._left or any(self._before.get(key, read) != read for key, read in now.items()):
            return True
        if now != self._seen:
            self._seen, self._since = now, time.monotonic()
            self._before = now | self._before
        assert self.pause_s < STALL_S, f"no task has read anything for {STALL_S} s: {now}"
        return False

    def _reads(self) -> dict[str, tuple[int, Positions]]:
        """Return how far the tasks of living workers have read: {task: (sequence, positions)}."""
        db = self._ep._twin.db
        return {
            each.id: (each.n, each.read)
            for spec in self._specs
            for each in self._ep._loop.call(
                db.read, lambda tx, spec=spec: read_tasks(tx, spec.schema.datasource)
            )
            if each.state.live and each.worker is not None and db.peers.is_alive(each.worker)
        }


def unpublished(ep: BlockingEventproc, specs: Sequence[SupervisorSpec]) -> int:
    """Return the bytes that are not published, of all tables."""
    left = 0
    for spec in specs:
        found = ep._loop.call(
            ep._twin.db.read, lambda tx, spec=spec: unpublished_events(tx, spec.schema.datasource)
        )
        left += sum(each.ends[key] - start for each in found for key, start in each.starts.items())
    return left


def published(ep: BlockingEventproc, table: str) -> int:
    """Return how many events are published, or no rows of a table."""
    offsets = ep._loop.call(ep._twin.db.read, lambda tx: read_offsets(tx, table))
    return sum(each.number for each in offsets.values())


class SparkKills:
    """The store of one run, its processes, and what was acknowledged."""

    def __init__(self, site: KillsSite, ep: BlockingEventproc, *, seed: int, events: int = 0) -> None:
        """events: written at least."""
        self.report = SparkKillsReport()
        self.running: Final[defaultdict[str, list[KindProcess]]] = defaultdict(list)
        """The processes, by kind."""
        self._site = site
        self._ep = ep
        self._random = Random(seed)
        self._events = events
        self._quota = 0
        self._writers: list[WriterProcess] = []
        self._orphans: list[psutil.Process] = []
        self._were_cut: set[Machine] = set()

    def run(self, victims: Sequence[str]) -> SparkKillsReport:
        """Kill one process of each named kind, check everything, and return what happened. Raises AssertionError."""
        self._quota = self._events // (WRITERS + victims.count("writer"))
        try:
            for kind, machines in self._site.machines.items():
                for machine in machines:
                    self._start(kind, machine)
            for spec in self._site.specs:
                self._ep.submit_supervisor(spec)
            self._progress = TaskProgress(self._ep, self._site.specs)
            for kind in victims:
                self._disturb(kind)
            self._write_the_rest()
            for writer in self.running.pop("writer"):
                writer.kill()
            self._wait_published()
            self._wait_copied()
            self._check_accounts()
        finally:
            for process in itertools.chain.from_iterable(self.running.values()):
                if process.code() is None:  # otherwise its id may be that of another process by now
                    process.kill()
            for child in self._orphans:
                with suppress(psutil.NoSuchProcess):  # it compares the time at which the process was started
                    child.kill()
        return self.report

    # Processes.

    def _start(self, kind: str, machine: Machine) -> None:
        if kind != "writer":
            self.running[kind].append(KindProcess(self._site, kind, machine))
            return
        self._writers.append(WriterProcess(self._site, machine, f"w{len(self._writers)}", self._quota))
        self.running[kind].append(self._writers[-1])

    def _replace(self, process: KindProcess) -> None:
        self.running[process.kind].remove(process)
        self._start(process.kind, process.machine)

    def _check_running(self) -> None:
        """Replace processes that have ended since their machine was cut off. Raises AssertionError for others."""
        for each in list(itertools.chain.from_iterable(self.running.values())):
            if (code := each.code()) is None:
                continue
            why = f"{each.kind} {each.pid} ended with {code}; see the logs in {self._site.folder}"
            assert each.machine in self._were_cut, why
            say(why)
            self.report.ended[each.kind] += 1
            self._replace(each)

    # Disturbances.

    def _disturb(self, kind: str) -> None:
        """Suspend processes of a kind, or not, and kill one, each when something has gone on."""
        while True:
            PAUSE.wait(self._random.uniform(0, RUN_S_MAX))
            if self._random.random() < SCALED:
                stream = self._ep.stream(self._random.choice((STREAM, STREAM, ODD)))
                self.report.scales += scale(stream, self._random)
            if kind == "link":
                self._cut()
                return
            owner, victim = self._wait_victim(kind)
            if self._random.random() < SUSPENDED:
                self.report.suspensions[kind] += 1
                is_long = kind == "jvm" and self._random.random() < 0.2
                with suppress(psutil.NoSuchProcess):
                    victim.suspend()
                PAUSE.wait(FENCED_S if is_long else self._random.uniform(0, SUSPENDED_S_MAX))
                if self._random.random() < 0.5:
                    with suppress(psutil.NoSuchProcess):
                        victim.resume()
                    continue
            self._kill(kind, owner, victim)
            return

    def _wait_victim(self, kind: str) -> tuple[KindProcess, psutil.Process]:
        """Wait until the writers, or the tasks, go on. Return a process of the kind, and the one that it belongs to."""
        if kind in self.running and kind != "worker":
            if kind in ("writer", "host"):
                self._wait_change(self._acknowledged, "the writers do not go on")
            else:
                self._wait_change(self._copied, f"the {kind} does not go on")
            owner = self._random.choice(self.running[kind])
            return owner, psutil.Process(owner.pid)
        found: list[tuple[KindProcess, psutil.Process]] = []

        def look() -> bool:
            if self._progress.made():
                found.extend(self._site.processes(kind, self.running["worker"]))
            return bool(found)

        self._wait(look, f"there is no {kind}")
        self.report.pause_s = max(self.report.pause_s, round(self._progress.pause_s))
        return self._random.choice(found)

    def _kill(self, kind: str, owner: KindProcess, victim: psutil.Process) -> None:
        self.report.kills[kind] += 1
        with suppress(psutil.NoSuchProcess):
            self._orphans += victim.children(recursive=True)
        if kind in self.running:
            owner.kill(alone=kind == "worker" and self._random.random() < 0.5)
        else:
            with suppress(psutil.NoSuchProcess):
                victim.kill()
        if kind == "jvm":
            self._wait_end(owner)
        if kind in self.running or kind == "jvm":
            self._replace(owner)
        if kind not in ("writer", "host"):
            self._progress.begin()
        self._say_progress()

    def _cut(self) -> None:
        """Cut a machine off for some time."""
        machine = self._random.choice([each for group in self._site.machines.values() for each in group])
        with self._site.cut(machine):
            self._were_cut.add(machine)
            PAUSE.wait(self._random.uniform(0, FENCED_S))
        self.report.kills["link"] += 1
        self._say_progress()

    def _say_progress(self) -> None:
        if self.report.kills.total() % 10 == 0:
            say(f"{self.report}; {unpublished(self._ep, self._site.specs)} bytes are not published")

    def _acknowledged(self) -> list[int]:
        return [each.acknowledged for each in self._writers]

    def _copied(self) -> dict[str, int]:
        """Return how many events the copies have."""
        return {each: self._ep.stream(each).describe().events for each in self._site.copies}

    def _wait_end(self, worker: TortureProcess) -> None:
        """Wait until a worker whose JVM was killed has ended by itself. Raises AssertionError."""
        until = time.monotonic() + STALL_S
        while (code := worker.code()) is None:
            assert time.monotonic() < until, "a worker goes on without its JVM"
            PAUSE.wait(LOOK_S)
        assert code == WRONG_STATE, f"a worker whose JVM died ended with {code}"

    def _wait(self, is_so: Callable[[], bool], otherwise: str) -> None:
        until = time.monotonic() + STALL_S
        while not is_so():
            self._check_running()
            assert time.monotonic() < until, otherwise
            PAUSE.wait(LOOK_S)

    def _wait_change(self, look: Callable[[], object], otherwise: str) -> None:
        before = look()
        self._wait(lambda: look() != before, otherwise)

    def _write_the_rest(self) -> None:
        """Wait until the writers have written what they were to write, and what others left when they were killed."""
        while (left := self._events - sum(self._acknowledged())) > 0:
            if all(each.acknowledged >= each.quota for each in self._writers if each.code() is None):
                self._quota = left
                self._start("writer", self._writers[-1].machine)
            self._wait_change(self._acknowledged, "the writers do not go on")

    def _wait_published(self) -> None:
        """Wait until all tables have everything."""
        self._progress.begin()
        while unpublished(self._ep, self._site.specs):
            self._check_running()
            PAUSE.wait(LOOK_S)
            if self._progress.made():
                self._progress.begin()

    def _wait_copied(self) -> None:
        """Wait until the copies have as many events as the stream."""
        for name in self._site.copies:
            wanted = self._ep.stream(STREAM).describe().events
            while self._copied()[name] < wanted:
                self._wait_change(self._copied, f"{name} does not grow")

    # Accounts.

    def _check_accounts(self) -> None:
        """Compare what was acknowledged with the stream, and the stream with the tables. Raises AssertionError."""
        ep, db, report = self._ep, self._ep._twin.db, self.report
        ep._loop.call(check, db)
        stored = stored_events(ep, STREAM)
        for name in self._site.copies:
            assert stored_events(ep, name) == stored, f"{name} has other events"
        found = IngestionAccount()
        for spec in SPECS:
            name = spec.schema.datasource
            self.take_rows(name, partial(found.take_rows, name))
        self._site.check(self)

        def take(event: Event) -> None:
            table, segment = (str(event.headers[name]) for name in ("ep-table", "ep-segment"))
            found.take_unparseable(table, segment, *event_of(event.payload))

        read_events(ep, ODD, take)
        for process in self._writers:
            name, acknowledged = process.name, process.acknowledged
            assert stored.get(name, 0) >= acknowledged, f"{name}: acknowledged events are lost"
            report.acknowledged += acknowledged
        found.compare(account_of(stored))
        report.stored = sum(stored.values())
        report.writers = len(self._writers)
        report.unparseable = found.unparseable
        tasks = (
            ep._loop.call(db.read, lambda tx, spec=spec: read_tasks(tx, spec.schema.datasource))
            for spec in self._site.specs
        )
        report.tasks = dict(Counter(task.state.value for task in itertools.chain.from_iterable(tasks)))

    def take_rows(self, name: str, take: Callable[[pyarrow.RecordBatch], None]) -> None:
        """Pass the rows of a table on, and count its files."""

        def read(tables: StoreTables) -> None:
            used = [each.path for each in tables.used(name)]
            on_disk = [each for each in tables.files.paths(name) if each.endswith(".parquet")]
            self.report.files += len(used)
            self.report.orphans += len(on_disk) - len(used)
            for path in used:
                with tables.files.open_arrow(path) as source:
                    for rows in pyarrow.parquet.ParquetFile(source).iter_batches():
                        take(rows)

        self._ep._loop.call(on_tables, self._ep._twin.db, read)


def stored_events(ep: BlockingEventproc, name: str) -> dict[str, int]:
    """Return how many events of each writer a stream holds. Raises AssertionError if one is missing or twice."""
    found = KeyAccount()

    def take(event: Event) -> None:
        found.take(*event_of(event.payload))

    read_events(ep, name, take)
    return found.counts


def read_events(ep: BlockingEventproc, name: str, take: Callable[[Event], None]) -> None:
    """Pass each event of a stream on, in the loop of the store: a way to it for each of millions takes an hour."""

    async def read() -> None:
        stream = await ep._twin.stream(name)
        async with stream.reader() as reader:
            async for event in reader.until(await stream.tail()):
                take(event)

    ep._loop.call(read)


def pythons_of(jvm: psutil.Process) -> list[psutil.Process]:
    """Return the Python processes of a JVM."""
    return [each for each in jvm.children(recursive=True) if "python" in each.name()]


def scale(stream: BlockingStream, chance: Random) -> int:
    """Split a segment, or merge two neighbours; return whether that was possible, as 0 or 1."""
    segments = sorted(stream.segments(), key=lambda each: each.low)
    with suppress(EventprocError):
        if len(segments) > 4:
            first = chance.randrange(len(segments) - 1)
            stream.merge(segments[first].id, segments[first + 1].id)
        else:
            stream.split(chance.choice(segments).id)
        return 1
    return 0


def write(address: str, name: str, journal: str, quota: str) -> None:
    """Write numbered events of one key until this process is killed, and note how many are acknowledged.

    quota: of so many first events many are written together.
    """
    chance, number = Random(name), 0
    with (
        Path(journal).open("a", buffering=1) as noted,
        open_blocking(address, host=False) as ep,
        ep.stream(STREAM).writer() as writer,
    ):
        while True:
            is_fast = number < int(quota)
            numbers = range(number, number + chance.randint(1, FAST_BATCH_MAX if is_fast else BATCH_MAX))
            writer.write_many((payload_of(name, each), name) for each in numbers)
            number = numbers.stop
            noted.write(f"{number}\n")
            if not is_fast:
                PAUSE.wait(chance.uniform(0, WRITER_PAUSE_S))


def host(address: str) -> None:
    """Host the store, and with it the supervisors, until this process is killed."""
    with open_blocking(address):
        PAUSE.wait()


def create_streams(site: KillsSite) -> None:
    """Create the store of a site, and its streams."""
    with site.open(host=True) as creator:
        creator.create_scope("s")
        creator.create_stream(STREAM, scaling=ScalingPolicy.fixed(3))
        for each in (ODD, *site.copies):
            creator.create_stream(each)


def run(site: KillsSite, victims: Sequence[str], *, seed: int) -> SparkKillsReport:
    """Ingest events while a process of each named kind is killed, and compare."""
    create_streams(site)
    with site.open() as ep:
        return SparkKills(site, ep, seed=seed).run(victims)


def main(kills: str, seed: str = "1") -> None:
    chance = Random(int(seed))
    rounds = (chance.sample(VICTIMS, len(VICTIMS)) for _ in itertools.count())
    victims = list(itertools.islice(itertools.chain.from_iterable(rounds), int(kills)))

    async def start(folder: Path, _: object) -> SparkKillsReport:
        return await to_thread.run_sync(partial(run, KillsSite(folder), victims, seed=int(seed)))

    run_torture("spark-kills", int(seed), 0, start)


if __name__ == "__main__":
    first, *others = sys.argv[1:]
    if first == "host":
        host(*others)
    elif first == "writer":
        write(*others)
    else:
        main(first, *others)
