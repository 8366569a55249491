"""Parquet files of tables: written by a job under temporary names, synced, renamed; and the sweep of what is left.

A file's name begins with the instance that wrote it. So a file without a row whose instance is dead is an orphan: a
process died between the rename and the commit that would have published it.
"""

from __future__ import annotations

import errno
import re
import shutil
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

import pyarrow.compute as pc
import pyarrow.parquet
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from eventproc.ingestion.spec import Granularity
from eventproc.spark.ingestion.rows import INTERVAL, TIME, interval_end
from eventproc.spark.planner_directory import PlannerDirectory
from eventproc.store.clock import SystemClock, new_id
from eventproc.store.database import FileWork
from eventproc.store.file_store import LocalFiles
from eventproc.store.ingestion import forget_dead_workers
from eventproc.store.ingestion.published import (
    TABLES_FOLDER,
    UNUSED_MS,
    PublishedFile,
    forget_unused,
    known_paths,
)
from eventproc.store.model.errors import CorruptRecord
from eventproc.store.model.ingestion import NewFile

SCRATCH: Final = "_tasks"
"""Folder, within that of tables, of what is not published yet: a folder for each instance."""

SUFFIX: Final = ".parquet"


class TableFolder:
    """The folder of all tables of an open directory, for its instance."""

    def __init__(self, directory: PlannerDirectory) -> None:
        """Raise NotSupported if it is a store on a server."""
        self.home = directory.db.directory_for(FileWork.TABLES).resolve() / TABLES_FOLDER
        self._instance = directory.db.instance_id
        self._synced = directory.synced

    def scratch(self, *names: str) -> Path:
        """Return a folder for unpublished files."""
        return self.home.joinpath(SCRATCH, self._instance, *names)

    def paths_of(self, files: Iterable[PublishedFile]) -> list[Path]:
        """Return the absolute paths of published files. Raises CorruptRecord for one that is missing."""
        paths: list[Path] = []
        for each in files:
            path = self.home / each.path
            if not path.is_file():
                raise CorruptRecord(key=f"published file {each.path}", reason=f"there is no file {path}")
            paths.append(path)
        return paths

    def write(
        self, rows: DataFrame, table: str, granularity: Granularity, rows_max: int, *, is_empty: bool = False
    ) -> list[NewFile]:
        """Write table rows, which have their interval, into files of at most `rows_max` rows, and return them.

        Every file holds rows of one interval, and is durable. If the call fails, it leaves no file under a final
        name. is_empty: there are no rows; otherwise it is an error if the job left no file.
        Raises FileNotFoundError, OSError and Spark's errors.
        """
        folder = self.scratch(f"write-{new_id(SystemClock())}")
        moved: list[NewFile] = []
        try:
            writing = rows.write.option("maxRecordsPerFile", rows_max).option("compression", "snappy")
            writing.partitionBy(INTERVAL).parquet(local_uri(folder))
            for part in [] if is_empty else _written(folder, f"{INTERVAL}=*/*{SUFFIX}"):
                start_ms = int(part.parent.name.partition("=")[2])
                moved.append(self._move(part, table, start_ms, interval_end(start_ms, granularity)))
        except BaseException:
            self.delete(moved)
            raise
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return moved

    def delete(self, files: Iterable[NewFile]) -> None:
        """Delete files that were certainly not published. Missing ones are ignored.

        If the outcome of a publication is unknown, leave the files to `sweep`.
        """
        for file in files:
            (self.home / file.path).unlink(missing_ok=True)

    def _move(self, part: Path, table: str, start_ms: int, end_ms: int) -> NewFile:
        times = pyarrow.parquet.read_table(part, columns=[TIME]).column(TIME)
        bounds = pc.call_function("min_max", [times]).as_py()
        path = f"{table}/{start_ms}/{self._instance}_{new_id(SystemClock())}{SUFFIX}"
        final = self.home / path
        final.parent.mkdir(parents=True, exist_ok=True)
        part.replace(final)
        if self._synced:
            LocalFiles(self.home).sync(str(final.relative_to(self.home)))
        return NewFile(
            path=path,
            start_ms=start_ms,
            end_ms=end_ms,
            rows=len(times),
            bytes=final.stat().st_size,
            min_ms=_ms(bounds["min"]),
            max_ms=_ms(bounds["max"]),
        )


def local_uri(path: Path) -> str:
    """Return an absolute path as Spark must write to it: without the scheme, its default file system takes it."""
    return f"file:{path}"


def read_files(session: SparkSession, columns: StructType, paths: Iterable[Path]) -> DataFrame:
    """Return the rows of Parquet files, or of folders of them. One that is missing fails, whatever the session says."""
    reader = session.read.schema(columns).options(ignoreMissingFiles="false", ignoreCorruptFiles="false")
    # Spark takes the paths that it reads as patterns.
    return reader.parquet(*(re.sub(r"[{}\[\]*?\\]", r"\\\g<0>", local_uri(each)) for each in paths))


def rows_of(folder: Path) -> int:
    """Return the rows in the Parquet files of a folder that a job wrote. Cost: a read of the end of each file.

    Raises FileNotFoundError if there is no folder or no file: a job without rows leaves a file, too.
    """
    return sum(pyarrow.parquet.read_metadata(each).num_rows for each in _written(folder, f"*{SUFFIX}"))


def _written(folder: Path, pattern: str) -> list[Path]:
    found = sorted(folder.glob(pattern))
    if not found:
        raise FileNotFoundError(errno.ENOENT, "a job of Spark left no file in this folder", str(folder))
    return found


def sweep(directory: PlannerDirectory, home: Path, is_alive: Callable[[str], bool]) -> int:
    """Delete what no row names and no living process will publish; return how many files went.

    home: the folder of tables. Also forgets dead workers, and files that became unused UNUSED_MS ago.
    """
    count = 0
    directory.write(partial(forget_dead_workers, is_alive=is_alive))
    for folder in _folders(home / SCRATCH):
        if not is_alive(folder.name):
            count += sum(1 for each in folder.rglob(f"*{SUFFIX}") if each.is_file())
            shutil.rmtree(folder, ignore_errors=True)
    now_ms = directory.db.clock.wall_ms()
    for path in directory.write(partial(forget_unused, before_ms=now_ms - UNUSED_MS)):
        (home / path).unlink(missing_ok=True)
        count += 1
    for table in _folders(home):
        if table.name == SCRATCH:
            continue
        for interval in _folders(table):
            # An instance that dies after this listing published its files before, or never will.
            lost = [each for each in interval.glob(f"*{SUFFIX}") if not is_alive(each.name.partition("_")[0])]
            names = [str(each.relative_to(home)) for each in lost]
            known = directory.read(partial(known_paths, paths=names)) if names else set()
            for each, name in zip(lost, names, strict=True):
                if name not in known:
                    each.unlink(missing_ok=True)
                    count += 1
            with suppress(OSError):  # it holds files
                interval.rmdir()
    return count


def _folders(home: Path) -> list[Path]:
    try:
        return sorted(each for each in home.iterdir() if each.is_dir())
    except FileNotFoundError:
        return []


def _ms(time: object) -> int:
    from datetime import UTC, datetime

    assert isinstance(time, datetime), f"{time!r} is not a time"
    aware = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    return int(aware.timestamp() * 1000)
