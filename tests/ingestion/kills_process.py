"""A process of the torture of ingestion: `python -m tests.ingestion.kills_process ROLE DIRECTORY NAME [JOURNAL]`.

ROLE: "host" runs the supervisor, "worker" its tasks, and "writer" writes as NAME and notes in JOURNAL how many of its
rows were acknowledged. All end on SIGTERM. A worker's task does what one of Spark does, and writes a line for each
event, so that a file tells what was read where. A worker suspends itself at times, right after it learned what to do:
whatever it knows is old when it goes on.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import partial
from itertools import dropwhile
from pathlib import Path
from random import Random
from typing import Any, Final, TypeVar

import anyio
import attrs

import eventproc
from eventproc.base.clock import SystemClock, new_id
from eventproc.ingestion import SupervisorSpec
from eventproc.store.database import Tx
from eventproc.store.ingestion import (
    TaskOrder,
    claim_tasks,
    close_sequence,
    finish_task,
    forget_worker,
    get_spec_text,
    own_tasks,
    plan_slice,
    publish,
    register_worker,
)
from eventproc.store.ingestion.pointers import TABLES_FOLDER
from eventproc.store.model.errors import EventprocError, Retryable
from eventproc.store.model.ingestion import (
    PartitionKey,
    Positions,
    PublishOutcome,
    SequenceState,
    SlicePlan,
    TaskStats,
)
from eventproc.store.model.ingestion_errors import TaskFenced
from eventproc.store.segments import read, segment_state
from tests.system.protocol import batches, key_of, payload_of

T = TypeVar("T")

LOG: Final = logging.getLogger("torture")

STREAM: Final = "s/events"
TABLE: Final = "events"
SLOTS: Final = 4
LOOK_S: Final = 0.05
"""Pause before a task, or a worker, looks again whether there is something to do."""

SLICE_BYTES: Final = 2_000
"""Bytes of a partition that a slice takes: some batches, so that a sequence has several slices."""

WRITE_S: Final = 0.05
"""Pause between two batches of a writer."""

STOPS_AFTER_PLAN: Final = 0.01
"""Share of the planned slices before which a worker suspends itself. It has told its supervisor how far it reads."""

STOPS_BEFORE_PUBLISHING: Final = 0.1
"""Share of the sequences before whose publication a worker suspends itself. Their files are written."""

FENCED: Final = "a replaced task was refused"
"""What the log says of a task that went on after its end."""

STATS: Final = TaskStats()


@attrs.frozen
class FileRange:
    """The first line of a file: which range of a partition its rows are."""

    stream_id: int
    segment: int
    start: int
    end: int


class LineTask:
    """A task that writes a line for each event. It runs in a worker's process until it has published, or fails."""

    def __init__(
        self, ep: eventproc.Eventproc, path: Path, random: Random, order: TaskOrder, spec: SupervisorSpec
    ) -> None:
        self._ep = ep
        self._path = path
        self._random = random
        self._worker = ep.db.instance_id
        self._order = order
        self._spec = spec
        self._begin(order.n, order.starts)

    @property
    def id(self) -> str:
        return self._order.task.id

    async def run(self) -> None:
        """Read and publish one sequence after the other, to the ends of the group."""
        try:
            await self._read_all()
            await self._finish(None)
        except TaskFenced as why:
            LOG.info("%s: %s", FENCED, why)
        except (EventprocError, OSError) as why:
            LOG.info("task %s failed: %r", self.id, why)
            with suppress(EventprocError):
                await self._finish(repr(why))

    def _begin(self, n: int, starts: Positions) -> None:
        self._n = n
        self._starts = dict(starts)
        self._read = dict(starts)
        self._lines: dict[PartitionKey, list[str]] = {}
        self._begun_ms = SystemClock().monotonic_ms()

    async def _read_all(self) -> None:
        while True:
            plan = await self._plan()
            is_read = plan.ends is not None and all(
                self._read.get(key, -1) >= end for key, end in plan.ends.items()
            )
            if plan.state is SequenceState.PUBLISHED or is_read:
                assert plan.ends is not None, "a sequence that is read, or published, has ends"
                if plan.state is not SequenceState.PUBLISHED:
                    await self._publish(plan.ends)
                if plan.final:
                    return
                self._begin(plan.n + 1, plan.ends)
            elif plan.until:
                await self._read_slice(plan)
            elif not plan.closed and self._is_due():
                await self._own(close_sequence, n=self._n)
            else:
                await anyio.sleep(LOOK_S)

    def _is_due(self) -> bool:
        age_ms = self._spec.tuning.intermediate_handoff_ms
        assert age_ms is not None, "the spec of the torture has one"
        return bool(self._lines) and SystemClock().monotonic_ms() - self._begun_ms >= age_ms

    async def _plan(self) -> SlicePlan:
        plan = await self._ask(is_due=self._is_due())
        if plan.closed and not plan.until:
            plan = await self._ask(is_due=False)
        for key in plan.starts.keys() - self._starts.keys():
            self._starts[key] = self._read[key] = plan.starts[key]
        return plan

    async def _ask(self, *, is_due: bool) -> SlicePlan:
        wanted: Positions = {} if is_due else await self._ep.db.read(self._wanted)
        return await self._own(plan_slice, n=self._n, read=self._read, wanted=wanted, stats=STATS)

    def _wanted(self, tx: Tx) -> Positions:
        """Return where the next slice should end."""
        found: dict[PartitionKey, int] = {}
        for (stream_id, segment), at in self._read.items():
            state = segment_state(tx, stream_id, segment)
            if state is not None and state.tail > at:
                runs = read(tx, stream_id, {segment: (at, None)}, bytes_max=SLICE_BYTES).runs
                if runs:  # what a replaced task would read may be truncated
                    found[stream_id, segment] = runs[-1].end
        return found

    async def _read_slice(self, plan: SlicePlan) -> None:
        self._suspend(STOPS_AFTER_PLAN)
        for (stream_id, segment), end in plan.until.items():
            lines = self._lines.setdefault((stream_id, segment), [])
            while (at := self._read[stream_id, segment]) < end:
                wanted = {segment: (at, end)}
                found = await self._ep.db.read(partial(read, stream_id=stream_id, wanted=wanted))
                if not found.runs or found.runs[0].start != at:
                    raise OSError(f"nothing is found at {at}: {found.states}")
                for run in found.runs:
                    lines += [f"{event.key} {event.payload.decode()}" for event in run.events("")]
                self._read[stream_id, segment] = found.runs[-1].end

    async def _publish(self, ends: Positions) -> None:
        paths = [
            await anyio.to_thread.run_sync(self._write, key, ends[key], lines)
            for key, lines in self._lines.items()
            if lines
        ]
        self._suspend(STOPS_BEFORE_PUBLISHING)
        try:
            outcome = await self._commit(paths)
        except TaskFenced:
            self._delete(paths)
            raise
        if outcome is not PublishOutcome.PUBLISHED:
            self._delete(paths)
        if outcome is PublishOutcome.MISMATCH:
            raise OSError(f"sequence {self._n} does not begin where the committed offsets end")

    async def _commit(self, paths: list[str]) -> PublishOutcome:
        def publish_paths(tx: Tx, task_id: str, worker: str) -> PublishOutcome:
            outcome = publish(tx, task_id, worker, self._n, stats=STATS)
            if outcome is PublishOutcome.PUBLISHED:
                tx.executemany(
                    "INSERT INTO app_line_file (path, published_ms) VALUES (?, ?)",
                    [(path, tx.now_ms) for path in paths],
                )
            return outcome

        while True:
            outcome = await self._own(publish_paths)
            if outcome is not PublishOutcome.RETRY:
                return outcome
            await anyio.sleep(LOOK_S)

    def _suspend(self, share: float) -> None:
        """Suspend this process in a share of the calls. `ingestion_kills` lets it go on after a while."""
        if self._random.random() < share:
            os.kill(os.getpid(), signal.SIGSTOP)

    def _write(self, key: PartitionKey, end: int, lines: list[str]) -> str:
        path = f"{TABLE}/{self.id}_{new_id(SystemClock())}"
        final = self._path / TABLES_FOLDER / path
        final.parent.mkdir(parents=True, exist_ok=True)
        head = json.dumps(attrs.asdict(FileRange(*key, self._starts[key], end)))
        try:
            with final.open("w") as file:
                file.write("\n".join([head, *lines]))
                file.flush()
                os.fsync(file.fileno())
        except OSError:
            final.unlink(missing_ok=True)
            raise
        return path

    def _delete(self, paths: list[str]) -> None:
        for path in paths:
            (self._path / TABLES_FOLDER / path).unlink(missing_ok=True)

    async def _finish(self, error: str | None) -> None:
        await self._own(finish_task, error=error, stats=STATS)

    async def _own(self, step: Callable[..., T], **arguments: Any) -> T:
        return await self._ep.db.write(partial(step, task_id=self.id, worker=self._worker, **arguments))


