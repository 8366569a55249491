"""A supervisor on virtual time, with scripted tasks in place of Spark: a test says when a task reads and publishes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, TypeVar

import attrs
import pyarrow as pa
import pyarrow.parquet as pq

from eventproc import ScalingPolicy
from eventproc.ingestion import SupervisorSpec
from eventproc.ingestion.loop import handle_next, read_situation
from eventproc.ingestion.memory import Memory
from eventproc.ingestion.ranges import ends_of
from eventproc.ingestion.supervisor import Supervisor
from eventproc.ingestion.working_state import Situation
from eventproc.runtime import Eventproc
from eventproc.store.database import Database, Tx
from eventproc.store.file_store import FileStore
from eventproc.store.ingestion import (
    IngestOffset,
    TaskOrder,
    add_spec,
    claim_tasks,
    close_sequence,
    finish_task,
    get_spec_text,
    keep_task,
    plan_slice,
    publish,
    read_groups,
    read_offsets,
    read_tasks,
    register_worker,
)
from eventproc.store.ingestion.iceberg import StoreTables
from eventproc.store.ingestion.pointers import find_pointer, move_pointer
from eventproc.store.ingestion.rows import find_task
from eventproc.store.ingestion.supervisors import next_runs
from eventproc.store.ingestion.table_access import on_tables
from eventproc.store.ingestion.table_paths import new_table_path
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.ingestion import (
    TIME,
    IngestGroup,
    IngestGroupState,
    IngestTask,
    PartitionKey,
    Positions,
    PublishOutcome,
    SequenceState,
    SlicePlan,
    TablePartitioning,
    TaskStats,
)
from eventproc.store.model.ingestion_errors import TableChanged
from eventproc.store.ownership import claim
from eventproc.store.segments import segment_states
from eventproc.testing import VirtualClock

T = TypeVar("T")

HOUR_MS = 3_600_000
ID = "clicks"
METADATA = "file:///tables/clicks/metadata/none"
"""Where a published table lies. No test of this folder reads one."""


def due_supervisors(tx: Tx) -> list[str]:
    """Return the supervisors that have a notice, or whose next run is due, sorted."""
    return sorted(each for each, at_ms in next_runs(tx).items() if at_ms <= tx.now_ms)


def spec_of(**changes: Any) -> SupervisorSpec:
    """Return a valid spec: stream s/t from its head, the table clicks. changes: of `io`, or whole parts by name."""
    parts: dict[str, Any] = {
        name: changes.pop(name) for name in ("schema", "tuning", "id", "suspended") if name in changes
    }
    io = {"streams": ["s/t"], "use_earliest_offset": True, **changes}
    schema = {"datasource": "clicks", "dimensions": ["page"], **parts.pop("schema", {})}
    tuning = {"task_timeout_ms": 100 * HOUR_MS, **parts.pop("tuning", {})}
    return SupervisorSpec.of({"id": ID, "io": io, "schema": schema, "tuning": tuning, **parts})


async def add_worker(ep: Eventproc, name: str, slots: int = 2) -> None:
    """Register a worker of that instance, on the machine m1."""
    await ep.db.write(partial(register_worker, instance=name, slots=slots, machine="m1", pid=7))


class Bench:
    """A system without a host, whose supervisors a test runs itself. Workers live until they are in `dead`."""

    def __init__(self, ep: Eventproc, clock: VirtualClock) -> None:
        self.ep = ep
        self.db = ep.db
        self.clock = clock
        self.dead: set[str] = set()
        self.files: list[str] = []  # what was published, as texts of the ranges
        self.is_alive = lambda worker: worker not in self.dead

    async def begin(self) -> None:
        """Become the owner of the supervisors."""
        self.owner = await self.db.write(partial(claim, name="bench", instance="test"))

    async def submit(self, spec: SupervisorSpec | None = None, **changes: Any) -> None:
        """Submit a spec, without running it."""
        spec = spec_of(**changes) if spec is None else spec
        await self.db.write(lambda tx: add_spec(tx, spec.id, spec.text()))

    async def submit_and_run(self, spec: SupervisorSpec | None = None, **changes: Any) -> None:
        """Submit a spec, and run the supervisor."""
        await self.submit(spec, **changes)
        await self.run()

    async def run(self, supervisor: str = ID) -> None:
        """Handle the notices of a supervisor, or run it once, until nothing is due."""
        await handle_next(self.db, self.owner, supervisor, self.is_alive)
        for _ in range(20):
            if supervisor not in await self.db.read(due_supervisors):
                return
            await handle_next(self.db, self.owner, supervisor, self.is_alive)
        raise AssertionError("the supervisor does not come to rest")

    async def run_after(self, wait_ms: int) -> None:
        """Let time pass, and run."""
        self.clock.advance(wait_ms)
        await self.run()

    async def start_supervisor(self, segments: int = 1, **changes: Any) -> Supervisor:
        """Create s/t, submit a spec that reads it, and run."""
        await self.ep.create_stream("s/t", scaling=ScalingPolicy.fixed(segments))
        await self.submit_and_run(**changes)
        return await self.ep.supervisor(ID)

    async def start_tasks(self, segments: int = 1, **changes: Any) -> ScriptedWorker:
        """Start a supervisor; return a worker that has claimed its tasks."""
        await self.start_supervisor(segments, **changes)
        return (await self.claim())[0]

    async def published_once(self, segments: int, **changes: Any) -> tuple[Supervisor, ScriptedWorker]:
        """Return a supervisor that has published ten events per segment, and whose next groups read."""
        worker = await self.start_tasks(segments, start_delay_ms=0, **changes)
        supervisor = await self.ep.supervisor(ID)
        await self.write(10 * segments)
        await worker.step()
        await self.handoff()
        await worker.complete_pending()
        await self.run()
        await worker.claim()
        return supervisor, worker

    async def handoff(self, groups: Sequence[int] | None = None) -> None:
        """Let groups hand off, by default all that read, and run."""
        await (await self.ep.supervisor(ID)).handoff(groups)
        await self.run()

    async def run_at_due(self) -> None:
        """Move the clock to the next run that is due, and run."""
        due_ms = min((await self.db.read(next_runs)).values())
        self.clock.advance(max(due_ms - self.clock.wall_ms(), 0))
        await self.run()

    async def situation(self, supervisor: str = ID) -> Situation:
        found = await self.db.read(lambda tx: read_situation(tx, supervisor, self.is_alive, with_lags=True))
        assert found is not None
        return found

    async def memory(self) -> Memory:
        return (await self.situation()).memory

    async def last_error(self) -> str:
        return (await self.memory()).health.errors[-1].message

    async def groups(self, state: IngestGroupState | None = None, supervisor: str = ID) -> list[IngestGroup]:
        found = await self.db.read(lambda tx: read_groups(tx, supervisor))
        return [each for each in found if state is None or each.state is state]

    async def active(self, supervisor: str = ID) -> dict[int, IngestGroup]:
        """Return the reading groups by number."""
        return {each.gid: each for each in await self.groups(IngestGroupState.ACTIVE, supervisor)}

    async def pending(self) -> list[IngestGroup]:
        return await self.groups(IngestGroupState.PENDING)

    async def live(self, base: str | None = None) -> list[IngestTask]:
        tasks = await self.db.read(lambda tx: read_tasks(tx, ID))
        return [each for each in tasks if each.state.live and base in (None, each.base)]

    async def offsets(self, supervisor: str = ID) -> dict[PartitionKey, IngestOffset]:
        return await self.db.read(lambda tx: read_offsets(tx, supervisor))

    async def committed(self, supervisor: str = ID) -> dict[PartitionKey, int]:
        """Return the committed offsets alone."""
        return {key: each.offset for key, each in (await self.offsets(supervisor)).items()}

    async def partitions(self, stream: str = "s/t") -> list[PartitionKey]:
        handle = await self.ep.stream(stream)
        states = await self.db.read(lambda tx: list(segment_states(tx, handle.stream_id)))
        return [(handle.stream_id, segment) for segment, _ in states]

    async def tails(self, stream: str = "s/t") -> dict[PartitionKey, int]:
        handle = await self.ep.stream(stream)
        states = await self.db.read(lambda tx: list(segment_states(tx, handle.stream_id)))
        return {(handle.stream_id, segment): state.tail for segment, state in states}

    async def write(self, count: int, stream: str = "s/t") -> None:
        """Write events with different keys."""
        handle = await self.ep.stream(stream, payload=str)
        async with handle.writer() as writer:
            for number in range(count):
                await writer.write(f"event {number}", key=f"key {number}")

    async def worker(self, name: str = "w1", slots: int = 100) -> ScriptedWorker:
        await self.db.write(lambda tx: register_worker(tx, name, slots))
        return ScriptedWorker(self, name)

    async def claim(self) -> tuple[ScriptedWorker, list[ScriptedTask]]:
        """Return a new worker, and the tasks that it has claimed."""
        worker = await self.worker()
        return worker, await worker.claim()

    async def check_groups(self) -> None:
        """Assert that what is not published is read without a gap or an overlap, from the committed offsets on."""
        view = (await self.situation()).view
        ranges: dict[PartitionKey, list[tuple[int, int]]] = {}
        for sequences in view.sequences.values():
            for each in sequences:
                for key, start in each.starts.items():
                    end = sys.maxsize if each.ends is None else each.ends[key]
                    if end > start:
                        ranges.setdefault(key, []).append((start, end))
        for key, found in ranges.items():
            at = view.offsets[key].offset
            for start, end in sorted(found):
                assert start == at, (key, at, sorted(found), view.groups)
                at = end

    def published_ranges(self) -> dict[PartitionKey, tuple[int, int]]:
        """Return from where to where each partition is published. Assert that its files adjoin."""
        ranges: dict[PartitionKey, list[tuple[int, int]]] = {}
        for text in self.files:
            _, place, start, end, _ = text.split(":")
            stream_id, segment = map(int, place.split("."))
            ranges.setdefault((stream_id, SegmentId(segment)), []).append((int(start), int(end)))
        for key, found in ranges.items():
            found.sort()
            assert all(end == start for (_, end), (start, _) in pairwise(found)), (key, found)
        return {key: (found[0][0], found[-1][1]) for key, found in ranges.items()}

    async def check_ranges(self) -> None:
        """Assert that what is published of each partition ends at its committed offset, and has no gap."""
        committed = await self.committed()
        for key, (_, end) in self.published_ranges().items():
            assert end == committed[key]


COLUMNS = pa.schema({TIME: pa.timestamp("us", tz="UTC"), "page": pa.string()})


def write_rows(files: FileStore, path: str, *times_ms: int) -> None:
    """Write a Parquet file with a row at each time."""
    rows = pa.table({TIME: [each * 1000 for each in times_ms], "page": ["a"] * len(times_ms)}, schema=COLUMNS)
    data = pa.BufferOutputStream()
    pq.write_table(rows, data)
    file = files.create(path)
    file.write(memoryview(data.getvalue()))
    file.finish()


async def publish_rows(db: Database, *times_ms: int, table: str = "clicks") -> str:
    """Publish a file with a row at each of these times, which lie in one hour, and return its path."""

    def publish(tables: StoreTables) -> str:
        path = new_table_path(f"{table}/0", db.instance_id, db.clock)
        write_rows(tables.files, path, *times_ms)
        assert tables.append(table, COLUMNS, TablePartitioning.HOUR, [path]) is None
        return path

    return await on_tables(db, publish)


async def replace_rows(
    db: Database, *times_ms: int, version: str | None = None, table: str = "clicks"
) -> bool:
    """Put a file with rows at these times in the place of all that a version of the table has; None: that of now."""

    def replace(tables: StoreTables) -> bool:
        path = new_table_path(f"{table}/0", db.instance_id, db.clock)
        write_rows(tables.files, path, *times_ms)
        try:
            old = tables.used(table, version=version)
        except TableChanged:
            return False
        return tables.replace(table, old, [path], columns=COLUMNS, by=TablePartitioning.HOUR, version=version)

    return await on_tables(db, replace)


async def with_tables(db: Database, work: Callable[[StoreTables], T]) -> T:
    """Run `work` with the tables of the store."""
    return await on_tables(db, work)


async def sweep_tables_later(db: Database, later_ms: int) -> None:
    """Sweep the tables as after so much time."""
    clock = VirtualClock(start_ms=db.clock.wall_ms() + later_ms)

    def sweep(tables: StoreTables) -> None:
        tables.clock = clock
        tables.sweep(lambda _: True)

    await on_tables(db, sweep)


@attrs.define
class ScriptedTask:
    """A task of a scripted worker. It stores, per sequence, how far it has read."""

    worker: ScriptedWorker
    order: TaskOrder
    n: int
    read: dict[PartitionKey, int] = attrs.field(factory=dict)
    stats: TaskStats = attrs.field(factory=TaskStats)

    @property
    def id(self) -> str:
        return self.order.task.id

    async def plan(self, wanted: Positions | None = None) -> SlicePlan:
        """Plan a slice, by default to the tails of all partitions, or to the ends of a bounded supervisor's ranges."""
        db, group = self.worker.bench.db, self.order.group
        if wanted is None:
            wanted = {}
            for stream in self.order.streams.values():
                wanted |= await self.worker.bench.tails(stream)
            text = await db.read(partial(get_spec_text, supervisor=group.supervisor, version=group.version))
            names = {name: stream_id for stream_id, name in self.order.streams.items()}
            ends = ends_of(SupervisorSpec.parse(text), names)
            if ends is not None:
                wanted = {key: min(tail, ends[key]) for key, tail in wanted.items() if key in ends}
        return await self._own(plan_slice, n=self.n, read=self.read, wanted=wanted, stats=self.stats)

    async def step(self, wanted: Positions | None = None) -> SlicePlan:
        """Plan a slice and read it."""
        plan = await self.plan(wanted)
        self.read = {**plan.starts, **self.read, **plan.until}
        return plan

    async def keep(self, *, progress_ms: int) -> None:
        """Write a heartbeat of a job that makes no progress since then."""
        await self._own(keep_task, stats=attrs.evolve(self.stats, progress_ms=progress_ms))

    async def publish(self) -> PublishOutcome:
        """Publish the sequence, with one text per partition that was read, which says its range."""
        plan = await self.plan({})
        assert plan.ends is not None
        texts = [
            f"{self.id}:{key[0]}.{key[1]}:{plan.starts[key]}:{end}:{self.n}"
            for key, end in plan.ends.items()
            if end > plan.starts[key]
        ]

        def publish_texts(tx: Tx, task_id: str, worker: str) -> PublishOutcome:
            outcome = publish(tx, task_id, worker, self.n, stats=self.stats)
            if outcome is PublishOutcome.PUBLISHED:
                move_pointer(tx, "clicks", find_pointer(tx, "clicks"), METADATA)
                tx.after(lambda: self.worker.bench.files.extend(texts))
            return outcome

        return await self._own(publish_texts)

    async def close(self) -> Positions:
        """Close the open sequence while reading goes on."""
        return await self._own(close_sequence, n=self.n)

    async def finish(self, error: str | None = None) -> None:
        """End the task."""
        await self._own(finish_task, error=error, stats=self.stats)

    async def complete(self) -> None:
        """Read to the ends of the group, publish every sequence, and end."""
        while True:
            plan = await self.step()
            assert plan.closed
            if plan.state is not SequenceState.PUBLISHED:
                assert await self.publish() in (PublishOutcome.PUBLISHED, PublishOutcome.ALREADY)
            if plan.final:
                break
            self.n += 1
            self.read = {}
        await self.finish()

    async def _own(self, step: Callable[..., T], **arguments: Any) -> T:
        """Make a step of the task in a transaction of its worker."""
        return await self.worker.bench.db.write(
            partial(step, task_id=self.id, worker=self.worker.name, **arguments)
        )


@attrs.define
class ScriptedWorker:
    """A worker whose tasks do what the test says."""

    bench: Bench
    name: str
    tasks: list[ScriptedTask] = attrs.field(factory=list)

    async def claim(self, slots: int = 100) -> list[ScriptedTask]:
        """Claim waiting tasks and return the new ones."""
        orders = await self.bench.db.write(
            partial(claim_tasks, worker=self.name, slots_free=slots, is_alive=self.bench.is_alive)
        )
        taken = [ScriptedTask(self, each, each.n) for each in orders]
        self.tasks += taken
        return taken

    async def step(self) -> None:
        """Let each task plan a slice and read it."""
        for task in self.tasks:
            await task.step()

    async def complete_pending(self) -> None:
        """Complete every task of this worker whose group is pending and which is still its own."""
        pending = {each.base for each in await self.bench.pending()}
        for task in list(self.tasks):
            stored = await self.bench.db.read(partial(find_task, task_id=task.id))
            if task.order.task.base in pending and stored is not None and stored.state.live:
                await task.complete()
                self.tasks.remove(task)
