"""Flights through a supervisor whose workers and hosts are killed: `python -m tests.spark.ingestion_kills KILLS SEED`.

So many workers are killed, and half as many instances that run the supervisor, at random moments. Flights are written,
and the stream splits and merges, meanwhile. At the end, the published rows must equal a direct aggregation. No session
is needed here: workers and hosts are processes, and the published files are read with pyarrow.
"""

from __future__ import annotations

import csv
import json
import lzma
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from itertools import islice
from pathlib import Path
from threading import Event
from typing import Any, Final

import attrs
import pyarrow.parquet

from eventproc.blocking import BlockingEventproc, BlockingStream, open_blocking
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
from eventproc.store.ingestion.published import TABLES_FOLDER, used_files
from eventproc.store.ingestion.unpublished import unpublished_events
from eventproc.store.model.errors import EventprocError
from eventproc.store.model.ingestion import Positions
from eventproc.store.model.policies import ScalingPolicy
from tests.spark.conftest import CHEAP
from tests.tidy.source import ROOT

PAUSE: Final = Event()
"""Never set: the moments of the disturbances are random, and nothing announces them."""

STREAM: Final = "air/flights"
TABLE: Final = "flights"
WORKERS: Final = 2
HOSTS: Final = 2
BATCH: Final = 200
"""Flights that are appended between two looks."""

BEHIND_BYTES_MAX: Final = 2**21
"""Bytes that wait to be published, from which on nothing is written: a slow machine must not take hours at the end."""

LOOK_S: Final = 0.3
"""Pause between two looks at the progress."""

DISTURBED: Final = 0.05
"""Chance that a segment is split, or two are merged, before a look."""

PAUSE_S: Final = 6
"""Longest pause between a task's progress and the next kill: some slices and publications."""

STALL_S: Final = 1_200
"""How long nothing may change. A machine that others use needs minutes to start a driver."""

SPEC: Final = SupervisorSpec(
    io=IoConfig(
        streams=(STREAM,),
        task_count=2,
        replicas=2,
        task_duration_ms=6_000,
        start_delay_ms=0,
        period_ms=1_000,
        use_earliest_offset=True,
    ),
    schema=DataSchema(
        datasource=TABLE,
        timestamp=TimestampSpec(column="time_hour"),
        dimensions=(Dimension(name="carrier"), Dimension(name="origin")),
        metrics=(
            Metric(name="flights", type=MetricType.COUNT),
            Metric(name="distance", type=MetricType.LONG_SUM, field="distance"),
        ),
        query_granularity=Granularity.DAY,
        segment_granularity=Granularity.MONTH,
    ),
    tuning=TuningConfig(intermediate_handoff_ms=2_000),
)

Key = tuple[str, str, str]
"""Day, carrier, origin."""


@attrs.frozen
class KillsReport:
    """What happened: killed workers and hosts, tasks by state, flights, and files.

    scales: splits and merges. different: rows that are not those of the direct aggregation. orphans: files on disk that
    are not used.
    """

    kills: int
    host_kills: int
    scales: int
    tasks: dict[str, int]
    files: int
    written: int
    flights: int
    different: int
    orphans: int


def flights() -> Iterator[dict[str, str]]:
    """Yield the flights of the file."""
    with lzma.open(ROOT / "data" / "flights.csv.xz", "rt", encoding="utf-8", newline="") as rows:
        yield from csv.DictReader(rows)


def direct(rows: list[dict[str, str]]) -> dict[Key, tuple[int, int]]:
    """Return {day, carrier, origin: (flights, distance)} of the file's rows."""
    found: dict[Key, tuple[int, int]] = {}
    for row in rows:
        key = row["time_hour"][:10], row["carrier"], row["origin"]
        count, distance = found.get(key, (0, 0))
        found[key] = count + 1, distance + int(row["distance"])
    return found


def published(ep: BlockingEventproc) -> dict[Key, tuple[int, int]]:
    """Return what the used files of the table say."""
    assert ep.path is not None
    found: dict[Key, tuple[int, int]] = {}
    for file in ep._loop.call(ep._twin.db.read, lambda tx: used_files(tx, TABLE)):
        for row in _rows(ep.path / TABLES_FOLDER / file.path):
            key = f"{row['__time']:%Y-%m-%d}", row["carrier"], row["origin"]
            count, distance = found.get(key, (0, 0))
            found[key] = count + row["flights"], distance + row["distance"]
    return found


