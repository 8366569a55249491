"""Flights through a supervisor whose workers are killed: `python -m tests.spark.ingestion_kills KILLS SEED FLIGHTS`.

The stream splits and merges meanwhile. At the end the published rows must equal a direct aggregation of the file. No
session is needed here: workers are processes, and the published files are read with pyarrow.
"""

from __future__ import annotations

import csv
import json
import lzma
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from itertools import islice
from pathlib import Path
from threading import Event
from typing import Any, Final

import attrs
import pyarrow.parquet

from eventproc.blocking import BlockingEventproc, open_blocking
from eventproc.blocking.stream import BlockingStream
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
CHUNK: Final = 2_000
"""Flights that are appended between two disturbances of the stream."""

STALL_S: Final = 1_200
"""How long nothing may change. A machine that others use needs minutes to start a driver."""

SPEC: Final = SupervisorSpec(
    io=IoConfig(
        streams=(STREAM,),
        task_count=2,
        replicas=2,
        task_duration_ms=10_000,
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
    tuning=TuningConfig(intermediate_handoff_ms=5_000),
)

Key = tuple[str, str, str]
"""Day, carrier, origin."""


@attrs.frozen
class KillsReport:
    """What happened: kills, ended tasks by state, files, and rows that differ from the direct aggregation."""

    kills: int
    tasks: dict[str, int]
    files: int
    flights: int
    different: int
    orphans: int


def flights(count: int) -> list[dict[str, str]]:
    """Return the first flights of the file."""
    with lzma.open(ROOT / "data" / "flights.csv.xz", "rt", encoding="utf-8", newline="") as rows:
        return list(islice(csv.DictReader(rows), count))


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


class KilledWorkers:
    """Worker processes of a directory; killed with -9, and at the end."""

    def __init__(self, path: Path, log: Path) -> None:
        self._command = [sys.executable, "-m", "eventproc", "-C", str(path), "ingest", "worker"]
        self._command += ["--slots", "4", "--master", "local[1]"]
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

    def kill(self, chance: random.Random) -> None:
        """Kill one, with Spark's processes or without them."""
        process = self._running.pop(chance.randrange(len(self._running)))
        with suppress(ProcessLookupError):
            if chance.random() < 0.5:
                os.killpg(process.pid, signal.SIGKILL)
            else:
                process.kill()
        process.wait()

    def stop(self) -> None:
        """Kill all, with their children."""
        for group in self._groups:
            with suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
        for process in self._running:
            process.wait()


def disturb(stream: BlockingStream, chance: random.Random) -> None:
    """Split a segment, or merge two neighbours."""
    segments = stream.segments()
    with suppress(EventprocError):
        if len(segments) > 4:
            first = chance.randrange(len(segments) - 1)
            stream.merge(segments[first].id, segments[first + 1].id)
        else:
            stream.split(chance.choice(segments).id)


def run(folder: Path, *, kills: int, seed: int, count: int) -> KillsReport:
    """Ingest flights while workers are killed so often, and compare."""
    chance = random.Random(seed)
    rows = flights(count)
    with ExitStack() as stack:
        ep = stack.enter_context(open_blocking(folder / "streams", durability="os"))
        ep.create_scope("air")
        stream = ep.create_stream(STREAM, scaling=ScalingPolicy.fixed(3))
        workers = KilledWorkers(folder / "streams", folder / "workers.log")
        stack.callback(workers.stop)
        for _ in range(WORKERS):
            workers.start()
        ep.submit_supervisor(SPEC)
        for number, part in enumerate(_parts(rows, kills + 1)):
            if number:
                _wait_for_progress(ep)
                PAUSE.wait(chance.uniform(0, 8))
                workers.kill(chance)
                workers.start()
                _say(f"{number} kills, {_unpublished(ep)} bytes to publish")
            for at in range(0, len(part), CHUNK):
                with stream.writer() as writer:
                    chunk = part[at : at + CHUNK]
                    writer.write_many((json.dumps(row).encode(), row["tailnum"]) for row in chunk)
                disturb(stream, chance)
        while _unpublished(ep):
            _wait_for_progress(ep)
        tasks = ep._loop.call(ep._twin.db.read, lambda tx: read_tasks(tx, TABLE))
        files = ep._loop.call(ep._twin.db.read, lambda tx: used_files(tx, TABLE))
        found, wanted = published(ep), direct(rows)
        on_disk = len(list((folder / "streams" / TABLES_FOLDER / TABLE).rglob("*.parquet")))
        return KillsReport(
            kills=kills,
            tasks=dict(Counter(each.state.value for each in tasks)),
            files=len(files),
            flights=sum(each[0] for each in found.values()),
            different=sum(1 for key in found.keys() | wanted.keys() if found.get(key) != wanted.get(key)),
            orphans=on_disk - len(files),
        )


def _parts(rows: list[dict[str, str]], count: int) -> Iterator[list[dict[str, str]]]:
    """Yield the rows in so many parts, so that there is something to read at each kill."""
    for number in range(count):
        yield rows[len(rows) * number // count : len(rows) * (number + 1) // count]


def _rows(path: Path) -> list[dict[str, Any]]:
    with pyarrow.parquet.ParquetFile(path) as file:
        rows: list[dict[str, Any]] = file.read().to_pylist()
        return rows


def _wait_for_progress(ep: BlockingEventproc) -> None:
    """Return when a task that a living worker runs has read on, or published, or if nothing is left to publish.

    Raises AssertionError if the reports of all tasks stay as they are for STALL_S.
    """
    is_alive = ep._twin.db.peers.is_alive
    before = _reads(ep, is_alive)
    left, seen, since = _unpublished(ep), before, time.monotonic()
    while left:
        PAUSE.wait(0.2)
        now = _reads(ep, is_alive)
        if any(key in before and before[key] != read for key, read in now.items()) or _unpublished(ep) < left:
            return
        if now != seen:
            seen, since = now, time.monotonic()
            before |= {key: read for key, read in now.items() if key not in before}
        assert time.monotonic() - since < STALL_S, f"no task has read anything for {STALL_S} s: {now}"


def _reads(ep: BlockingEventproc, is_alive: Callable[[str], bool]) -> dict[str, tuple[int, Positions]]:
    """Return how far the tasks of living workers have read: {task: (sequence, positions)}."""
    tasks = ep._loop.call(ep._twin.db.read, lambda tx: read_tasks(tx, TABLE))
    return {
        each.id: (each.n, each.read)
        for each in tasks
        if each.state.live and each.worker is not None and is_alive(each.worker)
    }


def _unpublished(ep: BlockingEventproc) -> int:
    found = ep._loop.call(ep._twin.db.read, lambda tx: unpublished_events(tx, TABLE))
    return sum(each.ends[key] - start for each in found for key, start in each.starts.items())


def _say(text: str) -> None:
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {text}\n")
    sys.stderr.flush()


def main(kills: str, seed: str = "1", count: str = "60000") -> int:
    """Run, and return whether the rows are equal."""
    with tempfile.TemporaryDirectory(prefix="ingestion-kills-") as folder:
        report = run(Path(folder), kills=int(kills), seed=int(seed), count=int(count))
    _say(str(report))
    return 1 if report.different else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
