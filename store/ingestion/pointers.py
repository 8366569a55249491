"""Where the tables of a store are now: the rows of its Iceberg catalog, in the layout of Iceberg's SQL catalogs.

A row names the newest metadata file of a table, and that file names all others. A change of the table writes another
metadata file, and then compares and sets the row. Source: docs/design/tables.md.
"""

from __future__ import annotations

from typing import Final

from eventproc.store.database import Tx
from eventproc.store.file_store import FileStore, open_file_store
from eventproc.store.segments.file_blobs import chunk_files

CATALOG: Final = "eventproc"
"""Name of the catalog, which other engines give when they open it."""

NAMESPACE: Final = "tables"
"""Namespace of the tables of supervisors. Others may be created by other engines, and are left alone."""

DROPPED: Final = "dropped"
"""Namespace of tables that were dropped, by name and time in ms: queries may still read their files."""

TABLES_FOLDER: Final = "tables"
"""Folder, within a directory, of the files of tables and of what tasks have not published yet."""

_ROW: Final = "catalog_name = ? AND table_namespace = ? AND table_name = ?"
_TABLE: Final = "(iceberg_type IS NULL OR iceberg_type = 'TABLE')"


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


def pointers(tx: Tx, namespace: str = NAMESPACE) -> dict[str, str]:
    """Return the location of the metadata file of each table by its name, sorted. One query."""
    rows = tx.execute(
        f"SELECT table_name, metadata_location FROM iceberg_tables WHERE catalog_name = ? AND table_namespace = ?"
        f" AND {_TABLE} ORDER BY table_name",
        (CATALOG, namespace),
    ).fetchall()
    return {str(name): str(location) for name, location in rows}


def all_locations(tx: Tx) -> list[str]:
    """Return the locations of the metadata files of all tables, dropped ones and those of other engines, too."""
    rows = tx.execute(
        f"SELECT metadata_location FROM iceberg_tables WHERE {_TABLE} ORDER BY metadata_location"
    )
    return [str(location) for (location,) in rows.fetchall()]


def find_pointer(tx: Tx, name: str) -> str | None:
    """Return the location of the metadata file of a table; None if there is no such table. One look-up."""
    row = tx.execute(
        f"SELECT metadata_location FROM iceberg_tables WHERE {_ROW} AND {_TABLE}", (CATALOG, NAMESPACE, name)
    ).fetchone()
    return None if row is None else str(row[0])


def has_table(tx: Tx, name: str) -> bool:
    """Return whether a table exists, also in the layout of before. Cost: two look-ups."""
    row = tx.execute(
        "SELECT 1 FROM published WHERE datasource = ? AND unused_ms IS NULL LIMIT 1", (name,)
    ).fetchone()
    return row is not None or find_pointer(tx, name) is not None


def has_tables(tx: Tx) -> bool:
    """Return whether the store has tables, also in the layout of before. Cost: two look-ups."""
    row = tx.execute("SELECT 1 FROM published WHERE unused_ms IS NULL LIMIT 1").fetchone()
    return row is not None or bool(pointers(tx))


def move_pointer(tx: Tx, name: str, before: str | None, after: str) -> bool:
    """Let a table be what a metadata file says; return False, and change nothing, if it is not as `before` any more.

    before: None if there was no such table.
    """
    key = (CATALOG, NAMESPACE, name)
    if before is None:
        moved = tx.execute(
            "INSERT INTO iceberg_tables (catalog_name, table_namespace, table_name, metadata_location, iceberg_type)"
            " VALUES (?, ?, ?, ?, 'TABLE') ON CONFLICT DO NOTHING",
            (*key, after),
        )
    else:
        moved = tx.execute(
            f"UPDATE iceberg_tables SET metadata_location = ?, previous_metadata_location = ? WHERE {_ROW}"
            " AND metadata_location = ?",
            (after, before, *key, before),
        )
    return bool(moved.rowcount)


def drop_pointer(tx: Tx, name: str, before: str) -> bool:
    """Let there be no such table; return False, and change nothing, if it is not as `before` any more."""
    moved = tx.execute(
        f"UPDATE iceberg_tables SET table_namespace = ?, table_name = ? WHERE {_ROW} AND metadata_location = ?",
        (DROPPED, f"{name}.{tx.now_ms}", CATALOG, NAMESPACE, name, before),
    )
    return bool(moved.rowcount)


def forget_dropped(tx: Tx, *, before_ms: int) -> None:
    """Forget the tables that were dropped before a time."""
    for name in pointers(tx, DROPPED):
        if int(name.rpartition(".")[2]) < before_ms:
            tx.execute(f"DELETE FROM iceberg_tables WHERE {_ROW}", (CATALOG, DROPPED, name))