class KilledProcesses:
    """Processes of one kind on a directory; killed with -9, and at the end."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self._command = [sys.executable, "-m", *command]
        self._log = log
        self._running: list[subprocess.Popen[bytes]] = []
        self._groups: list[int] = []

    def start(self) -> None:
        """Start one more."""
        environment = {**os.environ, "SPARK_LAUNCHER_OPTS": CHEAP, "JDK_JAVA_OPTIONS": CHEAP}
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                self._command, cwd=ROOT, env=environment, stderr=log, stdout=log, start_new_session=True
            )
        self._running.append(process)
        self._groups.append(process.pid)

    def replace(self, chance: random.Random) -> None:
        """Kill one, with its children or without them, and start another."""
        process = self._running.pop(chance.randrange(len(self._running)))
        with suppress(ProcessLookupError):
            if chance.random() < 0.5:
                os.killpg(process.pid, signal.SIGKILL)
            else:
                process.kill()
        process.wait()
        self.start()

    def stop(self) -> None:
        """Kill all, with their children."""
        for group in self._groups:
            with suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
        for process in self._running:
            process.wait()


def workers(path: Path, log: Path) -> KilledProcesses:
    """Return processes that run tasks."""
    options = ["ingest", "worker", "--slots", "4", "--master", "local[1]"]
    return KilledProcesses(["eventproc", "-C", str(path), *options], log)


def host(path: str) -> int:
    """Host the directory, and with it the supervisor, until this process is killed."""
    with open_blocking(path, durability="os"):
        PAUSE.wait()
    return 0


def disturb(stream: BlockingStream, chance: random.Random) -> int:
    """Split a segment, or merge two neighbours; return whether that was possible, as 0 or 1."""
    segments = stream.segments()
    with suppress(EventprocError):
        if len(segments) > 4:
            first = chance.randrange(len(segments) - 1)
            stream.merge(segments[first].id, segments[first + 1].id)
        else:
            stream.split(chance.choice(segments).id)
        return 1
    return 0


class TaskProgress:
    """What the tasks of living workers do, since `begin`."""

    def __init__(self, ep: BlockingEventproc) -> None:
        self._ep = ep
        self.begin()

    def begin(self) -> None:
        """Count from now on."""
        self._before = self._seen = self._reads()
        self._left, self._since = unpublished(self._ep), time.monotonic()

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
        assert time.monotonic() - self._since < STALL_S, f"no task has read anything for {STALL_S} s: {now}"
        return False

    def _reads(self) -> dict[str, tuple[int, Positions]]:
        """Return how far the tasks of living workers have read: {task: (sequence, positions)}."""
        db = self._ep._twin.db
        return {
            each.id: (each.n, each.read)
            for each in self._ep._loop.call(db.read, lambda tx: read_tasks(tx, TABLE))
            if each.state.live and each.worker is not None and db.peers.is_alive(each.worker)
        }


def unpublished(ep: BlockingEventproc) -> int:
    """Return the bytes that are not published."""
    found = ep._loop.call(ep._twin.db.read, lambda tx: unpublished_events(tx, TABLE))
    return sum(each.ends[key] - start for each in found for key, start in each.starts.items())


def run(folder: Path, *, kills: int, seed: int) -> KillsReport:
    """Ingest flights while so many workers are killed, and hosts of the supervisor, and compare."""
    chance, path = random.Random(seed), folder / "streams"
    with ExitStack() as stack:
        with open_blocking(path, durability="os") as creator:
            creator.create_scope("air")
            creator.create_stream(STREAM, scaling=ScalingPolicy.fixed(3))
        running = workers(path, folder / "workers.log")
        hosts = KilledProcesses(["tests.spark.ingestion_kills", "host", str(path)], folder / "hosts.log")
        for processes, number in ((running, WORKERS), (hosts, HOSTS)):
            stack.callback(processes.stop)
            for _ in range(number):
                processes.start()
        ep = stack.enter_context(open_blocking(path, durability="os", host=False))
        stream, source, rows = ep.stream(STREAM), flights(), list[dict[str, str]]()
        ep.submit_supervisor(SPEC)
        killed = host_kills = scales = 0
        progress, kill_at = TaskProgress(ep), math.inf
        while killed < kills:
            batch = list(islice(source, BATCH)) if unpublished(ep) < BEHIND_BYTES_MAX else []
            rows += batch
            with stream.writer() as writer:
                writer.write_many((json.dumps(row).encode(), row["tailnum"]) for row in batch)
            if chance.random() < DISTURBED:
                scales += disturb(stream, chance)
            PAUSE.wait(LOOK_S)
            if kill_at == math.inf and progress.made():
                kill_at = time.monotonic() + chance.uniform(0, PAUSE_S)
            if time.monotonic() >= kill_at:
                left, killed = unpublished(ep), killed + 1
                running.replace(chance)
                if killed % 2:
                    PAUSE.wait(chance.uniform(0, 1))
                    hosts.replace(chance)
                    host_kills += 1
                _say(f"{killed} workers and {host_kills} hosts killed; {left} bytes were not published")
                progress.begin()
                kill_at = math.inf
        while unpublished(ep):
            PAUSE.wait(LOOK_S)
            if progress.made():
                progress.begin()
        tasks = ep._loop.call(ep._twin.db.read, lambda tx: read_tasks(tx, TABLE))
        files = ep._loop.call(ep._twin.db.read, lambda tx: used_files(tx, TABLE))
        found, wanted = published(ep), direct(rows)
        on_disk = len(list((path / TABLES_FOLDER / TABLE).rglob("*.parquet")))
        return KillsReport(
            kills=killed,
            host_kills=host_kills,
            scales=scales,
            tasks=dict(Counter(each.state.value for each in tasks)),
            files=len(files),
            written=len(rows),
            flights=sum(each[0] for each in found.values()),
            different=sum(1 for key in found.keys() | wanted.keys() if found.get(key) != wanted.get(key)),
            orphans=on_disk - len(files),
        )


def _rows(path: Path) -> list[dict[str, Any]]:
    with pyarrow.parquet.ParquetFile(path) as file:
        rows: list[dict[str, Any]] = file.read().to_pylist()
        return rows


def _say(text: str) -> None:
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {text}\n")
    sys.stderr.flush()


def main(kills: str, seed: str = "1") -> int:
    """Run, and return whether the rows are equal."""
    folder = Path(tempfile.mkdtemp(prefix="ingestion-kills-"))
    report = run(folder, kills=int(kills), seed=int(seed))
    _say(str(report))
    if report.different:
        _say(f"streams, tables and logs are kept in {folder}")
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    first, *others = sys.argv[1:]
    sys.exit(host(*others) if first == "host" else main(first, *others))
