"""Published files of tables: what a query reads, and how files are replaced, dropped and forgotten.

A table is the set of its used files, at one moment: one read. A file that was replaced or dropped stays for a while
after it became unused, so that running queries can finish. Source: docs/design/spark-ingestion.md.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

import attrs

from eventproc.store.chunks.index import ABANDONED_MS, SINK_COMMIT_MS
from eventproc.store.clock import Clock, id_ms, new_id
from eventproc.store.database import Tx
from eventproc.store.file_store import PART_SUFFIX, FileStore, open_file_store
from eventproc.store.ingestion.notices import announce
from eventproc.store.model.argument_checks import INT_MAX, invalid_argument
from eventproc.store.model.errors import CorruptRecord, NotFound
from eventproc.store.model.ingestion import NewFile
from eventproc.store.model.ingestion_errors import TableChanged
from eventproc.store.segments.file_blobs import chunk_files
from eventproc.store.segments.holds import is_directory_held

TABLES_FOLDER: Final = "tables"
"""Folder, within a directory, of the published files and of what tasks have not published yet."""

SCRATCH: Final = "_tasks"
"""Folder, within that of tables, of what is not published yet: a folder for each task."""

SUFFIX: Final = ".parquet"

UNUSED_MS: Final = 3_600_000
"""How long an unused file stays. Longer lets longer queries finish; shorter frees the disk earlier."""

PUBLISH_MS: Final = SINK_COMMIT_MS
"""Age of a file up to which it may be published. The sweep takes older ones for left behind at ABANDONED_MS."""

PATHS_A_QUERY: Final = 500
"""Paths that one query looks up. Higher: longer statements."""

_WRITTEN: Final = re.compile(
    rf"[^/]+/[^/]+/([0-9a-f-]{{36}})_([0-9a-f-]{{36}}){re.escape(SUFFIX)}(?:{re.escape(PART_SUFFIX)})?"
)

_COLUMNS: Final = (
    "id, supervisor, datasource, start_ms, end_ms, version, partition, path, bytes, rows, min_ms, max_ms,"
    " sequence, created_ms, unused_ms"
)


@attrs.frozen
class PublishedFile:
    """A Parquet file of a table, whose rows all lie in the interval [start_ms, end_ms).

    version: grows when the interval is written again; the used files of an interval may have several, as those
    published behind a compaction or an overwriting do. path: relative to the folder of tables. min_ms, max_ms: times of
    its first and last row. sequence: what published it; "" for a file that replaced others. unused_ms: since when no
    query reads it; None while it is used.
    """

    id: int
    supervisor: str
    datasource: str
    start_ms: int
    end_ms: int
    version: str
    partition: int
    path: str
    bytes: int
    rows: int
    min_ms: int
    max_ms: int
    sequence: str
    created_ms: int
    unused_ms: int | None


@attrs.frozen
class TableSummary:
    """A table: its used files, their bytes and rows, and the first and the last time of a row."""

    name: str
    files: int
    bytes: int
    rows: int
    min_ms: int | None
    max_ms: int | None
    intervals: int


def table_store(tx: Tx) -> FileStore:
    """Return where the files of tables lie: in the directory, or beside the chunk files of a store on a server.

    Raises NotSupported in memory, and on a server without a place for files. One look-up.
    """
    directory = tx.directory()
    place = (
        f"{chunk_files(tx).place}/{TABLES_FOLDER}"
        if directory is None
        else (directory / TABLES_FOLDER).resolve()
    )
    return open_file_store(str(place))


def new_table_path(folder: str, instance: str, clock: Clock) -> str:
    """Return the path of a new file. It names the instance that may publish it, and its time."""
    return f"{folder}/{instance}_{new_id(clock)}{SUFFIX}"


def is_left_behind(path: str, now_ms: int, is_alive: Callable[[str], bool]) -> bool:
    """Return whether nobody should publish a file, because its instance has died or it is too old.

    It may be published already. A file that eventproc did not write is not left behind.
    """
    found = _WRITTEN.fullmatch(path)
    return found is not None and (not is_alive(found[1]) or now_ms - id_ms(found[2]) > ABANDONED_MS)


def may_publish(tx: Tx, files: Iterable[NewFile]) -> bool:
    """Return whether new files are still there: no sweep took them for left behind, and none is about to."""
    paths = [each.path for each in files]
    written = [id_ms(found[2]) for each in paths if (found := _WRITTEN.fullmatch(each))]
    return all(tx.now_ms - each <= PUBLISH_MS for each in written) and not known_paths(tx, paths)


def give_up(tx: Tx, paths: Iterable[str]) -> None:
    """Let nobody publish files that were left behind; those that were published stay. `forget_unused` deletes them.

    On a server an instance that counts as dead may come back under its id. So its files are not deleted as long as it
    may still publish them.
    """
    tx.executemany(
        "INSERT INTO published (supervisor, datasource, start_ms, end_ms, version, partition, path, bytes, rows,"
        " min_ms, max_ms, sequence, created_ms, unused_ms) VALUES ('', '', 0, 0, '', 0, ?, 0, 0, 0, 0, '', ?, ?)"
        " ON CONFLICT (path) DO NOTHING",
        [(path, tx.now_ms, tx.now_ms + ABANDONED_MS) for path in paths],
    )


def list_tables(tx: Tx) -> list[TableSummary]:
    """Return the tables that have used files, sorted by name. One query, which scans the published files."""
    rows = tx.execute(
        "SELECT datasource, count(*), sum(bytes), sum(rows), min(min_ms), max(max_ms), count(DISTINCT start_ms)"
        " FROM published WHERE unused_ms IS NULL GROUP BY datasource ORDER BY datasource"
    ).fetchall()
    return [TableSummary(*row) for row in rows]


def find_table(tx: Tx, name: str) -> TableSummary:
    """Return a table; an empty one if a supervisor writes to it and has not published yet. Raises NotFound."""
    row = tx.execute(
        "SELECT count(*), coalesce(sum(bytes), 0), coalesce(sum(rows), 0), min(min_ms), max(max_ms),"
        " count(DISTINCT start_ms) FROM published WHERE datasource = ? AND unused_ms IS NULL",
        (name,),
    ).fetchone()
    if not row[0] and tx.execute("SELECT 1 FROM published WHERE datasource = ?", (name,)).fetchone() is None:
        raise NotFound(kind="table", name=name)
    return TableSummary(name, *row)


def has_rows(tx: Tx, name: str) -> bool:
    """Return whether a table has used files. Cost: one query, which passes its unused files."""
    row = tx.execute(
        "SELECT 1 FROM published WHERE datasource = ? AND unused_ms IS NULL LIMIT 1", (name,)
    ).fetchone()
    return row is not None


def used_files(
    tx: Tx, name: str, start_ms: int | None = None, end_ms: int | None = None
) -> list[PublishedFile]:
    """Return the files that hold the rows of a table in [start_ms, end_ms), by interval, version and partition.

    None: unbounded. A file may also hold rows outside of the bounds. Cost: one query, a row per file.
    """
    rows = tx.execute(
        f"SELECT {_COLUMNS} FROM published WHERE datasource = ? AND unused_ms IS NULL"
        " AND max_ms >= ? AND min_ms < ? ORDER BY start_ms, version, partition",
        (name, *_bounds(start_ms, end_ms)),
    ).fetchall()
    return [PublishedFile(*row) for row in rows]


def table_version(tx: Tx, name: str) -> str:
    """Return the version of a table: what its used files are, as a text to compare. Cost: a row per file."""
    return _version_of(used_files(tx, name))


def files_of_version(tx: Tx, name: str, version: str) -> list[PublishedFile]:
    """Return the used files of a table that had this version, without those that were published since.

    Raises TableChanged if files were compacted, overwritten or dropped since; InvalidArgument for another text.
    """
    last, _, digest = version.partition("-")
    if not (last.isascii() and last.isdigit() and digest):
        raise invalid_argument("version", version, "it must be a text that table_version returned")
    used = used_files(tx, name)
    found = [each for each in used if each.id <= int(last)]
    # A file without a sequence replaced others, or was the first in an empty interval.
    if _version_of(found) != version or any(each.id > int(last) and not each.sequence for each in used):
        raise TableChanged(table=name)
    return found


def _version_of(files: Sequence[PublishedFile]) -> str:
    """Return the greatest id, which tells what is published later, and a digest: ids of forgotten files come again."""
    paths = "\n".join(sorted(each.path for each in files))
    return f"{max((each.id for each in files), default=0)}-{hashlib.sha256(paths.encode()).hexdigest()[:32]}"


def has_intervals_before(tx: Tx, name: str, before_ms: int) -> bool:
    """Return whether an interval of a table ends at or before a time. Cost: one look-up in the index by time."""
    row = tx.execute(
        "SELECT 1 FROM published WHERE datasource = ? AND start_ms < ? AND end_ms <= ? AND unused_ms IS NULL"
        " LIMIT 1",
        (name, before_ms, before_ms),
    ).fetchone()
    return row is not None


def newest_version(tx: Tx, name: str, start_ms: int) -> str | None:
    """Return the newest version of an interval, also if its files are not used any more; None without any."""
    row = tx.execute(
        "SELECT max(version) FROM published WHERE datasource = ? AND start_ms = ?", (name, start_ms)
    ).fetchone()
    return None if row[0] is None else str(row[0])


def version_text(number: int) -> str:
    """Return the version of that number. Versions sort as their numbers do."""
    return f"{number:012d}"


def replace_files(tx: Tx, name: str, old: Sequence[PublishedFile], new: Sequence[NewFile]) -> bool:
    """Make `new` files take the place of `old` ones of a table, in a new version of each interval.

    Files that were published meanwhile stay beside the new ones. Returns whether it did.

    False, and nothing changes, if one of the old files is not used any more, because another call was faster, or if a
    sweep took the new ones for left behind.
    """
    if not may_publish(tx, new):
        return False
    for used in old:
        row = tx.execute("SELECT unused_ms FROM published WHERE id = ?", (used.id,)).fetchone()
        if row is None or row[0] is not None:
            return False
    _set_unused(tx, [file.id for file in old])
    versions: dict[int, str] = {}
    partitions: dict[int, int] = {}
    for file in new:
        if file.start_ms not in versions:
            versions[file.start_ms] = version_text(int(newest_version(tx, name, file.start_ms) or 0) + 1)
        version = versions[file.start_ms]
        partition = partitions[file.start_ms] = partitions.get(file.start_ms, -1) + 1
        tx.execute(
            "INSERT INTO published (supervisor, datasource, start_ms, end_ms, version, partition, path, bytes, rows,"
            " min_ms, max_ms, sequence, created_ms) VALUES ('', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, '', ?)",
            (
                *(name, file.start_ms, file.end_ms, version, partition, file.path, file.bytes, file.rows),
                *(file.min_ms, file.max_ms, tx.now_ms),
            ),
        )
    announce(tx)
    return True


def _bounds(start_ms: int | None, end_ms: int | None) -> tuple[int, int]:
    """Return the bounds of an interval as numbers, for a comparison with times of rows."""
    return -INT_MAX if start_ms is None else start_ms, INT_MAX if end_ms is None else end_ms


def drop_files(tx: Tx, name: str, start_ms: int | None = None, end_ms: int | None = None) -> int:
    """Remove the intervals that lie within [start_ms, end_ms) from a table; return how many files held them.

    An interval that reaches beyond the bounds stays. None: unbounded.
    """
    rows = tx.execute(
        "SELECT id FROM published WHERE datasource = ? AND unused_ms IS NULL AND start_ms >= ? AND end_ms <= ?",
        (name, *_bounds(start_ms, end_ms)),
    ).fetchall()
    _set_unused(tx, [row[0] for row in rows])
    if rows:
        announce(tx)
    return len(rows)


def forget_unused(tx: Tx, *, before_ms: int) -> list[str]:
    """Delete the rows of files that became unused before a time, and return the paths of the files to delete.

    None while a backup copies the files of its snapshot.
    """
    if is_directory_held(tx):
        return []
    rows = tx.execute("SELECT path FROM published WHERE unused_ms < ? ORDER BY id", (before_ms,)).fetchall()
    tx.execute("DELETE FROM published WHERE unused_ms < ?", (before_ms,))
    return [row[0] for row in rows]


def table_files(tx: Tx) -> list[tuple[str, int]]:
    """Return path and bytes of the used files of all tables. Raises CorruptRecord for a path outside the folder."""
    found = tx.execute("SELECT path, bytes FROM published WHERE unused_ms IS NULL ORDER BY id").fetchall()
    for path, _ in found:
        if Path(path).is_absolute() or ".." in Path(path).parts:
            raise CorruptRecord(key=f"published file {path}", reason="its path leaves the folder of tables")
    return found


def known_paths(tx: Tx, paths: Iterable[str]) -> set[str]:
    """Return those of the paths that have a row. One query per PATHS_A_QUERY paths."""
    found: set[str] = set()
    every = list(paths)
    for begin in range(0, len(every), PATHS_A_QUERY):
        some = every[begin : begin + PATHS_A_QUERY]
        marks = ", ".join("?" * len(some))
        rows = tx.execute(f"SELECT path FROM published WHERE path IN ({marks})", some).fetchall()
        found.update(str(path) for (path,) in rows)
    return found


def _set_unused(tx: Tx, ids: Iterable[int]) -> None:
    tx.executemany("UPDATE published SET unused_ms = ? WHERE id = ?", [(tx.now_ms, each) for each in ids])
