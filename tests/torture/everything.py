"""Everything at once for hours, and nothing grows: memory, descriptors, files, the log, latencies.

    python -m tests.torture.everything MINUTES [server]             `make long-run MINUTES=120`

Two processes run processors, windows, a worker and a schedule. A client writes, commits and aborts transactions,
submits jobs, splits and merges, and reads what the others make of it as one reader of a group. A worker of Spark
ingests the stream into a table; a Chromium looks at the page; backups are made. What all groups have passed is
truncated, so that after the first fifth of the run everything may stay as it is. Nothing is killed: other tortures do
that. At the end each event was copied once and in order, and is once in the table; the windows that have closed counted
each event once; each job was done once. With "server" the store lies on a PostgreSQL server, of which no backups are
made, and the table on an S3 server.

It also says how many rows each table has: those of jobs, transactions and requests that ended are kept for days.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
import sys
import time
from collections import Counter
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

import anyio
import attrs
import psutil
from anyio import to_thread

import eventproc
from eventproc.testing import check
from eventproc.windows import Tumbling, Window
from tests.cli.support import shell
from tests.page.support import running_browser
from tests.spark.conftest import CHEAP
from tests.spark.spark_kills import pythons_of
from tests.support.postgres import running_server
from tests.support.s3_server import BUCKET, running_s3
from tests.support.samples import PARTS, SamplesByPart, mebibytes
from tests.support.torture import KeyAccount, TortureProcess, run_torture, say

EVENTS, COPIES, SPANS, JOBS, DONE, TICKS = "s/events", "s/copies", "s/spans", "s/jobs", "s/done", "s/ticks"
TABLE: Final = "events"
HOSTS: Final = 2
KEYS: Final = 10
TXN_KEY: Final = "txn"

BATCH: Final = 20
"""Events that the client writes together, `WRITES_S` after the batch before."""

WRITES_S: Final = 0.2
STEP_S: Final = 1.0
"""Pause between two transactions, and between two jobs."""

SCALE_S: Final = 30.0
BACKUP_S: Final = 300.0
SAMPLE_S: Final = 10.0
TASK_MS: Final = 120_000
HANDOFF_MS: Final = 20_000
"""How long a task of the ingestion lives, and how often it publishes at least."""

LOOK_MS: Final = 86_400_000
"""How long the browser looks at the page, at most."""

TICK_MS: Final = 10_000
SPAN_MS: Final = 10_000
"""How long a window is."""

GRACE_MS: Final = 30_000
SEGMENTS_MAX: Final = 4
END_S: Final = 900
"""How long the readers may take to reach the end."""

ALLOWANCES: Final = {" MiB": 16.0, " descriptors": 8.0, " files": 16.0, " ms": 20.0}
"""How much a measure may grow besides a fifth, by its unit."""

COMPILED: Final = "jvm"
"""The process whose memory its own settings bound, not we: it is said, and may grow."""


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


def look(address: str) -> None:
    """Look at the page until this process is asked to end."""
    with running_browser() as browser:
        page = browser.new_page()
        page.goto(address)
        page.wait_for_timeout(LOOK_MS)


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


class EverythingRun:
    """One run: the client, its accounts, and the processes beside it."""

    def __init__(self, ep: eventproc.Eventproc, address: str, folder: Path, *, seconds: float) -> None:
        self._ep, self._address, self._folder, self._seconds = ep, address, folder, seconds
        self._random = Random(1)
        self._processes: dict[str, list[TortureProcess]] = {}
        self._samples = SamplesByPart()
        self._began = time.monotonic()
        self._written: Counter[str] = Counter()
        self._copied, self._spans = KeyAccount(), WindowAccount()
        self._open_jobs: set[bytes] = set()
        self._counts: Counter[str] = Counter()
        self._ticks: list[int] = []
        self._read = anyio.Event()

    async def run(self) -> str:
        """Run for so long, check everything, and return the summary. Raises AssertionError."""
        await self._create()
        try:
            await self._start_processes()
            async with anyio.create_task_group() as readers:
                readers.start_soon(self._read_all)
                async with anyio.create_task_group() as clients:
                    for client in (self._write, self._transact, self._submit, self._scale, self._sample):
                        clients.start_soon(client)
                    if self._folder_of_store is not None:
                        clients.start_soon(self._back_up)
                await self._wait_end()
                readers.cancel_scope.cancel()
            for kind in ("page", "ui", "host", "worker"):
                for each in self._processes.pop(kind):
                    code = await to_thread.run_sync(each.finish)
                    assert code == 0 or kind == "page", f"a {kind} ended with {code}"
        finally:
            for each in [process for found in self._processes.values() for process in found]:
                each.kill()
        await check(self._ep.db)
        for line in self._samples.lines():
            say(line)
        growing = [each for each in self._samples.growing(ALLOWANCES) if COMPILED not in each]
        assert not growing, f"these grow: {', '.join(growing)}"
        return f"{self._counts}, {self._written.total()} events"

    @property
    def _folder_of_store(self) -> Path | None:
        return None if "://" in self._address else Path(self._address)

    @property
    def _is_over(self) -> bool:
        return time.monotonic() - self._began >= self._seconds

    async def _create(self) -> None:
        """Create the streams, the group that reads them, the schedule and the supervisor."""
        consumed = eventproc.RetentionPolicy(consumed=True)
        await self._ep.create_scope("s")
        for name in (EVENTS, COPIES, SPANS, JOBS, DONE, TICKS):
            await self._ep.create_stream(name, retention=consumed)
        await self._ep.schedules.create(TICKS, cron=f"*/{TICK_MS // 1000} * * * * *", stream=TICKS)
        await self._ep.create_group("s/client", [COPIES, SPANS, DONE, TICKS])
        schema = {
            "datasource": TABLE,
            "timestamp": {"column": "at"},
            "dimensions": ["key", {"name": "number", "type": "long"}],
        }
        io = {"streams": [EVENTS], "use_earliest_offset": True, "task_duration_ms": TASK_MS}
        tuning = {"intermediate_handoff_ms": HANDOFF_MS}
        spec = {"id": TABLE, "io": io, "schema": schema, "tuning": tuning}
        await self._ep.submit_supervisor(spec)

    async def _start_processes(self) -> None:
        command = ["-m", "eventproc", "-C", self._address]
        for _ in range(HOSTS):
            self._start("host", *command, "run", "tests.torture.everything:app")
        self._start("ui", *command, "ui", "--no-browser")
        self._start("worker", *command, "ingest", "worker", "--master", "local[1]")
        with anyio.fail_after(END_S):
            while not (found := re.search(r"http\S+/ui/\S*", (self._folder / "ui.log").read_text())):  # noqa: ASYNC110
                await anyio.sleep(STEP_S)  # another process writes it
        self._start("page", "-m", "tests.torture.everything", "page", found[0])

    def _start(self, kind: str, *command: str) -> None:
        variables = {"SPARK_LAUNCHER_OPTS": CHEAP, "JDK_JAVA_OPTIONS": CHEAP}
        started = TortureProcess(command, self._folder / f"{kind}.log", variables)
        self._processes.setdefault(kind, []).append(started)

    # What the client does.

    def _events(self, key: str, count: int) -> list[eventproc.NewEvent[bytes]]:
        """Return the next events of a key, whose time is now."""
        at = time.time_ns() // 1_000_000
        numbers = range(self._written[key], self._written[key] + count)
        payloads = (json.dumps({"key": key, "number": each, "at": at}).encode() for each in numbers)
        return [eventproc.NewEvent(each, key, event_time=at) for each in payloads]

    async def _write(self) -> None:
        stream = await self._ep.stream(EVENTS)
        async with stream.writer() as writer:
            while not self._is_over:
                key = f"k{self._random.randrange(KEYS)}"
                began = time.perf_counter()
                await writer.write_many(self._events(key, BATCH))
                self._note("write ms", (time.perf_counter() - began) * 1000)
                self._written[key] += BATCH
                await anyio.sleep(WRITES_S)

    async def _transact(self) -> None:
        stream = await self._ep.stream(EVENTS)
        while not self._is_over:
            count, aborts = self._random.randint(1, 5), self._random.random() < 0.2
            async with stream.transaction() as txn:
                for each in self._events(TXN_KEY, count):
                    await txn.write(each.payload, key=each.key, event_time=each.event_time)
                if aborts:
                    await txn.abort()
            if not aborts:
                self._written[TXN_KEY] += count
            self._counts["aborted" if aborts else "committed"] += 1
            await anyio.sleep(STEP_S)

    async def _submit(self) -> None:
        jobs = self._ep.jobs("s/jobs", JOBS)
        while not self._is_over:
            id = f"job{self._counts['jobs']}"
            self._open_jobs.add(id.encode())
            await jobs.submit(id.encode(), id=id, delay_ms=self._random.choice([None, None, 2_000]))
            self._counts["jobs"] += 1
            await anyio.sleep(STEP_S)

    async def _scale(self) -> None:
        stream = await self._ep.stream(EVENTS)
        while not self._is_over:
            segments = await stream.segments()
            if len(segments) >= SEGMENTS_MAX:
                await stream.merge(*[each.id for each in segments[:2]])
            else:
                await stream.split(self._random.choice(segments).id)
            self._counts["scales"] += 1
            await anyio.sleep(SCALE_S)

    async def _back_up(self) -> None:
        """Make a backup and check it, again and again."""
        while not self._is_over:
            await anyio.sleep(BACKUP_S)
            into = self._folder / "backup"
            for command in (["-C", self._address, "backup", str(into)], ["verify", str(into)]):
                (await to_thread.run_sync(partial(shell, *command))).ok()
            await to_thread.run_sync(shutil.rmtree, into)
            self._counts["backups"] += 1

    async def _read_all(self) -> None:
        """Be the reader of what the others make of the events."""
        group = await self._ep.group("s/client")
        async with group.reader("r") as reader:
            async for event in reader:
                self._take(event)
                self._read.set()

    def _take(self, event: eventproc.Event) -> None:
        if event.stream == COPIES:
            fields = json.loads(event.payload)
            self._copied.take(fields["key"], fields["number"])
            self._note("copy ms", time.time() * 1000 - fields["at"])
        elif event.stream == SPANS:
            self._spans.take(str(event.key), json.loads(event.payload))
        elif event.stream == DONE:
            self._open_jobs.remove(event.payload)  # KeyError: it is done twice
        else:
            self._ticks.append(event.event_time or 0)
            assert self._ticks[-1] - self._ticks[0] == TICK_MS * (len(self._ticks) - 1), "a tick is missing"

    # Measures.

    def _note(self, measure: str, value: float) -> None:
        part = int((time.monotonic() - self._began) / self._seconds * PARTS)
        self._samples.note(measure, part, value)

    async def _sample(self) -> None:
        while not self._is_over:
            await anyio.sleep(SAMPLE_S)
            await to_thread.run_sync(self._look)

    def _look(self) -> None:
        """Take a sample of each process, and of the directory."""
        worker = psutil.Process(self._processes["worker"][0].pid)
        jvms = [each for each in worker.children() if "java" in each.name()]
        pids = {
            "client": [psutil.Process().pid],
            **{
                kind: [each.pid for each in found]
                for kind, found in self._processes.items()
                if kind != "page"
            },
            COMPILED: [each.pid for each in jvms],
            "python": [each.pid for jvm in jvms for each in pythons_of(jvm)],
        }
        for kind, found in pids.items():
            if found:
                self._note(f"{kind}: MiB", max(map(mebibytes, found)))
            if kind not in (COMPILED, "python"):
                self._note(f"{kind}: descriptors", max(psutil.Process(each).num_fds() for each in found))
        if (folder := self._folder_of_store) is not None:
            self._look_at_directory(folder)

    def _look_at_directory(self, folder: Path) -> None:
        sizes = {each: each.stat().st_size for each in folder.iterdir() if each.is_file()}
        self._note("directory: files", len(sizes))
        for path, size in sizes.items():
            if path.name.startswith("eventproc.db"):
                self._note(f"{path.name}: MiB", size / 2**20)
        with closing(sqlite3.connect(f"file:{folder}/eventproc.db?mode=ro", uri=True)) as outsider:
            for (table,) in outsider.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table'"
            ).fetchall():
                rows = outsider.execute(f'SELECT count(*) FROM "{table}"').fetchone()[0]
                if rows:
                    self._note(f"table {table}: rows", rows)

    # The end.

    async def _wait_end(self) -> None:
        """Wait until everything that was written is copied, counted and in the table. Raises TimeoutError."""
        with anyio.fail_after(END_S):
            while dict(self._copied.counts) != dict(self._written) or self._open_jobs:
                await self._wait_read()
            while await self._rows() != self._written.total():  # noqa: ASYNC110
                await anyio.sleep(SAMPLE_S)  # other processes ingest them
        assert self._spans.events and self._ticks, "no window has closed, or no schedule has ticked"
        self._counts["ticks"] = len(self._ticks)
        self._counts["in windows"] = self._spans.events

    async def _wait_read(self) -> None:
        self._read = anyio.Event()
        await self._read.wait()

    async def _rows(self) -> int:
        listed = await to_thread.run_sync(partial(shell, "-C", self._address, "table", "list", "-o", "json"))
        found: list[dict[str, Any]] = [each for each in listed.json() if each["name"] == TABLE]
        return int(found[0]["rows"]) if found else 0


async def run(folder: Path, address: str, chunks: str | None, seconds: float) -> str:
    """Open a store, and run everything in it. chunks: where the files of its table lie, if not in a directory."""
    async with eventproc.open(address, chunks=chunks) as ep:
        return await EverythingRun(ep, address, folder, seconds=seconds).run()


def main(minutes: str, form: str = "directory") -> None:
    with ExitStack() as ends:
        server, chunks = None, None
        if form == "server":
            server, chunks = ends.enter_context(running_server()), f"s3://{BUCKET}/everything"
            os.environ.update(ends.enter_context(running_s3()).environment)

        async def start(folder: Path, _: object) -> str:
            address = str(folder / "store") if server is None else server.store("everything")
            return await run(folder, address, chunks, float(minutes) * 60)

        run_torture("everything", 1, 0, start)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["page", of]:
            look(of)
        case others:
            main(*others)
