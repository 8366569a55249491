"""Every process of an ingestion with Spark is killed and suspended: `python -m tests.spark.spark_kills KILLS [SEED]`.

Processes write numbered events, host the supervisors, and run their tasks with Spark. They are killed with SIGKILL
and suspended while the stream splits and merges: the writers, the hosts, the workers, their JVMs, and the
Python processes of these. At the end each acknowledged event is stored once, in order, and each stored one lies once
in both tables, or, if it is no row of the second one, in the stream of its unparseable events. No session is needed
here: the published files are read with pyarrow.
"""

from __future__ import annotations

import itertools
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random
from threading import Event
from typing import Any, Final

import attrs
import psutil
import pyarrow.parquet
from anyio import to_thread

from eventproc.blocking import BlockingEventproc, BlockingStream, open_blocking
from eventproc.cli.exit_codes import WRONG_STATE
from eventproc.ingestion import (
    DataSchema,
    Dimension,
    Granularity,
    IoConfig,
    Metric,
    MetricType,
    SupervisorSpec,
    TimestampSpec,
    TuningConfig,
)
from eventproc.store.ingestion import read_tasks
from eventproc.store.ingestion.pointers import TABLES_FOLDER
from eventproc.store.ingestion.table_access import on_tables
from eventproc.store.ingestion.unpublished import unpublished_events
from eventproc.store.model.errors import EventprocError
from eventproc.store.model.ingestion import Positions
from eventproc.store.model.policies import ScalingPolicy
from eventproc.testing import check
from tests.spark.conftest import CHEAP
from tests.support.torture import KeyAccount, TortureProcess, run_torture, say

PAUSE: Final = Event()
"""Never set: the moments of the disturbances are random, and nothing announces them."""

STREAM: Final = "s/events"
EACH, SUMS = "each", "sums"
"""The tables: a row for each event, and sums by hour and writer of those with the field `timed`."""

ODD: Final = "s/odd"
"""The stream of the events that are no rows of the second table."""

TIMELESS_EVERY: Final = 7
"""One of so many events of a writer has no field `timed`."""

WRITERS: Final = 3
HOSTS: Final = 2
WORKERS: Final = 2

VICTIMS: Final = ("writer",) * 8 + ("host",) * 4 + ("worker", "jvm", "python")
"""What is killed, as often as it occurs. One that runs Spark is killed only after tasks have gone on."""

BATCH_MAX: Final = 20
"""Events between two acknowledgements of a writer."""

WRITER_PAUSE_S: Final = 0.5
"""Longest pause of a writer between two batches: the tables must not fall behind for ever."""

RUN_S_MAX: Final = 1.0
"""Longest pause between two disturbances."""

SUSPENDED: Final = 0.4
"""Chance that a process is suspended before it is killed; half of them continue instead."""

SUSPENDED_S_MAX: Final = 2.0
"""How long a process is suspended, at most: perhaps inside the write lock."""

FENCED_S: Final = 25
"""How long some JVMs are suspended: their tasks are replaced meanwhile."""

SCALED: Final = 0.2
"""Chance that a segment is split, or two are merged, before a disturbance."""

LOOK_S: Final = 0.2

STALL_S: Final = 900
"""How long nothing may go on. A machine that others use needs minutes to start a driver."""

HOUR_MS: Final = 3_600_000
MINUTE_MS: Final = 60_000


def _spec(
    table: str,
    dimensions: Iterable[str],
    query: Granularity,
    groups: int,
    replicas: int,
    *,
    column: str = "at",
    unparseable_stream: str | None = None,
) -> SupervisorSpec:
    return SupervisorSpec(
        io=IoConfig(
            streams=(STREAM,),
            task_duration_ms=6_000,
            start_delay_ms=0,
            period_ms=1_000,
            use_earliest_offset=True,
            task_count=groups,
            replicas=replicas,
        ),
        schema=DataSchema(
            datasource=table,
            timestamp=TimestampSpec(column=column),
            dimensions=tuple(Dimension(name=each) for each in dimensions),
            metrics=(
                Metric(name="events", type=MetricType.COUNT),
                Metric(name="total", type=MetricType.LONG_SUM, field="number"),
            ),
            query_granularity=query,
            segment_granularity=Granularity.DAY,
        ),
        tuning=TuningConfig(
            intermediate_handoff_ms=2_000,
            task_timeout_ms=(FENCED_S - 5) * 1_000,
            job_timeout_ms=MINUTE_MS,
            unparseable_stream=unparseable_stream,
        ),
    )


