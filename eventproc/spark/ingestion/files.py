"""The files of tables: written by the tasks of a job under their final names; and the sweep of what is left behind.

A file's name says which instance may publish it. So a file that no table names and whose instance is dead is an orphan.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from eventproc.ingestion.intervals import lies_within
from eventproc.ingestion.table_schema import shortest_times, table_schema
from eventproc.spark.ingestion.parquet import WrittenFile, read_parquet, write_parquet
from eventproc.spark.planner_directory import PlannerDirectory
from eventproc.store.ingestion import forget_dead_workers
from eventproc.store.ingestion.iceberg import StoreTables, open_tables
from eventproc.store.ingestion.table_paths import SCRATCH
from eventproc.store.model.errors import CorruptRecord, EventprocError
from eventproc.store.model.ingestion import TableFile

LOG: Final = logging.getLogger("eventproc.ingestion")

LIST_MS: Final = 3_600_000
"""Pause between two sweeps of the files of tables. Lower: more reads of their metadata, and more requests; higher: what
a dead process left, or a compaction replaced, stays for longer."""

SLICE_ROWS: Final = 1_000_000
"""Rows of a file that is not published yet, at most, because an object is put at once. Higher: more memory."""


class TableFiles:
    """The files of all tables of an open store, for its instance.

    tables: what they are files of.
    """

    def __init__(self, directory: PlannerDirectory) -> None:
        """Raise NotSupported if the store has no place for files."""
        self.tables: StoreTables = open_tables(directory, directory.db)
        self.files = self.tables.files
        self._instance = directory.db.instance_id
        self._synced = directory.synced
        self._swept_ms: int | None = None

    def find(self, files: Iterable[TableFile]) -> list[str]:
        """Return the paths of files of a table. Raises CorruptRecord for one that is missing.

        An object that is missing fails the job that reads it: asking for each would take a request.
        """
        paths = [each.path for each in files]
        for path in paths if self.files.is_local else ():
            if self.files.size(path) is None:
                reason = f"there is no file {self.files.show(path)}"
                raise CorruptRecord(key=f"published file {path}", reason=reason)
        return paths

    def read(self, session: SparkSession, columns: StructType, paths: Sequence[str]) -> DataFrame:
        """Return the rows of files. One that is missing fails the job, whatever the session says."""
        return read_parquet(session, columns, self.files, paths)

    def write(self, rows: DataFrame, table: str, rows_max: int) -> list[WrittenFile]:
        """Write table rows, which have their interval, into files of at most `rows_max` rows, and return them.

        Every file holds rows of one interval, and is durable. Raises OSError, Unreachable and Spark's errors; what
        tasks have put before is left to `sweep`.
        """
        return self._write(rows, table, rows_max=rows_max, synced=self._synced)

    def write_scratch(self, rows: DataFrame, task: str) -> list[WrittenFile]:
        """Write rows that are not published yet, for a task. They go with `clear`. Raises as `write`."""
        return self._write(rows, f"{SCRATCH}/{task}", rows_max=SLICE_ROWS, synced=False)

    def clear(self, task: str) -> None:
        """Delete what a task has written and not published. Never raises, as `delete`."""
        self.delete(self.files.paths(f"{SCRATCH}/{task}"))

    def delete(self, paths: Iterable[str]) -> None:
        """Delete files that were certainly not published. Missing ones are ignored.

        A failure is logged, and leaves the rest to `sweep`: it changes nothing of what the caller has done. If the
        outcome of a publication is unknown, leave the files to `sweep`, too.
        """
        try:
            for path in paths:
                self.files.delete(path)
        except (EventprocError, OSError) as why:
            LOG.warning("files that nothing names were left to the sweep: %s", why)

    def _write(self, rows: DataFrame, folder: str, *, rows_max: int, synced: bool) -> list[WrittenFile]:
        if self.files.is_local:
            Path(self.files.place).mkdir(exist_ok=True)  # here: a task on another machine makes none
        return write_parquet(rows, self.files, folder, self._instance, rows_max=rows_max, synced=synced)

    def sweep(self, directory: PlannerDirectory, is_alive: Callable[[str], bool]) -> int:
        """Delete what no table names and nobody will publish; return how many files went.

        Also forgets dead workers, and once an hour drops what is older than the retention of its table.
        """
        directory.write(partial(forget_dead_workers, is_alive=is_alive))
        now_ms = directory.db.clock.wall_ms()
        # A clock that was set back must not put the sweep off.
        if self._swept_ms is not None and 0 <= now_ms - self._swept_ms < LIST_MS:
            return self.tables.sweep(is_alive, SCRATCH) if self.files.is_local else 0
        self._swept_ms = now_ms
        self.tables.relocate()
        retentions = directory.read(lambda tx: shortest_times(tx, lambda spec: spec.retention_ms))
        for name, retention_ms in retentions.items():
            try:
                granularity = directory.read(partial(table_schema, name=name)).segment_granularity
                is_old = partial(
                    lies_within, granularity=granularity, start_ms=None, end_ms=now_ms - retention_ms
                )
                self.tables.drop(name, is_old)
            except (EventprocError, OSError, ValueError) as why:  # other tables do not wait for it
                LOG.warning("rows of table %s that are too old were not dropped: %s", name, why)
        return self.tables.sweep(is_alive)
