"""One ingestion task: a thread that reads slices with Spark jobs, and publishes its sequences.

The end of a slice is durable before its events are read, so the supervisor can end a group without stopping a task.
What was read lies in Parquet files that nobody sees. When a sequence is closed and read to its ends, its slices are
merged, written under final names, and published in one transaction together with the moved offsets.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, TypeVar, cast

import attrs
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from eventproc.ingestion import SupervisorSpec
from eventproc.ingestion.ranges import ends_of
from eventproc.ingestion.table_schema import partitioning
from eventproc.spark.ingestion.files import TableFiles
from eventproc.spark.ingestion.parquet import WrittenFile
from eventproc.spark.ingestion.ranges import RangeReader
from eventproc.spark.ingestion.rows import RowFrames
from eventproc.spark.ingestion.slice_size import LEAST_BYTES, SLICE_MS, SliceSizes
from eventproc.spark.ingestion.stats import StatsMeter
from eventproc.spark.ingestion.task_log import TaskLog
from eventproc.spark.ingestion.unparseable import UnparseableEvents, write_unparseable
from eventproc.spark.job_groups import JobProgress, cancel_jobs, progress_of_jobs, why_ended
from eventproc.spark.planner_directory import PlannerDirectory
from eventproc.spark.sink_commit import abort, append_if
from eventproc.spark.sink_task import TaskOutput
from eventproc.store.database import Tx
from eventproc.store.ingestion import TaskOrder, close_sequence, finish_task, keep_task, plan_slice, publish
from eventproc.store.ingestion.logs import log_now
from eventproc.store.model.errors import EventprocError, InvalidArgument, Retryable
from eventproc.store.model.ingestion import (
    NO_POSITIONS,
    PartitionKey,
    Positions,
    PublishOutcome,
    SequenceState,
    SlicePlan,
    TaskStats,
)
from eventproc.store.model.ingestion_errors import TableBusy, TaskFenced
from eventproc.store.segments.holds import HOLD_MS, RENEW_MS

T = TypeVar("T")

LOG: Final = logging.getLogger("eventproc.ingestion")

LOOK_MS: Final = 100
"""Pause before a task that has read everything looks for new events: one read of the database."""

REPORT_MS: Final = 1_000
"""Pause between two reports of a task that has nothing to read."""

KEEP_MS: Final = 10_000
"""Pause between two heartbeats while a job runs."""


@attrs.frozen
class WorkerRoom:
    """What the tasks of a worker share."""

    spark: SparkSession
    directory: PlannerDirectory
    tables: TableFiles
    sizes: SliceSizes = attrs.field(factory=SliceSizes)

    @property
    def instance(self) -> str:
        """The worker's opening of the directory."""
        return self.directory.db.instance_id


@attrs.define
class _Sequence:
    """A sequence as far as this task has read it.

    slices: paths of Parquet files with rows. unparseable: of each partition, from the first to the last slice with
    events that are no rows. gathers_until_ms: until when what is unread may wait, monotonic.
    """

    n: int
    starts: dict[PartitionKey, int]
    begun_ms: int
    read: dict[PartitionKey, int] = attrs.field(factory=dict)
    slices: list[str] = attrs.field(factory=list)
    unparseable: dict[PartitionKey, tuple[int, int]] = attrs.field(factory=dict)
    rows: int = 0
    gathers_until_ms: int = 0


class _Ended(Exception):
    """The task stops without a result: it was stopped by its supervisor, or its worker drains."""


