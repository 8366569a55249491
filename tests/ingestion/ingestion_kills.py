"""A supervisor whose processes are killed: `python -m tests.ingestion.ingestion_kills KILLS [SEED [MIB]]`.

Writers, instances that run the supervisor, and workers that run its tasks are killed with SIGKILL and suspended, longer
than a task may be silent. Workers also suspend themselves when they are about to read or to publish. Meanwhile the
stream is split, merged and truncated, and the supervisor suspended, reset to what it published, handed over, and given
other tasks. With MIB, the directory lies on a device of that size, which is full from time to time. No committed offset
ever goes back, and no task publishes after its end. At the end each acknowledged event was published once, in the order
of its key, and the published ranges of each partition adjoin in the order of their publication, from its beginning to
its committed offset.
"""

from __future__ import annotations

import json
import math
import signal
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import anyio
import attrs
from anyio import to_thread

import eventproc
from eventproc.ingestion import DataSchema, IoConfig, SupervisorSpec, TuningConfig
from eventproc.store.catalog import get_stream
from eventproc.store.database import Tx
from eventproc.store.ingestion import read_groups, read_offsets, read_tasks
from eventproc.store.ingestion.notices import waiting_notices
from eventproc.store.ingestion.pointers import TABLES_FOLDER
from eventproc.store.ingestion.rows import find_task
from eventproc.store.ingestion.unpublished import published_cut, unpublished_events
from eventproc.store.model.errors import Pending, Rejected, Retryable
from eventproc.store.model.ingestion import PartitionKey
from eventproc.store.segments import segment_state
from eventproc.testing import check_directory
from tests.ingestion.kills_process import FENCED, STREAM, TABLE, FileRange, acknowledged, task_of
from tests.support.torture import (
    LOOK_S,
    SmallDevice,
    Torture,
    TorturePace,
    TortureProcess,
    TortureReport,
    run_torture,
    say,
)
from tests.system.protocol import batches, check_rows

HOSTS: Final = 2
WORKERS: Final = 3
WRITERS: Final = 3
SEGMENTS_MIN: Final = 3
SEGMENTS_MAX: Final = 6

OPERATE_S: Final = 1.0
"""Longest pause between two changes of the stream or of the supervisor."""

PACE: Final = TorturePace(run=3.0, suspended=6.0, roomy=15.0, full=4.0)

TASK_TIMEOUT_MS: Final = 3_000
"""How long a task may be silent: shorter than many suspensions."""


@attrs.define
class IngestionReport(TortureReport):
    """What happened.

    died: processes that ended themselves, which they may while the device is full. fenced: tasks that went on after
    they were replaced, and were refused. tasks: by state.
    """

    died: int = 0
    fenced: int = 0
    changes: Counter[str] = attrs.field(factory=Counter)
    refused: int = 0
    files: int = 0
    events: int = 0
    segments: int = 0
    tasks: dict[str, int] = attrs.field(factory=dict)