async def work(path: Path, random: Random) -> None:
    """Run tasks, as `eventproc ingest worker` does. random: decides when it suspends itself."""
    async with (
        eventproc.open(path, create=False, host=False) as ep,
        anyio.create_task_group() as tasks,
    ):
        worker = ep.db.instance_id
        await _again(lambda: ep.db.write(partial(register_worker, instance=worker, slots=SLOTS)))
        runs: dict[str, tuple[LineTask, anyio.CancelScope]] = {}

        async def run(task: LineTask, scope: anyio.CancelScope) -> None:
            try:
                with scope:
                    await task.run()
            finally:
                del runs[task.id]

        def claim(tx: Tx) -> list[tuple[TaskOrder, SupervisorSpec]]:
            orders = claim_tasks(tx, worker, SLOTS - len(runs), ep.db.peers.is_alive)
            return [
                (each, SupervisorSpec.parse(get_spec_text(tx, each.task.supervisor, each.group.version)))
                for each in orders
            ]

        async def reconcile() -> None:
            own = {each.task.id for each in await ep.db.read(partial(own_tasks, worker=worker))}
            for name, (_, scope) in list(runs.items()):
                if name not in own:
                    scope.cancel()
            if len(runs) < SLOTS:
                for order, spec in await ep.db.write(claim):
                    task, scope = LineTask(ep, path, random, order, spec), anyio.CancelScope()
                    runs[task.id] = task, scope
                    tasks.start_soon(run, task, scope)

        try:
            while True:
                try:
                    await reconcile()
                except Retryable as why:
                    LOG.info("the worker tries again: %r", why)
                await anyio.sleep(LOOK_S)
        finally:
            with anyio.CancelScope(shield=True), suppress(Retryable):
                await ep.db.write(partial(forget_worker, instance=worker))