class TaskRun:
    """Runs a task on a thread, from `start` until `finished`."""

    def __init__(self, order: TaskOrder, spec: SupervisorSpec, room: WorkerRoom) -> None:
        self.id: Final = order.task.id
        self._order = order
        self._spec = spec
        self._room = room
        self._clock = room.directory.db.clock
        ends = ends_of(spec, {name: stream_id for stream_id, name in order.streams.items()})
        self._reader = RangeReader(room.directory, order.streams, ends)
        self._meter = StatsMeter(self._clock.monotonic_ms(), spec.tuning.max_saved_parse_exceptions)
        self._log = TaskLog(self.id, self._clock)
        self._group = f"eventproc ingestion {self.id}"
        self._wake = threading.Event()
        self._killed = False
        self._draining = False
        self._size = room.sizes.begin(
            spec.schema,
            rows_max=spec.tuning.max_rows_in_memory,
            bytes_max=spec.tuning.max_bytes_in_memory,
        )
        self._reported_ms = self._held_ms = self._clock.monotonic_ms()
        self._progress_ms = self._clock.wall_ms()
        self._job_progress: JobProgress = ()
        self._thread = threading.Thread(target=self._run, name=self._group, daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    @property
    def finished(self) -> bool:
        """Whether the thread has ended, and with it the task's jobs."""
        return not self._thread.is_alive()

    def wake(self) -> None:
        """Look immediately whether there is something to do."""
        self._wake.set()

    def drain(self) -> None:
        """Publish the sequence if it is closed, and stop at the border of the next slice."""
        self._draining = True
        self._wake.set()

    def kill(self) -> None:
        """Stop, and cancel the running job."""
        self._killed = True
        self._wake.set()
        cancel_jobs(self._room.spark.sparkContext, self._group)

    def keep(self) -> None:
        """Write a heartbeat if a job has been running for long. Called by the worker's own thread.

        It says since when the job makes no progress, so that the supervisor replaces a task whose job hangs.
        """
        if not self.finished and self._clock.monotonic_ms() - self._reported_ms >= KEEP_MS:
            self._reported_ms = self._clock.monotonic_ms()
            progress = progress_of_jobs(self._room.spark.sparkContext, self._group)
            if progress != self._job_progress:
                self._job_progress = progress
                self._progress_ms = self._clock.wall_ms()
            try:
                self._room.directory.write(
                    partial(keep_task, task_id=self.id, worker=self._room.instance, stats=self._stats())
                )
            except TaskFenced:
                self.kill()
            except Retryable as why:
                LOG.warning("task %s could not write a heartbeat, and tries again: %s", self.id, why)

    def join(self, timeout_s: float | None = None) -> None:
        """Wait for the thread."""
        self._thread.join(timeout_s)

    def _run(self) -> None:
        context = self._room.spark.sparkContext
        try:
            context.setJobGroup(self._group, f"{self._spec.id}: {self.id}", interruptOnCancel=True)
            context.setLocalProperty("spark.scheduler.pool", self.id)
            self._frames = RowFrames(self._room.spark, self._spec.schema)
            self._read_all()
            self._finish(None)
        except (_Ended, TaskFenced) as why:
            LOG.info("task %s ended: %s", self.id, why)
            self._log.add(f"ended at its worker: {why}")
        except Exception as why:
            if (ended := why_ended(context)) is not None:  # the worker gives its tasks back
                LOG.info("task %s ended with its driver: %s", self.id, ended)
            elif not self._killed:
                LOG.warning("task %s failed", self.id, exc_info=True)
                self._log.add(f"{type(why).__name__}: {why}")
                self._finish(_described(why))
        finally:
            self._write_log()
            self._room.sizes.end(self._spec.schema, self._size)
            self._room.tables.clear(self.id)
            try:
                self._reader.end_hold(self._group)
            except EventprocError as why:
                LOG.warning("task %s left a hold, which expires: %s", self.id, why)

    def _write_log(self) -> None:
        """Write what waits at the end of a task that was stopped: it has no other transaction."""
        self._log.end_slices()
        if not self._log.is_empty:
            try:
                self._write(lambda _: None)
            except EventprocError as why:
                LOG.info("task %s could not write the end of its log: %s", self.id, why)

    def _finish(self, error: str | None) -> None:
        self._log.end_slices()
        try:
            self._write(
                lambda tx: finish_task(tx, self.id, self._room.instance, error=error, stats=self._stats())
            )
        except TaskFenced:
            LOG.info("task %s was replaced before it ended", self.id)
        except EventprocError:
            LOG.warning(
                "task %s could not report its end; its supervisor replaces it", self.id, exc_info=True
            )

    def _read_all(self) -> None:
        """Read and publish one sequence after the other, to the group's ends."""
        sequence = self._begin(self._order.n, dict(self._order.starts))
        while True:
            plan = self._plan(sequence)
            if plan.state is SequenceState.PUBLISHED or self._is_read(sequence, plan):
                self._publish(sequence, plan)
                if plan.final:
                    return
                assert plan.ends is not None, "a published sequence has ends"
                sequence = self._begin(plan.n + 1, dict(plan.ends))
            elif plan.until:
                self._read_slice(sequence, plan)
            elif not plan.closed and self._is_due(sequence):
                self._write(
                    partial(close_sequence, task_id=self.id, worker=self._room.instance, n=sequence.n)
                )
            else:
                self._wait(sequence)

    def _begin(self, n: int, starts: dict[PartitionKey, int]) -> _Sequence:
        self._hold(starts)
        return _Sequence(n, starts, self._clock.monotonic_ms(), read=dict(starts))

    def _plan(self, sequence: _Sequence) -> SlicePlan:
        """Report, and return what to read next."""
        if self._killed:
            raise _Ended("it was stopped")
        if self._clock.monotonic_ms() - self._held_ms >= RENEW_MS:
            self._hold(sequence.starts)
        reads = not self._is_due(sequence) and not self._gathers(sequence)
        plan = self._ask(sequence, self._wanted(sequence) if reads else NO_POSITIONS)
        if plan.closed and not plan.until and not self._is_read(sequence, plan):
            plan = self._ask(sequence, self._wanted(sequence))
        self._reader.streams |= plan.streams
        if new := plan.starts.keys() - sequence.starts.keys():
            added = {key: plan.starts[key] for key in new}
            sequence.starts |= added
            sequence.read |= added
            self._hold(sequence.starts)
        if self._draining and not plan.closed:
            raise _Ended("its worker drains")
        return plan

    def _gathers(self, sequence: _Sequence) -> bool:
        """Whether the last slice was small and has just begun: the events behind it wait for others."""
        return self._clock.monotonic_ms() < sequence.gathers_until_ms

    def _wanted(self, sequence: _Sequence) -> Positions:
        """Return where the next slice should end."""
        size = self._size
        return self._reader.wanted(sequence.read, size.bytes, size.events, bytes_most=size.bytes_most)

    def _ask(self, sequence: _Sequence, wanted: Positions) -> SlicePlan:
        self._reported_ms = self._clock.monotonic_ms()
        self._progress_ms = self._clock.wall_ms()
        return self._write(
            lambda tx: plan_slice(
                tx,
                self.id,
                self._room.instance,
                sequence.n,
                read=sequence.read,
                wanted=wanted,
                stats=self._stats(),
            )
        )

    def _is_read(self, sequence: _Sequence, plan: SlicePlan) -> bool:
        ends = plan.ends
        return ends is not None and all(sequence.read.get(key, -1) >= end for key, end in ends.items())

    def _is_due(self, sequence: _Sequence) -> bool:
        """Whether to publish what was read and to go on reading."""
        age_ms = self._spec.tuning.intermediate_handoff_ms
        old = age_ms is not None and self._clock.monotonic_ms() - sequence.begun_ms >= age_ms
        return (old and bool(sequence.slices)) or sequence.rows >= self._spec.tuning.max_rows_per_segment

    def _read_slice(self, sequence: _Sequence, plan: SlicePlan) -> None:
        """Read the events of the plan into Parquet files, and advance."""
        began_ms = self._clock.monotonic_ms()
        starts = {key: sequence.read[key] for key in plan.until}
        groups = self._reader.slices(starts, plan.until)
        seen = Observation()
        events = self._frames.read(groups)
        window = self._order.group
        typed = self._frames.typed(
            events,
            min_ms=window.min_ms,
            max_ms=window.max_ms,
            early_ms=self._spec.io.early_message_rejection_ms or 0,
            counts=seen,
        )
        written = self._room.tables.write_scratch(self._frames.rolled_up(typed), self.id)
        rows = sum(each.rows for each in written)
        now_ms = self._clock.monotonic_ms()
        took_ms = max(now_ms - began_ms, 1)
        size_bytes = sum(end - starts[key] for key, end in plan.until.items())
        counts = seen.get
        read = {**counts, "processed_bytes": size_bytes}
        self._meter.add_slice(now_ms, took_ms, read)
        self._log.add_slice(read)
        sequence.slices += [each.path for each in written]
        sequence.rows += rows
        sequence.read |= plan.until
        if counts["unparseable"]:
            for key, end in plan.until.items():
                first, _ = sequence.unparseable.get(key, (starts[key], end))
                sequence.unparseable[key] = first, end
            self._note_unparseable(events)
        if self._size.is_small(size_bytes, sum(counts.values())):
            sequence.gathers_until_ms = began_ms + SLICE_MS
        self._size.note(took_ms, size_bytes=size_bytes, events=counts["processed"], rows=rows)

    def _note_unparseable(self, events: DataFrame) -> None:
        tuning = self._spec.tuning
        if tuning.max_saved_parse_exceptions:
            self._meter.add_samples(self._frames.unparseable(events, tuning.max_saved_parse_exceptions))
        limit = tuning.max_parse_exceptions
        if limit is not None and self._meter.unparseable > limit:
            raise InvalidArgument(
                what="events",
                value=str(self._meter.unparseable),
                reason=f"more than max_parse_exceptions ({limit}) cannot be parsed; see the task's samples",
            )

    def _publish(self, sequence: _Sequence, plan: SlicePlan) -> None:
        """Publish a sequence that was read to its ends, unless another replica did; then its files go."""
        if plan.state is not SequenceState.PUBLISHED:
            files = self._merge(sequence)
            self._log.end_slices()
            written = self._write_unparseable(sequence)
            try:
                published = self._commit(sequence, files, written)
            except (
                _Ended,
                TaskFenced,
                InvalidArgument,
            ):  # before COMMIT; after another error they may be published
                self._drop(files, written)
                raise
            if not published:
                self._drop(files, written)
        self._room.tables.delete(sequence.slices)

    def _drop(self, files: Sequence[WrittenFile], written: list[TaskOutput]) -> None:
        """Delete what was certainly not published."""
        self._room.tables.delete(each.path for each in files)
        abort(self._room.directory, written)

    def _write_unparseable(self, sequence: _Sequence) -> list[TaskOutput]:
        """Write what is no row for the stream of these events. Reads the slices again: few sequences have any."""
        if self._spec.tuning.unparseable_stream is None or not sequence.unparseable:
            return []
        starts = {key: start for key, (start, _) in sequence.unparseable.items()}
        until = {key: end for key, (_, end) in sequence.unparseable.items()}
        rows = self._frames.unparseable_events(self._reader.slices(starts, until))
        events = UnparseableEvents(self._spec.id, self._spec.schema.datasource)
        return write_unparseable(rows, events, self._room.directory.files)

    def _merge(self, sequence: _Sequence) -> Sequence[WrittenFile]:
        """Write the rows of all slices into files of the table.

        A slice that was lost fails the job, which names it.
        """
        schema = self._spec.schema
        if not sequence.rows:
            return []
        rows = self._room.tables.read(self._room.spark, self._frames.columns, sequence.slices)
        files = self._room.tables.write(
            self._frames.by_interval(rows),
            schema.datasource,
            self._spec.tuning.max_rows_per_segment,
        )
        self._meter.add_rows(sum(each.rows for each in files))
        return files

    def _commit(self, sequence: _Sequence, files: Sequence[WrittenFile], written: list[TaskOutput]) -> bool:
        """Return whether these files were published; False if a replica's were. Raises InvalidArgument.

        written: the unparseable events, which the same transaction appends.
        """
        waits = False
        while True:
            if self._killed:
                raise _Ended("it was stopped")
            self._progress_ms = self._clock.wall_ms()
            outcome = self._publish_once(sequence, files, written)
            if outcome is PublishOutcome.PUBLISHED:
                return True
            if outcome is PublishOutcome.ALREADY:
                return False
            if outcome is PublishOutcome.MISMATCH:
                raise InvalidArgument(
                    what="sequence",
                    value=f"{self._order.task.base}/{sequence.n}",
                    reason="it does not begin at the committed offsets, or its files are too old; it is read again",
                )
            if not waits:
                waits = True
                self._log.add(f"sequence {sequence.n} waits until what lies before it is published")
            self._sleep(REPORT_MS)

    def _publish_once(
        self, sequence: _Sequence, files: Sequence[WrittenFile], written: list[TaskOutput]
    ) -> PublishOutcome:
        """Move the offsets, and in their transaction the pointer of the table; append what is no row."""
        stream = self._spec.tuning.unparseable_stream
        outputs = {stream: written} if stream is not None and written else {}

        def decide(tx: Tx, _: Mapping[str, int]) -> tuple[bool, PublishOutcome]:
            outcome = publish(tx, self.id, self._room.instance, sequence.n, stats=self._stats())
            if outcome is PublishOutcome.PUBLISHED:
                rows = sum(each.rows for each in files)
                log_now(
                    tx, self.id, f"published sequence {sequence.n}: {rows:,} rows in {len(files):,} files"
                )
            elif outcome is PublishOutcome.ALREADY:
                log_now(tx, self.id, f"a replica published sequence {sequence.n} first")
            return outcome is PublishOutcome.PUBLISHED, outcome

        def run(step: Callable[[Tx], PublishOutcome | None]) -> PublishOutcome | None:
            logged = partial(self._log.write, step=step)  # what waits comes first
            if not files:
                return self._room.directory.write(logged)
            return self._with_table(logged, sequence, files)

        return append_if(self._room.directory, outputs, decide, run)

    def _with_table(
        self,
        step: Callable[[Tx], PublishOutcome | None],
        sequence: _Sequence,
        files: Sequence[WrittenFile],
    ) -> PublishOutcome | None:
        """Run a step in the transaction that moves the pointer of the table, which moves if the step publishes."""

        def together(tx: Tx) -> PublishOutcome | None:
            outcome = step(tx)
            return None if outcome is PublishOutcome.PUBLISHED else outcome or PublishOutcome.RETRY

        schema = self._spec.schema
        columns = to_arrow_schema(self._frames.columns, timezone="UTC")
        note = {
            "eventproc.supervisor": self._spec.id,
            "eventproc.sequence": f"{self._order.task.base}/{sequence.n}",
        }
        paths = [each.path for each in files]
        try:
            declined = self._room.tables.tables.append(
                schema.datasource, columns, partitioning(schema), paths, together=together, note=note
            )
        except TableBusy:  # nothing changed, and what was read would be read again
            return PublishOutcome.RETRY
        return PublishOutcome.PUBLISHED if declined is None else cast("PublishOutcome", declined)

    def _wait(self, sequence: _Sequence) -> None:
        """Return when there are new events to read, after a wake-up, or when a report is due."""
        until_ms = self._clock.monotonic_ms() + REPORT_MS
        while self._clock.monotonic_ms() < until_ms and not self._sleep(LOOK_MS):
            if not self._gathers(sequence) and self._reader.wanted(sequence.read, LEAST_BYTES, 1):
                return

    def _sleep(self, limit_ms: int) -> bool:
        """Sleep until a wake-up, and return whether there was one."""
        woken = self._wake.wait(limit_ms / 1000)
        self._wake.clear()
        return woken

    def _hold(self, starts: dict[PartitionKey, int]) -> None:
        self._held_ms = self._clock.monotonic_ms()
        self._reader.hold(self._group, starts, self._clock.wall_ms() + HOLD_MS)

    def _write(self, step: Callable[[Tx], T]) -> T:
        return self._room.directory.write(lambda tx: self._log.write(tx, step))

    def _stats(self) -> TaskStats:
        return attrs.evolve(self._meter.stats(self._clock.monotonic_ms()), progress_ms=self._progress_ms)


def _described(why: BaseException) -> str:
    """Return the first lines of an error: those of Spark have hundreds."""
    lines = [line for line in str(why).splitlines() if line.strip()]
    return f"{type(why).__name__}: {' '.join(lines[:3])}"[:1000]
