"""Everything at once for hours, and nothing grows: memory, descriptors, files, the log, latencies.

    python -m tests.torture.everything MINUTES [server]             `make long-run MINUTES=120`

Two processes run the app of `mixed_use`, and its client uses it. A worker of Spark ingests the stream into a table; a
Chromium looks at the page; backups are made. After the first fifth of the run everything must stay as it is. Nothing is
killed: other tortures do that. At the end each event is once in the table, too. With "server" the store lies on a
PostgreSQL server, of which no backups are made, and the table on an S3 server.

It also says how many rows each table has: those of jobs and transactions that ended are kept for a day, and
`virtual_days` sees them go.
"""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import sys
import time
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
import psutil
from anyio import to_thread

import eventproc
from eventproc.testing import check
from tests.cli.support import shell
from tests.page.support import running_browser
from tests.spark.conftest import CHEAP
from tests.spark.spark_kills import pythons_of
from tests.support.postgres import running_server
from tests.support.s3_server import BUCKET, running_s3
from tests.support.samples import PARTS, SamplesByPart, mebibytes
from tests.support.torture import TortureProcess, run_torture, say
from tests.torture.mixed_use import EVENTS, STEP_S, MixedUse, rows_by_table

TABLE: Final = "events"
HOSTS: Final = 2
BACKUP_S: Final = 300.0
SAMPLE_S: Final = 10.0
TASK_MS: Final = 120_000
HANDOFF_MS: Final = 20_000
"""How long a task of the ingestion lives, and how often it publishes at least."""

LOOK_MS: Final = 86_400_000
"""How long the browser looks at the page, at most."""

END_S: Final = 900
"""How long the readers may take to reach the end."""

ALLOWANCES: Final = {" MiB": 16.0, " descriptors": 8.0, " files": 16.0, " ms": 20.0}
"""How much a measure may grow besides a fifth, by its unit."""

COMPILED: Final = "jvm"
"""The process whose memory its own settings bound, not we: it is said, and may grow."""


def look(address: str) -> None:
    """Look at the page until this process is asked to end."""
    with running_browser() as browser:
        page = browser.new_page()
        page.goto(address)
        page.wait_for_timeout(LOOK_MS)


class EverythingRun:
    """One run: the client, its accounts, and the processes beside it."""

    def __init__(self, ep: eventproc.Eventproc, address: str, folder: Path, *, seconds: float) -> None:
        self._ep, self._address, self._folder, self._seconds = ep, address, folder, seconds
        self._processes: dict[str, list[TortureProcess]] = {}
        self._samples = SamplesByPart()
        self._began = time.monotonic()
        self._use = MixedUse(ep, seconds, self._note)

    async def run(self) -> str:
        """Run for so long, check everything, and return the summary. Raises AssertionError."""
        await self._create()
        try:
            await self._start_processes()
            async with anyio.create_task_group() as readers:
                readers.start_soon(self._use.read)
                async with anyio.create_task_group() as clients:
                    clients.start_soon(self._use.run)
                    clients.start_soon(self._sample)
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
        return f"{self._use.counts}, {self._use.written.total()} events"

    @property
    def _folder_of_store(self) -> Path | None:
        return None if "://" in self._address else Path(self._address)

    async def _create(self) -> None:
        """Create what the client uses, and the supervisor."""
        await self._use.create()
        schema = {
            "datasource": TABLE,
            "timestamp": {"column": "at"},
            "dimensions": ["key", {"name": "number", "type": "long"}],
        }
        io = {
            "streams": [EVENTS],
            "use_earliest_offset": True,
            "start_delay_ms": 0,
            "task_duration_ms": TASK_MS,
        }
        tuning = {"intermediate_handoff_ms": HANDOFF_MS}
        spec = {"id": TABLE, "io": io, "schema": schema, "tuning": tuning}
        await self._ep.submit_supervisor(spec)

    async def _start_processes(self) -> None:
        command = ["-m", "eventproc", "-C", self._address]
        for _ in range(HOSTS):
            self._start("host", *command, "run", "tests.torture.mixed_use:app")
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

    async def _back_up(self) -> None:
        """Make a backup and check it, again and again: the first one now, and one in each part of a short run."""
        into, pause_s = self._folder / "backup", min(BACKUP_S, self._seconds / PARTS)
        while not self._use.is_over:
            for command in (["-C", self._address, "backup", str(into)], ["verify", str(into)]):
                (await to_thread.run_sync(partial(shell, *command))).ok()
            await to_thread.run_sync(shutil.rmtree, into)
            self._use.counts["backups"] += 1
            await anyio.sleep(pause_s)

    # The end.

    async def _wait_end(self) -> None:
        """Wait until everything that was written is copied, counted and in the table. Raises TimeoutError."""
        with anyio.fail_after(END_S):
            await self._use.wait_done()
            while await self._rows() != self._use.written.total():  # noqa: ASYNC110
                await anyio.sleep(SAMPLE_S)  # other processes ingest them

    async def _rows(self) -> int:
        listed = await to_thread.run_sync(partial(shell, "-C", self._address, "table", "list", "-o", "json"))
        found: list[dict[str, Any]] = [each for each in listed.json() if each["name"] == TABLE]
        return int(found[0]["rows"]) if found else 0

    # Measures.

    def _note(self, measure: str, value: float) -> None:
        part = int((time.monotonic() - self._began) / self._seconds * PARTS)
        self._samples.note(measure, part, value)

    async def _sample(self) -> None:
        while not self._use.is_over:
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
            for table, rows in rows_by_table(outsider):
                self._note(f"table {table}: rows", rows)


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