class IngestionKills:
    """The directory of one run, its processes, and what happens to them."""

    def __init__(self, folder: Path, *, kills: int, seed: int, device: SmallDevice | None = None) -> None:
        self.report = IngestionReport()
        self._folder = folder
        self._path = (folder if device is None else device.folder) / "streams"
        self._device = device
        self._torture = Torture(self.report, kills=kills, seed=seed, pace=PACE)
        self._random = self._torture.random
        self._commands: dict[TortureProcess, list[str]] = {}
        self._hosts: list[TortureProcess] = []
        self._workers: list[TortureProcess] = []
        self._writers: list[TortureProcess] = []

    async def run(self) -> IngestionReport:
        """Kill so many processes, check everything, and return what happened. Raises AssertionError."""
        async with eventproc.open(self._path, durability="os") as ep:
            await ep.create_scope("s")
            await ep.create_stream(STREAM, scaling=eventproc.ScalingPolicy.fixed(SEGMENTS_MIN))
            await ep.db.write(
                lambda tx: tx.execute("CREATE TABLE app_line_file (path TEXT, published_ms INTEGER)")
            )
        try:
            async with eventproc.open(self._path, host=False) as ep:
                await self._disturb(ep)
        finally:
            for process in self._commands:
                process.kill()
        self.report.fenced = (self._folder / "worker.log").read_text().count(FENCED)
        await check_directory(self._path)
        async with eventproc.open(self._path, host=False) as ep:
            await ep.db.read(self._check)
        return self.report

    async def _disturb(self, ep: eventproc.Eventproc) -> None:
        """Disturb processes, stream and supervisor; then let the writers end, and wait until all is published."""
        await ep.submit_supervisor(self._spec())
        for processes, role, number in (
            (self._hosts, "host", HOSTS),
            (self._workers, "worker", WORKERS),
            (self._writers, "writer", WRITERS),
        ):
            processes += [self._start(self._command(role, place)) for place in range(number)]
        async with anyio.create_task_group() as watching:
            watching.start_soon(self._watch, ep)
            for place in range(WORKERS):
                watching.start_soon(self._resume, place)
            async with anyio.create_task_group() as operating:
                operating.start_soon(self._operate, ep)
                async with anyio.create_task_group() as disturbing:
                    for processes in (self._hosts, self._workers, self._writers):
                        disturbing.start_soon(self._torture.disturb, processes, self._replace)
                    if self._device is not None:
                        disturbing.start_soon(self._torture.fill, self._device)
                self._torture.ended = True
            await ep.submit_supervisor(self._spec())
            await self._end(self._writers)
            while await ep.db.read(_unpublished):
                await self._torture.wait_steps()
            await (await ep.supervisor(TABLE)).terminate()
            await _wait_none(ep, read_groups)
            await self._end([*self._workers, *self._hosts])
            watching.cancel_scope.cancel()

    # Processes.

    def _command(self, role: str, place: int) -> list[str]:
        command = ["-m", "tests.ingestion.kills_process", role, str(self._path), f"w{place}"]
        return [*command, str(self._journal(f"w{place}"))] if role == "writer" else command

    def _journal(self, writer: str) -> Path:
        return self._folder / f"{writer}.acks"

    def _start(self, command: list[str]) -> TortureProcess:
        process = TortureProcess(command, self._folder / f"{command[2]}.log")
        self._commands[process] = command
        return process

    def _replace(self, ended: TortureProcess) -> TortureProcess:
        return self._start(self._commands[ended])

    async def _end(self, processes: Sequence[TortureProcess]) -> None:
        for process in processes:
            code = await to_thread.run_sync(process.finish)
            assert code in (0, -signal.SIGTERM), f"{self._commands[process]} ended with {code}"

    async def _resume(self, place: int) -> None:
        """Let a worker that suspended itself go on after a while."""
        while True:
            process = self._workers[place]
            if process.is_suspended():
                await anyio.sleep(self._random.uniform(0, PACE.suspended))
                process.resume()
            await anyio.sleep(LOOK_S)

    async def _watch(self, ep: eventproc.Eventproc) -> None:
        """Check each publication, and start a process again that ended itself."""
        offsets, seen = dict[PartitionKey, int](), 0
        while True:
            before = seen
            offsets, seen = await ep.db.read(partial(_check_publications, before=offsets, seen=seen))
            if seen > before:
                self._torture.step("publication")
            for processes in (self._hosts, self._workers, self._writers):
                for place, process in enumerate(processes):
                    code = process.code()
                    if code is not None and code > 0:
                        assert self.report.full, f"{self._commands[process]} ended with {code}"
                        self.report.died += 1
                        processes[place] = self._replace(process)
            await anyio.sleep(LOOK_S)

    # The stream and the supervisor.

    def _spec(self, *, task_count: int = 2, replicas: int = 2) -> SupervisorSpec:
        return SupervisorSpec(
            io=IoConfig(
                streams=(STREAM,),
                task_count=task_count,
                replicas=replicas,
                task_duration_ms=4_000,
                completion_timeout_ms=15_000,
                start_delay_ms=0,
                period_ms=500,
                use_earliest_offset=True,
            ),
            schema=DataSchema(datasource=TABLE, dimensions=()),
            tuning=TuningConfig(intermediate_handoff_ms=700, task_timeout_ms=TASK_TIMEOUT_MS),
        )

    async def _operate(self, ep: eventproc.Eventproc) -> None:
        """Change the stream and the supervisor again and again. What is refused is not repeated."""
        changes = [self._scale, self._scale, self._truncate, self._hand_over, self._submit, self._reset]
        while not self._torture.ended:
            await anyio.sleep(self._random.uniform(0, OPERATE_S))
            change = self._random.choice(changes)
            try:
                await change(ep)
            except (Rejected, Retryable, Pending) as why:
                say(f"{change.__name__} was refused: {why!r}")
                self.report.refused += 1
            else:
                self.report.changes[change.__name__[1:]] += 1

    async def _scale(self, ep: eventproc.Eventproc) -> None:
        stream = await ep.stream(STREAM)
        active = [each.id for each in sorted(await stream.segments(), key=lambda each: each.low)]
        place = self._random.randrange(len(active) - 1)
        if len(active) <= SEGMENTS_MIN or (len(active) < SEGMENTS_MAX and self._random.random() < 0.6):
            await stream.split(active[place])
        else:
            await stream.merge(*active[place : place + 2])

    async def _truncate(self, ep: eventproc.Eventproc) -> None:
        cut = await ep.db.read(lambda tx: published_cut(tx, get_stream(tx, STREAM).value))
        if cut is not None:
            await (await ep.stream(STREAM)).truncate(cut)

    async def _hand_over(self, ep: eventproc.Eventproc) -> None:
        await (await ep.supervisor(TABLE)).handoff()

    async def _submit(self, ep: eventproc.Eventproc) -> None:
        spec = self._spec(task_count=self._random.randint(1, 3), replicas=self._random.randint(1, 2))
        await ep.submit_supervisor(spec)

    async def _reset(self, ep: eventproc.Eventproc) -> None:
        """Suspend the supervisor, reset it to what it has published, and resume it."""
        supervisor = await ep.supervisor(TABLE)
        await supervisor.suspend()
        await _wait_none(ep, read_groups)
        stream = await ep.stream(STREAM)
        offsets = await ep.db.read(lambda tx: read_offsets(tx, TABLE))
        committed = {segment: each.offset for (_, segment), each in offsets.items()}
        await supervisor.reset(eventproc.StreamCut(STREAM, stream.stream_id, committed))
        await _wait_none(ep, waiting_notices)
        await supervisor.resume()

    # Accounts.

    def _check(self, tx: Tx) -> None:
        tasks = Counter(each.state.value for each in read_tasks(tx, TABLE))
        self.report.tasks = dict(tasks)
        rows, ranges = self._published(tx)
        acked = {f"w{place}": acknowledged(self._journal(f"w{place}")) for place in range(WRITERS)}
        # Segments that follow others have greater numbers.
        found = check_rows([row for key in sorted(rows) for row in rows[key]], acked)
        for writer, count in found.items():
            following = next(each.stop for each in batches(writer) if each.stop > acked[writer])
            assert count in (acked[writer], following), f"{writer}: {count} events, {acked[writer]} are known"
        self.report.events = sum(found.values())
        committed = read_offsets(tx, TABLE)
        assert ranges.keys() >= {key for key, each in committed.items() if each.offset}
        self.report.segments = len(ranges)
        for key, each in ranges.items():
            offset, state = committed.get(key), segment_state(tx, *key)
            assert each[0].start == 0, f"the beginning of {key} was not published: {each[0]}"
            for one, two in pairwise(each):
                assert one.end == two.start, f"{one} and {two} do not adjoin"
            if offset is None:
                assert state is None, f"the offset of {key} is forgotten, and it exists: {state}"
                continue
            assert each[-1].end == offset.offset, f"{each[-1]} does not end at {offset}"
            assert state is None or state.tail == offset.offset, f"{key}: {offset}, {state}"
            assert len(rows[key]) == offset.number, f"{key}: {len(rows[key])} rows, {offset}"

    def _published(
        self, tx: Tx
    ) -> tuple[dict[Any, list[tuple[str | None, bytes]]], dict[Any, list[FileRange]]]:
        """Return the rows and the ranges of each partition, in the order of their publication."""
        files: defaultdict[Any, list[tuple[FileRange, list[str]]]] = defaultdict(list)
        for _, path, _ in _line_files(tx):
            head, *lines = (self._path / TABLES_FOLDER / path).read_text().split("\n")
            found = FileRange(**json.loads(head))
            files[found.stream_id, found.segment].append((found, lines))
            self.report.files += 1
        rows: dict[Any, list[tuple[str | None, bytes]]] = {}
        for key, each in files.items():
            parts = [line.partition(" ") for _, lines in each for line in lines]
            rows[key] = [(name, payload.encode()) for name, _, payload in parts]
        return rows, {key: [part for part, _ in each] for key, each in files.items()}


