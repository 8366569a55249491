"""Facts of the database, and what `doctor` counts in it: tables, pages, extents, blobs and their chunk files.

A store on a server has the same tables, and no pages to check: the server checks them when it reads them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

import attrs

from eventproc.store.database import Tx
from eventproc.store.database.files import UNREADABLE
from eventproc.store.model.errors import CorruptRecord

PAGES_MAX: Final = 4_294_967_294
"""Most pages that SQLite allows: without a limit of `limit_pages`."""

TableColumns = Mapping[tuple[str, str], tuple[str, ...]]
"""From (kind, name) of a table: its columns with their types. Of an index: the columns that it covers."""


@attrs.frozen
class DatabaseVersions:
    """What made the file. schema: number of the last migration that ran. journal_mode: "wal" in a directory."""

    sqlite: str
    schema: int
    journal_mode: str


@attrs.frozen
class BlobCounts:
    """How many rows hold events, and how many of them are inconsistent.

    extents, blobs: all rows.
    extents_without_blob, staged_without_blob: rows of committed and of staged events whose bytes were not found.
    unused_blobs: blobs to which no row refers.
    """

    extents: int
    blobs: int
    extents_without_blob: int
    staged_without_blob: int
    unused_blobs: int


@attrs.frozen
class DataFile:
    """A file that holds the only copy of something: events, or rows of a table.

    path: relative to the folder of chunks, or of tables. checksum: CRC-32.
    """

    path: str
    bytes: int
    checksum: int

    @property
    def is_inside(self) -> bool:
        """Whether the path stays within the folder."""
        return not Path(self.path).is_absolute() and ".." not in Path(self.path).parts


def database_versions(tx: Tx) -> DatabaseVersions:
    """Return the versions of SQLite and of the schema, and the journal mode."""
    return DatabaseVersions(
        sqlite=str(_one(tx, "SELECT sqlite_version()")),
        schema=_count(tx, "PRAGMA user_version"),
        journal_mode=str(_one(tx, "PRAGMA journal_mode")),
    )


def table_columns(tx: Tx, *, except_prefix: str) -> TableColumns:
    """Return the tables and indexes of the database, except those of SQLite and those that begin with a prefix."""
    if tx.on_server:
        return _server_columns(tx)
    found = tx.execute("SELECT type, name, tbl_name FROM sqlite_master ORDER BY name").fetchall()
    return {
        (str(kind), str(name)): tuple(_columns(tx, str(kind), str(name)))
        for kind, name, table in found
        if not str(table).startswith(("sqlite_", except_prefix)) and not str(name).startswith("sqlite_")
    }


def count_blobs(tx: Tx) -> BlobCounts:
    """Count extents and blobs, and those that do not fit together. Cost: reads both indexes once."""
    without_blob = (
        "SELECT count(*) FROM {0} WHERE place IS NOT NULL"
        " AND NOT EXISTS (SELECT 1 FROM blob WHERE blob.id = {0}.place)"
    )
    return BlobCounts(
        extents=_count(tx, "SELECT count(*) FROM extent"),
        blobs=_count(tx, "SELECT count(*) FROM blob"),
        extents_without_blob=_count(tx, without_blob.format("extent")),
        staged_without_blob=_count(tx, without_blob.format("staged")),
        unused_blobs=_count(
            tx,
            "SELECT count(*) FROM blob WHERE NOT EXISTS (SELECT 1 FROM extent WHERE extent.place = blob.id)"
            " AND NOT EXISTS (SELECT 1 FROM staged WHERE staged.place = blob.id)",
        ),
    )


def event_files(tx: Tx) -> list[DataFile]:
    """Return the chunk files that hold the only copy of events. Raises CorruptRecord for a path outside the folder."""
    rows = tx.execute(
        "SELECT path, bytes, checksum FROM chunk WHERE EXISTS (SELECT 1 FROM blob WHERE blob.chunk = chunk.id)"
        " ORDER BY id"
    ).fetchall()
    found = [DataFile(str(path), int(size), int(checksum)) for path, size, checksum in rows]
    for each in found:
        if not each.is_inside:
            raise CorruptRecord(key=f"chunk file {each.path}", reason="its path leaves the chunks folder")
    return found


def check_all_pages(tx: Tx) -> list[str]:
    """Return up to ten messages of SQLite about damaged pages, rows and indexes; empty if it finds none.

    Cost: reads every page, and compares every row with its indexes. Raises sqlite3.DatabaseError for a file in which
    SQLite cannot even read the schema.
    """
    found = ["ok"] if tx.on_server else [str(row[0]) for row in tx.execute("PRAGMA integrity_check(10)")]
    return [] if found == ["ok"] else found


def read_all_texts(tx: Tx) -> list[str]:
    """Return the tables and columns with a text that cannot be read. Cost: reads every text."""
    found: list[str] = []
    if tx.on_server:  # it refuses damaged texts
        return found
    for (table,) in tx.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
        names = [name for name, of_type in _column_types(tx, str(table)) if of_type == "TEXT"]
        for name in names:
            try:
                for _ in tx.execute(f'SELECT "{name}" FROM "{table}"'):
                    pass
            except UNREADABLE as why:
                found.append(f"a text in the column {name} of the table {table} is damaged ({why})")
    return found


def database_bytes(tx: Tx) -> int:
    """Return the size of the database, without its log."""
    if tx.on_server:
        sizes = "SELECT sum(pg_total_relation_size(oid)) FROM pg_class"
        return _count(tx, f"{sizes} WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace")
    return _count(tx, "PRAGMA page_count") * _count(tx, "PRAGMA page_size")


def directory_identity(tx: Tx) -> str:
    """Return the identity of the directory or of the store on a server: a new one for each that is created."""
    row = tx.execute("SELECT value FROM meta WHERE key IN ('directory', 'store')").fetchone()
    return "" if row is None else str(row[0])


def has_sinks_or_holds(tx: Tx) -> bool:
    """Return whether a sink ever wrote to a stream, or a program outside the database reads one."""
    found = "SELECT EXISTS (SELECT 1 FROM sink) OR EXISTS (SELECT 1 FROM hold WHERE stream_id >= 0)"
    return bool(_count(tx, found))


def limit_pages(tx: Tx, pages: int) -> None:
    """Limit the size of the file. A transaction that needs more pages fails as on a full disk."""
    tx.execute(f"PRAGMA max_page_count = {pages:d}").fetchall()


def _columns(tx: Tx, kind: str, name: str) -> Iterator[str]:
    if kind == "table":
        for column, of_type in _column_types(tx, name):
            yield f"{column} {of_type}"
    elif kind == "index":
        for (column,) in tx.execute("SELECT name FROM pragma_index_info(?)", (name,)):
            yield str(column)


SERVER_TYPES: Final = MappingProxyType(
    {"bigint": "INTEGER", "text": "TEXT", "bytea": "BLOB", "double precision": "REAL"}
)
"""The types of columns on a server, and those of a directory that became them."""


def _server_columns(tx: Tx) -> TableColumns:
    """Return the tables and indexes in the schema of the store, with the types of a directory."""
    found: dict[tuple[str, str], tuple[str, ...]] = {}
    for kind, name, column, of_type in tx.execute(
        "SELECT CASE c.relkind WHEN 'r' THEN 'table' ELSE 'index' END, c.relname::text, a.attname::text,"
        " format_type(a.atttypid, NULL) FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0"
        " AND NOT a.attisdropped WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'i')"
        " AND NOT EXISTS (SELECT 1 FROM pg_constraint p WHERE p.conindid = c.oid) ORDER BY c.relname, a.attnum"
    ):
        shown = f"{column} {SERVER_TYPES.get(of_type, of_type)}" if kind == "table" else str(column)
        found[kind, name] = (*found.get((kind, name), ()), shown)
    return found


def _column_types(tx: Tx, table: str) -> list[tuple[str, str]]:
    return tx.execute("SELECT name, type FROM pragma_table_info(?)", (table,)).fetchall()


def _one(tx: Tx, sql: str) -> object:
    row: tuple[object, ...] = tx.execute(sql).fetchone()
    return row[0]


def _count(tx: Tx, sql: str) -> int:
    row: tuple[int] = tx.execute(sql).fetchone()
    return row[0]