async def host(path: Path) -> None:
    """Host the directory, and with it the supervisor."""
    async with eventproc.open(path, create=False):
        await anyio.sleep_forever()


async def write(path: Path, journal: Path, name: str, done: int) -> None:
    """Write batches, each once, also if it is repeated after an error or by the next process of that name."""
    with journal.open("a", buffering=1) as acks:
        async with eventproc.open(path, create=False, host=False) as ep:
            stream = await ep.stream(STREAM)
            numbered = dropwhile(lambda each: each[1].stop <= done, enumerate(batches(name)))
            for number, rows in numbered:
                await _again(partial(_send, stream, name, number, rows))
                acks.write(f"{rows.stop}\n")
                await anyio.sleep(WRITE_S)


async def _send(stream: eventproc.Stream[Any], name: str, number: int, rows: range) -> None:
    async with stream.writer(name=name) as writer:
        await writer.write_many(
            ((payload_of(name, row), key_of(name, row)) for row in rows), sequence=number + 1
        )


async def _again(call: Callable[[], Awaitable[object]]) -> None:
    """Call again while the error may be repeated, such as that of a full disk."""
    while True:
        try:
            await call()
        except Retryable as why:
            LOG.info("trying again: %r", why)
        else:
            return
        await anyio.sleep(LOOK_S)


def task_of(path: str) -> str:
    """Return the id of the task that wrote a file of the table."""
    return Path(path).name.rpartition("_")[0]


def acknowledged(journal: Path) -> int:
    """Return how many rows of a writer were acknowledged."""
    lines = journal.read_text().split() if journal.exists() else []
    return int(lines[-1]) if lines else 0


async def _run_until_terminated(role: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async with anyio.create_task_group() as tasks:
        with anyio.open_signal_receiver(signal.SIGTERM) as signals:
            tasks.start_soon(role)
            async for _ in signals:
                break
        tasks.cancel_scope.cancel()


def main(role: str, directory: str, name: str, journal: str = "") -> int:
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s {role} %(process)d %(name)s %(message)s")
    path = Path(directory)
    runs: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {
        "host": lambda: host(path),
        "worker": lambda: work(path, Random(name)),
        "writer": lambda: write(path, Path(journal), name, acknowledged(Path(journal))),
    }
    anyio.run(_run_until_terminated, runs[role])
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