SPECS: Final = (
    _spec(EACH, ("writer", "number"), Granularity.MINUTE, 2, 2),
    _spec(SUMS, ("writer",), Granularity.HOUR, 1, 2, column="timed", unparseable_stream=ODD),
)

Rows = Counter[tuple[Any, ...]]


@attrs.define
class SparkKillsReport:
    """What happened.

    kills, suspensions: by kind of process. acknowledged: events; stored: those and others whose writers were killed
    before they could say so. unparseable: of them, those that are no rows of the second table. tasks: of both
    supervisors, by state. pause_s: the longest time without progress of the tasks. orphans: files on disk that no table
    uses; their workers, or later ones, delete them.
    """

    kills: Counter[str] = attrs.field(factory=Counter)
    suspensions: Counter[str] = attrs.field(factory=Counter)
    scales: int = 0
    writers: int = 0
    acknowledged: int = 0
    stored: int = 0
    unparseable: int = 0
    tasks: dict[str, int] = attrs.field(factory=dict)
    files: int = 0
    orphans: int = 0
    pause_s: int = 0


class WriterProcess(TortureProcess):
    """Writes numbered events under one name, and notes in a journal how many are acknowledged."""

    def __init__(self, name: str, path: Path, folder: Path) -> None:
        self.name = name
        self._journal = folder / f"{name}.journal"
        arguments = ["write", str(path), name, str(self._journal)]
        super().__init__(["-m", "tests.spark.spark_kills", *arguments], folder / "writers.log")

    @property
    def acknowledged(self) -> int:
        """How many events are acknowledged, from 0 on."""
        lines = self._journal.read_text().split("\n") if self._journal.exists() else []
        return int(lines[-2]) if len(lines) > 1 else 0  # the last line may be cut


class TaskProgress:
    """What the tasks of living workers do, since `begin`."""

    def __init__(self, ep: BlockingEventproc) -> None:
        self._ep = ep
        self.begin()

    def begin(self) -> None:
        """Count from now on."""
        self._before = self._seen = self._reads()
        self._left, self._since = unpublished(self._ep), time.monotonic()

    @property
    def pause_s(self) -> float:
        """How long nothing has changed."""
        return time.monotonic() - self._since

    def made(self) -> bool:
        """Return whether a task that a living worker runs has read on, or something was published.

        Raises AssertionError if the reports of all tasks stay as they are for STALL_S.
        """
        left, now = unpublished(self._ep), self._reads()
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
            for spec in SPECS
            for each in self._ep._loop.call(
                db.read, lambda tx, spec=spec: read_tasks(tx, spec.schema.datasource)
            )
            if each.state.live and each.worker is not None and db.peers.is_alive(each.worker)
        }


def unpublished(ep: BlockingEventproc) -> int:
    """Return the bytes that are not published, of both tables."""
    left = 0
    for spec in SPECS:
        found = ep._loop.call(
            ep._twin.db.read, lambda tx, spec=spec: unpublished_events(tx, spec.schema.datasource)
        )
        left += sum(each.ends[key] - start for each in found for key, start in each.starts.items())
    return left


