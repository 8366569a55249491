"""Support for the tests of ingestion tasks: groups and tasks as a supervisor creates them, made by hand."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from pyspark.sql import DataFrame, SparkSession

from eventproc.blocking import BlockingEventproc, BlockingStream, BlockingSupervisor
from eventproc.describe import SupervisorState
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
from eventproc.ingestion.memory import Memory
from eventproc.spark.ingestion.files import TableFiles
from eventproc.spark.ingestion.task import TaskRun, WorkerRoom
from eventproc.spark.planner_directory import PlannerDirectory
from eventproc.store.address import StoreAddress
from eventproc.store.catalog import get_stream
from eventproc.store.database import Tx
from eventproc.store.ingestion import (
    WATCH_INGESTION,
    TaskOrder,
    claim_tasks,
    read_offsets,
    register_worker,
)
from eventproc.store.ingestion.rows import (
    IngestOffset,
    waiting_tasks,
    write_group,
    write_offset,
    write_sequence,
    write_stream,
    write_task,
)
from eventproc.store.ingestion.supervisors import read_memory
from eventproc.store.model.ingestion import (
    IngestGroup,
    IngestGroupState,
    IngestSequence,
    IngestTask,
    PartitionKey,
    SequenceState,
    TaskState,
)
from eventproc.store.segments.holds import HOLD_MS

STREAM = "s/clicks"
HOUR_MS = 3_600_000
WAIT_S = 600

CLICKS = DataSchema(
    datasource="clicks",
    timestamp=TimestampSpec(column="at"),
    dimensions=(Dimension(name="page"),),
    metrics=(
        Metric(name="clicks", type=MetricType.COUNT),
        Metric(name="ms", type=MetricType.LONG_SUM, field="ms"),
    ),
    query_granularity=Granularity.MINUTE,
    segment_granularity=Granularity.HOUR,
)


def spec_of(schema: DataSchema = CLICKS, tuning: TuningConfig | None = None) -> SupervisorSpec:
    """Return a valid spec that reads STREAM."""
    spec = SupervisorSpec(io=IoConfig(streams=(STREAM,)), schema=schema, tuning=tuning or TuningConfig())
    return spec.validate()


def click(number: int) -> bytes:
    """Return an event: one per second, of three pages."""
    row = {"at": number * 1000, "page": f"p{number % 3}", "ms": number % 7}
    return json.dumps(row).encode()


def write_clicks(stream: BlockingStream, numbers: Sequence[int]) -> None:
    """Append clicks, spread over the segments."""
    with stream.writer() as writer:
        for number in numbers:
            writer.post(click(number), key=f"k{number}")


def expected(numbers: Sequence[int]) -> list[tuple[int, str, int, int]]:
    """Return the rolled-up rows (minute in ms, page, clicks, ms) that the clicks make, sorted."""
    found: dict[tuple[int, str], tuple[int, int]] = {}
    for number in numbers:
        key = number * 1000 // 60_000 * 60_000, f"p{number % 3}"
        clicks, ms = found.get(key, (0, 0))
        found[key] = clicks + 1, ms + number % 7
    return sorted((*key, *value) for key, value in found.items())


def rows_of(table: DataFrame) -> list[tuple[int, str, int, int]]:
    """Return the rows of a table of clicks as `expected` does."""
    rows = table.selectExpr("unix_millis(__time)", "page", "clicks", "ms").collect()
    return sorted((row[0], row[1], row[2], row[3]) for row in rows)


def merged(rows: list[tuple[int, str, int, int]]) -> list[tuple[int, str, int, int]]:
    """Return rows with those of equal minute and page added up."""
    found: dict[tuple[int, str], tuple[int, int]] = {}
    for minute, page, clicks, ms in rows:
        before = found.get((minute, page), (0, 0))
        found[minute, page] = before[0] + clicks, before[1] + ms
    return sorted((*key, *value) for key, value in found.items())


@contextmanager
def worker_room(spark: SparkSession, address: StoreAddress, *, slots: int = 4) -> Iterator[WorkerRoom]:
    """Give what the tasks of a registered worker share."""
    with PlannerDirectory(address, hold_ms=HOLD_MS) as directory:
        instance = directory.db.instance_id
        directory.write(lambda tx: register_worker(tx, instance, slots))
        yield WorkerRoom(spark, directory, TableFiles(directory))


def run_backfill(ep: BlockingEventproc, room: WorkerRoom, bounded: BlockingSupervisor) -> None:
    """Run the task of a bounded supervisor, as a worker does, until its range is published."""
    wait_until(ep, lambda tx: any(each.supervisor == bounded.id for each in waiting_tasks(tx)))
    (order,) = [each for each in claim(room) if each.task.supervisor == bounded.id]
    run = TaskRun(order, bounded.spec(), room)
    run.start()
    run.join(WAIT_S)
    assert run.finished
    wait_until(ep, lambda tx: is_completed(tx, bounded.id))


def wait_until(ep: BlockingEventproc, is_done: Callable[[Tx], bool]) -> None:
    """Return when something of ingestion has changed so that a condition holds."""
    db = ep._twin.db

    async def wait() -> None:
        with db.subscribe([WATCH_INGESTION]) as changes:
            while not await db.read(is_done):
                await changes.wait()

    ep._loop.call(wait)


def is_completed(tx: Tx, supervisor: str) -> bool:
    text = read_memory(tx, supervisor)
    return text is not None and Memory.decode(text).health.state is SupervisorState.COMPLETED


def positions(stream: BlockingStream, *, tail: bool) -> dict[PartitionKey, int]:
    """Return the head or the tail of each active segment."""
    cut = stream.tail() if tail else stream.head()
    return {(cut.stream_id, segment): offset for segment, offset in cut.offsets.items()}


def create_group(
    directory: PlannerDirectory,
    spec: SupervisorSpec,
    starts: Mapping[PartitionKey, int],
    ends: Mapping[PartitionKey, int] | None,
    *,
    base: str = "clicks-0",
    replicas: int = 1,
) -> None:
    """Create a group with its tasks. ends: it is pending; None: it reads."""

    def create(tx: Tx) -> None:
        # Without a state: the supervisor itself must leave the groups alone.
        row = tx.execute("SELECT count(*) FROM supervisor WHERE id = ?", (spec.id,)).fetchone()
        version = int(row[0]) + 1
        tx.execute(
            "INSERT INTO supervisor (id, version, spec, created_ms) VALUES (?, ?, ?, ?)",
            (spec.id, version, spec.text(), tx.now_ms),
        )
        write_stream(tx, spec.id, STREAM, get_stream(tx, STREAM).value.stream_id)
        for key, start in starts.items():
            write_offset(tx, spec.id, key, IngestOffset(start, 0))
        group = IngestGroup(
            base=base,
            supervisor=spec.id,
            gid=0,
            version=version,
            fingerprint=spec.fingerprint,
            state=IngestGroupState.ACTIVE if ends is None else IngestGroupState.PENDING,
            created_ms=tx.now_ms,
            starts=starts,
            ends=ends,
        )
        write_group(tx, group)
        state = SequenceState.OPEN if ends is None else SequenceState.CLOSED
        write_sequence(tx, IngestSequence(base=base, n=0, starts=starts, ends=ends, state=state))
        for replica in range(replicas):
            create_task(tx, spec, base, replica)

    directory.write(create)


def create_task(tx: Tx, spec: SupervisorSpec, base: str, replica: int) -> None:
    """Create a waiting task of a group."""
    task = IngestTask(
        id=f"{base}-{replica}",
        supervisor=spec.id,
        base=base,
        replica=replica,
        state=TaskState.WAITING,
        worker=None,
        n=0,
        read={},
        planned={},
        created_ms=tx.now_ms,
    )
    write_task(tx, task)


def claim(room: WorkerRoom, count: int = 4) -> list[TaskOrder]:
    """Take waiting tasks."""
    return room.directory.write(lambda tx: claim_tasks(tx, room.instance, count, lambda _: True))


def is_published(room: WorkerRoom, spec: SupervisorSpec, ends: Mapping[PartitionKey, int]) -> bool:
    """Return whether what a spec reads is published up to these ends."""
    found = room.directory.read(lambda tx: read_offsets(tx, spec.id))
    return {key: each.offset for key, each in found.items()} == ends


def publish_clicks(
    room: WorkerRoom,
    stream: BlockingStream,
    numbers: Sequence[int],
    spec: SupervisorSpec | None = None,
    *,
    base: str = "clicks-0",
) -> list[TaskRun]:
    """Append clicks; let a group of their own read and publish them."""
    spec = spec or spec_of()
    starts = positions(stream, tail=True)
    write_clicks(stream, numbers)
    create_group(room.directory, spec, starts, positions(stream, tail=True), base=base)
    return run_tasks(room, spec)


def run_tasks(room: WorkerRoom, spec: SupervisorSpec) -> list[TaskRun]:
    """Run the waiting tasks to their ends."""
    runs = [TaskRun(order, spec, room) for order in claim(room)]
    for run in runs:
        run.start()
    for run in runs:
        run.join(WAIT_S)
        assert run.finished
    return runs
