"""The worker: a process with one Spark driver that runs the tasks of ingestion supervisors.

It claims waiting tasks, at most as many as it has slots, and runs each on a thread with a FAIR pool of its own. If it
dies, the lock of its instance is free, and the supervisors replace its tasks. If its driver ends, the worker gives its
tasks back and ends too: a process starts one JVM only.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

import eventproc.spark
from eventproc.ingestion import SupervisorSpec
from eventproc.ingestion.table_schema import shortest_times
from eventproc.spark.ingestion.files import TableFiles
from eventproc.spark.ingestion.rows import SESSION
from eventproc.spark.ingestion.tables import Tables
from eventproc.spark.ingestion.task import TaskRun, WorkerRoom
from eventproc.spark.job_groups import cancel_jobs, is_loss, use_every_core, why_ended
from eventproc.spark.option_names import spark_address
from eventproc.spark.planner_directory import PlannerDirectory
from eventproc.store.address import StoreAddress
from eventproc.store.database import Tx
from eventproc.store.ingestion import (
    WATCH_INGESTION,
    TaskOrder,
    claim_tasks,
    finish_task,
    forget_worker,
    get_spec_text,
    keep_worker,
    own_tasks,
    read_workers,
    register_worker,
)
from eventproc.store.ingestion.logs import forget_old_logs
from eventproc.store.model.errors import Corrupt, EventprocError, Rejected, Retryable
from eventproc.store.model.ingestion_errors import InvalidSpec, SparkEnded

LOG: Final = logging.getLogger("eventproc.ingestion")

LOOK_MS: Final = 1_000
"""Pause between two looks at the tasks without a wake-up: ended runs leave their slots then."""

SWEEP_MS: Final = 60_000
"""Pause between two sweeps of files, and between two heartbeats of the worker, which cost a transaction. Higher:
`eventproc ingest workers` shows an older time for a worker that died."""

COMPACT_MS: Final = 3_600_000
"""Pause between two looks for intervals that are to be compacted. Each reads the metadata of the tables."""

COMPACTION: Final = "eventproc compaction"
"""Job group of compactions."""

SETTINGS: Final = {
    **SESSION,
    "spark.scheduler.mode": "FAIR",
    "spark.sql.adaptive.enabled": "false",
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}
"""Settings of a worker's session, beside those of `session`. The last two make a small slice cheaper: no second
planning between the stages of a job (30 ms), and no search for the caller's line in each expression (30 ms)."""