class SparkKills:
    """The directory of one run, its processes, and what was acknowledged."""

    def __init__(self, folder: Path, ep: BlockingEventproc, *, seed: int) -> None:
        self.report = SparkKillsReport()
        self._folder = folder
        self._path = folder / "streams"
        self._ep = ep
        self._random = Random(seed)
        self._writers: list[WriterProcess] = []
        self._dead_writers: list[WriterProcess] = []
        self._hosts: list[TortureProcess] = []
        self._workers: list[TortureProcess] = []
        self._orphans: list[psutil.Process] = []

    def run(self, victims: Iterable[str]) -> SparkKillsReport:
        """Kill one process of each named kind, check everything, and return what happened. Raises AssertionError."""
        try:
            for start, number in (
                (self._start_worker, WORKERS),
                (self._start_host, HOSTS),
                (self._start_writer, WRITERS),
            ):
                for _ in range(number):
                    start()
            for spec in SPECS:
                self._ep.submit_supervisor(spec)
            self._progress = TaskProgress(self._ep)
            for kind in victims:
                self._disturb(kind)
            for writer in self._writers:
                writer.kill()
            self._dead_writers += self._writers
            self._writers = []
            self._wait_published()
            self._check_accounts()
        finally:
            for process in (*self._writers, *self._hosts, *self._workers):
                if process.code() is None:  # otherwise its id may be that of another process by now
                    process.kill()
            for child in self._orphans:
                with suppress(psutil.NoSuchProcess):  # it compares the time at which the process was started
                    child.kill()
        return self.report

    # Processes.

    def _start_writer(self) -> None:
        name = f"w{self.report.writers}"
        self.report.writers += 1
        self._writers.append(WriterProcess(name, self._path, self._folder))

    def _start_host(self) -> None:
        command = ["-m", "tests.spark.spark_kills", "host", str(self._path)]
        self._hosts.append(TortureProcess(command, self._folder / "hosts.log"))

    def _start_worker(self) -> None:
        command = ["-m", "eventproc", "-C", str(self._path), "ingest", "worker"]
        command += ["--slots", "4", "--master", "local[1]"]
        cheap = {"SPARK_LAUNCHER_OPTS": CHEAP, "JDK_JAVA_OPTIONS": CHEAP}
        self._workers.append(TortureProcess(command, self._folder / "workers.log", cheap))

    def _check_running(self) -> None:
        """Raise AssertionError if a process has ended by itself."""
        for each in (*self._writers, *self._hosts, *self._workers):
            code = each.code()
            assert code is None, f"process {each.pid} ended with {code}; see the logs in {self._folder}"

    # Disturbances.

    def _disturb(self, kind: str) -> None:
        """Suspend processes of a kind, or not, and kill one, each when something has gone on."""
        while True:
            PAUSE.wait(self._random.uniform(0, RUN_S_MAX))
            if self._random.random() < SCALED:
                stream = self._ep.stream(self._random.choice((STREAM, STREAM, ODD)))
                self.report.scales += scale(stream, self._random)
            owner, victim = self._wait_victim(kind)
            if self._random.random() < SUSPENDED:
                self.report.suspensions[kind] += 1
                is_long = kind == "jvm" and self._random.random() < 0.2
                victim.suspend()
                PAUSE.wait(FENCED_S if is_long else self._random.uniform(0, SUSPENDED_S_MAX))
                if self._random.random() < 0.5:
                    victim.resume()
                    continue
            self._kill(kind, owner, victim)
            return

    def _wait_victim(self, kind: str) -> tuple[TortureProcess, psutil.Process]:
        """Wait until the writers, or the tasks, go on. Return a process of the kind, and the one that it belongs to."""
        if kind in ("writer", "host"):
            before = self._acknowledged()
            self._wait(lambda: self._acknowledged() != before, "the writers do not go on")
            owner = self._random.choice(self._writers if kind == "writer" else self._hosts)
            return owner, psutil.Process(owner.pid)
        found: list[tuple[TortureProcess, psutil.Process]] = []

        def look() -> bool:
            if not self._progress.made():
                return False
            for worker in self._workers:
                with suppress(psutil.NoSuchProcess):
                    found.extend((worker, each) for each in processes_of(worker, kind))
            return bool(found)

        self._wait(look, f"there is no {kind}")
        self.report.pause_s = max(self.report.pause_s, round(self._progress.pause_s))
        return self._random.choice(found)

    def _kill(self, kind: str, owner: TortureProcess, victim: psutil.Process) -> None:
        self.report.kills[kind] += 1
        if isinstance(owner, WriterProcess):
            owner.kill()
            self._writers.remove(owner)
            self._dead_writers.append(owner)
            self._start_writer()
        elif kind == "host":
            owner.kill()
            self._hosts.remove(owner)
            self._start_host()
        else:
            with suppress(psutil.NoSuchProcess):
                self._orphans += psutil.Process(owner.pid).children(recursive=True)
            if kind == "worker":
                owner.kill(alone=self._random.random() < 0.5)
            else:
                with suppress(psutil.NoSuchProcess):
                    victim.kill()
            if kind == "jvm":
                self._wait_end(owner)
            if kind != "python":
                self._workers.remove(owner)
                self._start_worker()
            self._progress.begin()
        if self.report.kills.total() % 10 == 0:
            say(f"{self.report}; {unpublished(self._ep)} bytes are not published")

    def _acknowledged(self) -> list[int]:
        return [each.acknowledged for each in self._writers]

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

    def _wait_published(self) -> None:
        """Wait until both tables have everything."""
        self._progress.begin()
        while unpublished(self._ep):
            self._check_running()
            PAUSE.wait(LOOK_S)
            if self._progress.made():
                self._progress.begin()

    # Accounts.

    def _check_accounts(self) -> None:
        """Compare what was acknowledged with the stream, and the stream with the tables. Raises AssertionError."""
        ep, db = self._ep, self._ep._twin.db
        ep._loop.call(check, db)
        stored = stored_events(ep)
        for writer in self._dead_writers:
            assert stored[writer.name] >= writer.acknowledged, f"{writer.name}: acknowledged events are lost"
            self.report.acknowledged += writer.acknowledged
        self.report.stored = sum(stored.values())
        each_wanted, odd_wanted, sums_wanted = Rows(), Rows(), dict[tuple[Any, ...], tuple[int, int]]()
        for name, count in stored.items():
            for number in range(count):
                at_ms = number * MINUTE_MS
                each_wanted[at_ms, name, str(number), 1, number] += 1
                if number % TIMELESS_EVERY == 0:
                    odd_wanted[name, number] += 1
                    continue
                key = at_ms // HOUR_MS * HOUR_MS, name
                events, total = sums_wanted.get(key, (0, 0))
                sums_wanted[key] = events + 1, total + number
        compare(EACH, Rows(row for row in self._rows(EACH)), each_wanted)
        sums: dict[tuple[Any, ...], tuple[int, int]] = {}
        for at_ms, name, count, part in self._rows(SUMS):
            events, total = sums.get((at_ms, name), (0, 0))
            sums[at_ms, name] = events + count, total + part
        compare(SUMS, Rows(sums.items()), Rows(sums_wanted.items()))
        odd = list(read_rows(ep, ODD))
        compare(ODD, Rows(odd), odd_wanted)
        for name in stored:
            numbers = [number for writer, number in odd if writer == name]
            assert numbers == sorted(numbers), f"the unparseable events of {name} are not in order"
        self.report.unparseable = len(odd)
        tasks = [
            task
            for spec in SPECS
            for task in ep._loop.call(db.read, lambda tx, spec=spec: read_tasks(tx, spec.schema.datasource))
        ]
        self.report.tasks = dict(Counter(task.state.value for task in tasks))
        on_disk = len(list((self._path / TABLES_FOLDER).rglob("*.parquet")))
        self.report.orphans = on_disk - self.report.files

    def _rows(self, table: str) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of the files that a table uses: time in ms, dimensions, metrics."""
        for file in self._ep._loop.call(on_tables, self._ep._twin.db, lambda tables: tables.used(table)):
            self.report.files += 1
            with pyarrow.parquet.ParquetFile(self._path / TABLES_FOLDER / file.path) as opened:
                for row in opened.read().to_pylist():
                    at, *others = row.values()
                    yield round(at.timestamp() * 1000), *others


def compare(table: str, found: Rows, wanted: Rows) -> None:
    """Raise AssertionError if the rows differ, with some of them."""
    missing, more = wanted - found, found - wanted
    assert not missing and not more, (
        f"{table}: {missing.total()} rows are missing, such as {list(missing)[:5]}; {more.total()} are too many,"
        f" such as {list(more)[:5]}"
    )


def stored_events(ep: BlockingEventproc) -> dict[str, int]:
    """Return how many events of each writer the stream holds. Raises AssertionError if one is missing or twice."""
    found = KeyAccount()
    for writer, number in read_rows(ep, STREAM):
        found.take(writer, number)
    return found.counts


def read_rows(ep: BlockingEventproc, name: str) -> Iterator[tuple[str, int]]:
    """Yield the writer and the number of each event of a stream."""
    stream = ep.stream(name)
    with stream.reader() as reader:
        for event in reader.until(stream.tail()):
            row = json.loads(event.payload)
            yield row["writer"], row["number"]


def payload_of(writer: str, number: int) -> bytes:
    """Return the event of a number."""
    at_ms = number * MINUTE_MS
    timed = {"timed": at_ms} if number % TIMELESS_EVERY else {}
    return json.dumps({"at": at_ms, "writer": writer, "number": number, **timed}).encode()


def processes_of(worker: TortureProcess, kind: str) -> list[psutil.Process]:
    """Return the processes of a kind that belong to a worker."""
    process = psutil.Process(worker.pid)
    jvms = [each for each in process.children() if "java" in each.name()]
    if kind == "worker":
        return [process]
    if kind == "jvm":
        return jvms
    return [each for jvm in jvms for each in jvm.children(recursive=True) if "python" in each.name()]


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


def write(path: str, name: str, journal: str) -> None:
    """Write numbered events of one key until this process is killed, and note how many are acknowledged."""
    chance, number = Random(name), 0
    with (
        Path(journal).open("a", buffering=1) as noted,
        open_blocking(Path(path), durability="os", host=False) as ep,
        ep.stream(STREAM).writer() as writer,
    ):
        while True:
            numbers = range(number, number + chance.randint(1, BATCH_MAX))
            writer.write_many((payload_of(name, each), name) for each in numbers)
            number = numbers.stop
            noted.write(f"{number}\n")
            PAUSE.wait(chance.uniform(0, WRITER_PAUSE_S))


def host(path: str) -> None:
    """Host the directory, and with it the supervisors, until this process is killed."""
    with open_blocking(Path(path), durability="os"):
        PAUSE.wait()


def run(folder: Path, victims: Iterable[str], *, seed: int) -> SparkKillsReport:
    """Ingest events while a process of each named kind is killed, and compare."""
    with open_blocking(folder / "streams", durability="os") as creator:
        creator.create_scope("s")
        creator.create_stream(STREAM, scaling=ScalingPolicy.fixed(3))
        creator.create_stream(ODD)
    with open_blocking(folder / "streams", durability="os", host=False) as ep:
        return SparkKills(folder, ep, seed=seed).run(victims)


def main(kills: str, seed: str = "1") -> None:
    chance = Random(int(seed))
    rounds = (chance.sample(VICTIMS, len(VICTIMS)) for _ in itertools.count())
    victims = itertools.islice(itertools.chain.from_iterable(rounds), int(kills))

    async def start(folder: Path, _: object) -> SparkKillsReport:
        return await to_thread.run_sync(partial(run, folder, victims, seed=int(seed)))

    run_torture("spark-kills", int(seed), 0, start)


if __name__ == "__main__":
    first, *others = sys.argv[1:]
    if first == "host":
        host(*others)
    elif first == "write":
        write(*others)
    else:
        main(first, *others)
