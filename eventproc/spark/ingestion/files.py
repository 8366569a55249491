"""The files of tables: written by the tasks of a job under their final names; and the sweep of what is left behind.

A file's name says which instance may publish it. So a file without a row whose instance is dead is an orphan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from eventproc.ingestion.spec import Granularity
from eventproc.spark.ingestion.parquet import WrittenFile, read_parquet, write_parquet
from eventproc.spark.ingestion.rows import interval_end
from eventproc.spark.planner_directory import PlannerDirectory
from eventproc.store.ingestion import forget_dead_workers
from eventproc.store.ingestion.published import (
    SCRATCH,
    UNUSED_MS,
    PublishedFile,
    forget_unused,
    give_up,
    is_left_behind,
    known_paths,
    table_store,
)
from eventproc.store.model.errors import CorruptRecord
from eventproc.store.model.ingestion import NewFile

LIST_MS: Final = 3_600_000
"""Pause between two listings of objects. Lower: more requests; higher: what a dead process left stays for longer."""

SLICE_ROWS: Final = 1_000_000
"""Rows of a file that is not published yet, at most, because an object is put at once. Higher: more memory."""


class TableFiles:
    """The files of all tables of an open store, for its instance."""

    def __init__(self, directory: PlannerDirectory) -> None:
        """Raise NotSupported if the store has no place for files."""
        self.files = directory.read(table_store)
        self._instance = directory.db.instance_id
        self._synced = directory.synced
        self._listed_ms: int | None = None

    def find(self, files: Iterable[PublishedFile]) -> list[str]:
        """Return the paths of published files. Raises CorruptRecord for one that is missing.

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

    def write(self, rows: DataFrame, table: str, granularity: Granularity, rows_max: int) -> list[NewFile]:
        """Write table rows, which have their interval, into files of at most `rows_max` rows, and return them.

        Every file holds rows of one interval, and is durable. Raises OSError, Unreachable and Spark's errors; what
        tasks have put before is left to `sweep`.
        """
        found: list[NewFile] = []
        for each in self._write(rows, table, rows_max=rows_max, synced=self._synced):
            assert each.start_ms is not None, "the rows have their interval"
            assert each.min_ms is not None and each.max_ms is not None, "a row of a table has a time"
            end_ms = interval_end(each.start_ms, granularity)
            found.append(
                NewFile(
                    path=each.path,
                    start_ms=each.start_ms,
                    end_ms=end_ms,
                    rows=each.rows,
                    bytes=each.bytes,
                    min_ms=each.min_ms,
                    max_ms=each.max_ms,
                )
            )
        return found

    def write_scratch(self, rows: DataFrame, task: str) -> list[WrittenFile]:
        """Write rows that are not published yet, for a task. They go with `clear`. Raises as `write`."""
        return self._write(rows, f"{SCRATCH}/{task}", rows_max=SLICE_ROWS, synced=False)

    def clear(self, task: str) -> None:
        """Delete what a task has written and not published. Raises OSError, Unreachable."""
        self.delete(self.files.paths(f"{SCRATCH}/{task}"))

    def delete(self, paths: Iterable[str]) -> None:
        """Delete files that were certainly not published. Missing ones are ignored.

        If the outcome of a publication is unknown, leave the files to `sweep`.
        """
        for path in paths:
            self.files.delete(path)

    def _write(self, rows: DataFrame, folder: str, *, rows_max: int, synced: bool) -> list[WrittenFile]:
        if self.files.is_local:
            Path(self.files.place).mkdir(exist_ok=True)  # here: a task on another machine makes none
        return write_parquet(rows, self.files, folder, self._instance, rows_max=rows_max, synced=synced)

    def sweep(self, directory: PlannerDirectory, is_alive: Callable[[str], bool]) -> int:
        """Delete what no row names and nobody will publish; return how many files went, or will.

        Also forgets dead workers, and files that became unused UNUSED_MS ago. Objects are listed once an hour, 1,000 in
        each request.
        """
        directory.write(partial(forget_dead_workers, is_alive=is_alive))
        now_ms = directory.db.clock.wall_ms()
        unused = directory.write(partial(forget_unused, before_ms=now_ms - UNUSED_MS))
        self.delete(unused)
        if not self.files.is_local and self._listed_ms is not None and now_ms - self._listed_ms < LIST_MS:
            return len(unused)
        self._listed_ms = now_ms
        # An instance that dies after this listing published its files before, or never will.
        left = [each for each in self.files.paths() if is_left_behind(each, now_ms, is_alive)]
        known = directory.read(partial(known_paths, paths=left)) if left else set()
        lost = [each for each in left if each not in known]
        if self.files.is_local:
            self.delete(lost)
        elif lost:
            directory.write(partial(give_up, paths=lost))
        return len(unused) + len(lost)