def _check_publications(
    tx: Tx, before: Mapping[PartitionKey, int], seen: int
) -> tuple[dict[PartitionKey, int], int]:
    """Check the offsets, and the files behind the id `seen`, against the tasks; return the offsets and the last id."""
    offsets = {key: each.offset for key, each in read_offsets(tx, TABLE).items()}
    for key, offset in before.items():
        if key not in offsets:
            assert segment_state(tx, *key) is None, f"the offset of {key} is forgotten, and it exists"
            continue
        assert offsets[key] >= offset, (
            f"the committed offset of {key} went back from {offset} to {offsets[key]}"
        )
    files = _line_files(tx, seen) if offsets != before else []
    for _, path, published_ms in files:
        task = find_task(tx, task_of(path))
        assert task is not None, f"{path} has no task"
        ended_ms = math.inf if task.finished_ms is None else task.finished_ms
        assert published_ms <= ended_ms, f"{path} was published after the end of {task}"
    return offsets, max((number for number, _, _ in files), default=seen)


def _line_files(tx: Tx, after: int = 0) -> list[tuple[int, str, int]]:
    """Return number, path and time of the published files behind a number, in the order of their publication."""
    found = "SELECT rowid, path, published_ms FROM app_line_file WHERE rowid > ? ORDER BY rowid"
    return [
        (number, path, published_ms) for number, path, published_ms in tx.execute(found, (after,)).fetchall()
    ]


def _unpublished(tx: Tx) -> bool:
    return any(each.starts for each in unpublished_events(tx, TABLE))


async def _wait_none(ep: eventproc.Eventproc, rows: Callable[[Tx, str], object]) -> None:
    """Wait until the supervisor has no such rows."""
    while True:
        if not await ep.db.read(lambda tx: rows(tx, TABLE)):
            return
        await anyio.sleep(LOOK_S)


def main(kills: str, seed: str = "1", mib: str = "0") -> None:
    async def run(folder: Path, device: SmallDevice | None) -> IngestionReport:
        return await IngestionKills(folder, kills=int(kills), seed=int(seed), device=device).run()

    run_torture("ingestion-kills", int(seed), int(mib), run)


if __name__ == "__main__":
    main(*sys.argv[1:])