class IngestionWorker:
    """Runs tasks until it is stopped. Used by one thread.

    slots: tasks that run simultaneously.
    """

    def __init__(self, path: str | Path, *, slots: int = 2, master: str = "local[*]") -> None:
        self._address = spark_address(path)
        self._slots = slots
        self._master = master
        self._changed = threading.Event()
        self._stopping = threading.Event()
        self._runs: dict[str, TaskRun] = {}
        self._compaction: threading.Thread | None = None

    def stop(self) -> None:
        """Begin to drain: tasks stop at the border of a slice; a closed sequence is published first. Any thread."""
        self._stopping.set()
        self._changed.set()

    def run(self) -> None:
        """Run tasks until `stop`.

        Raises SparkEnded if the JVM dies or the SparkContext is stopped; StoreMissing, StoreUnusable; NotSupported
        without Java, or if the store has no place for files.
        """
        # It notes the end of each thread's connection, and each call of a JVM that has ended with its stack.
        logging.getLogger("py4j").setLevel(logging.CRITICAL)
        try:
            self._run()
        except Exception as why:
            if is_loss(why):  # the JVM ended before the worker was registered
                raise SparkEnded(worker=f"of process {os.getpid()}", reason="its JVM has ended") from why
            raise

    def _run(self) -> None:
        with PlannerDirectory(self._address) as directory:
            TableFiles(directory)  # it may be refused, which should not take a JVM's start
        spark = eventproc.spark.session(master=self._master, conf=SETTINGS)
        try:
            # A task logs its own failure. What Spark says of the cancelled jobs of a stopped task would look like one.
            spark.sparkContext.setLogLevel("FATAL")
            with PlannerDirectory(self._address) as directory:
                self._serve(WorkerRoom(spark, directory, TableFiles(directory)))
        finally:
            try:
                spark.stop()
            except Exception as why:
                if not is_loss(why):
                    raise

    def _serve(self, room: WorkerRoom) -> None:
        directory = room.directory
        self._register(room)
        watching = self._watch(directory)
        LOG.info("worker %s runs up to %d tasks", room.instance, self._slots)
        swept_ms, compacted_ms = -SWEEP_MS, -COMPACT_MS
        failure: str | None = None
        try:
            while not self._stopping.is_set():
                self._changed.clear()
                try:
                    self._reconcile(room)
                    now_ms = directory.db.clock.monotonic_ms()
                    if now_ms - swept_ms >= SWEEP_MS:
                        swept_ms = now_ms
                        directory.write(partial(_keep, instance=room.instance))
                        self._sweep(room)
                    if now_ms - compacted_ms >= COMPACT_MS:
                        compacted_ms = now_ms
                        self._compact(room)
                except (Retryable, OSError) as why:
                    LOG.warning("worker %s tries again later: %s", room.instance, why)
                self._changed.wait(LOOK_MS / 1000)
            self._drain()
        except SparkEnded as why:
            failure = str(why)
            raise
        finally:
            watching.cancel()
            for run in self._runs.values():
                run.kill()
            for run in self._runs.values():
                run.join()
            if self._compaction is not None:
                cancel_jobs(room.spark.sparkContext, COMPACTION)
                self._compaction.join()
            try:
                directory.write(partial(forget_worker, instance=room.instance, failure=failure))
            except Retryable as why:
                LOG.warning(
                    "worker %s failed to leave; its tasks are replaced as after a death: %s",
                    room.instance,
                    why,
                )

    def _sweep(self, room: WorkerRoom) -> None:
        """Sweep files. Tasks go on if it fails, as for a table that another engine changed in a way of its own."""
        try:
            room.tables.sweep(room.directory, room.directory.db.peers.is_alive)
        except (Rejected, Corrupt, ValueError) as why:
            LOG.warning("worker %s could not sweep the files of tables: %s", room.instance, why)

    def _register(self, room: WorkerRoom) -> None:
        room.directory.write(
            partial(
                register_worker,
                instance=room.instance,
                slots=self._slots,
                machine=socket.gethostname(),
                pid=os.getpid(),
            )
        )

    def _reconcile(self, room: WorkerRoom) -> None:
        """Stop runs whose task was stopped, drop those that ended, and fill the free slots. Raises SparkEnded."""
        if (reason := why_ended(room.spark.sparkContext)) is not None:  # waits while the JVM is suspended
            raise SparkEnded(worker=room.instance, reason=reason)
        use_every_core(room.spark)
        workers, tasks = room.directory.read(lambda tx: (read_workers(tx), own_tasks(tx, room.instance)))
        if all(each.instance != room.instance for each in workers):
            # On a server it counted as dead for as long as it was cut off.
            self._register(room)
        own = {each.task.id for each in tasks}
        for name, run in list(self._runs.items()):
            if run.finished:
                del self._runs[name]
            elif name not in own:
                run.kill()
            else:
                run.wake()
                run.keep()
        if (free := self._slots - len(self._runs)) > 0:
            for order, spec in room.directory.write(partial(self._claim, room=room, free=free)):
                self._runs[order.task.id] = run = TaskRun(order, spec, room)
                run.start()

    def _compact(self, room: WorkerRoom) -> None:
        """Compact intervals that are old enough, on a thread. Of all workers, the one that began first does it."""
        workers, ages = room.directory.read(
            lambda tx: (read_workers(tx), shortest_times(tx, lambda spec: spec.compact_after_ms))
        )
        running = self._compaction is not None and self._compaction.is_alive()
        alive = [each.instance for each in workers if room.directory.db.peers.is_alive(each.instance)]
        if ages and alive[:1] == [room.instance] and not running:
            run = partial(compact_old, room.spark, self._address, room.directory.db.clock.wall_ms(), ages)
            self._compaction = threading.Thread(target=run, name=COMPACTION, daemon=True)
            self._compaction.start()

    def _claim(self, tx: Tx, *, room: WorkerRoom, free: int) -> list[tuple[TaskOrder, SupervisorSpec]]:
        claimed: list[tuple[TaskOrder, SupervisorSpec]] = []
        for order in claim_tasks(tx, room.instance, free, room.directory.db.peers.is_alive):
            task = order.task
            try:
                spec = SupervisorSpec.parse(get_spec_text(tx, task.supervisor, order.group.version))
            except InvalidSpec as why:  # an earlier version of eventproc took it
                finish_task(tx, task.id, room.instance, error=str(why), stats=task.stats)
            else:
                claimed.append((order, spec))
        return claimed

    def _drain(self) -> None:
        for run in self._runs.values():
            run.drain()
        while self._runs:
            for name, run in list(self._runs.items()):
                run.join(LOOK_MS / 1000)
                run.keep()
                if run.finished:
                    del self._runs[name]

    def _watch(self, directory: PlannerDirectory) -> Future[None]:
        """Wake this worker whenever something of ingestion changes."""

        async def watch() -> None:
            with directory.db.subscribe([WATCH_INGESTION]) as changes:
                while True:
                    try:
                        await changes.wait()
                    except EventprocError:  # the directory was closed
                        self.stop()
                        return
                    self._changed.set()

        assert directory._loop is not None, "the directory is open"
        return directory._loop.start(watch)


def compact_old(spark: SparkSession, address: StoreAddress, now_ms: int, ages: Mapping[str, int]) -> None:
    """Compact the intervals of tables that ended so long ago, one table after the other. An error is logged.

    ages: in ms, by table.
    """
    spark.sparkContext.setJobGroup(COMPACTION, COMPACTION, interruptOnCancel=True)
    tables = Tables(spark, address)
    try:
        for name, age_ms in ages.items():
            try:
                done = tables.compact_ended(name, now_ms - age_ms)
            except Exception as why:
                LOG.warning("table %s was not compacted; the next worker that looks does it: %s", name, why)
            else:
                LOG.info("compacted %d files of table %s into %d", done.files_before, name, done.files_after)
    finally:
        tables.close()


def _keep(tx: Tx, instance: str) -> None:
    """Write a heartbeat, and forget old logs."""
    keep_worker(tx, instance)
    forget_old_logs(tx)
