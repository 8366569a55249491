"""Migrations: bring a database file from any older schema to the current one, in numbered steps, forward only.

`user_version` of the file is the number of the last migration applied; `application_id` marks the file as ours. This
room itself owns one table, `meta`. Source: architecture.md section 1; pitfalls.md, item 19.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Final

import attrs

from eventproc.base.clock import Clock, new_id
from eventproc.store.database.database import Durability
from eventproc.store.database.files import ANOTHER
from eventproc.store.database.guard import LogMark, read_mark, store_mark
from eventproc.store.database.tx import Tx
from eventproc.store.model.errors import CorruptRecord, StoreUnusable

APPLICATION_ID: Final = 0x65767072
"""'evpr' as four bytes; marks a file as ours (`file` and other tools can show it)."""

COPY: Final = "copy"
"""Key of the row of `meta` of an unfinished copy of another store: the identity of that store."""

CREATE_META: Final = "CREATE TABLE meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID"


@attrs.frozen
class Migration:
    """One step of the schema, from `number - 1` to `number`."""

    number: int
    apply: Callable[[Tx], None]
    """Runs in the one transaction of all pending migrations."""


@attrs.frozen
class DatabaseHeader:
    """The header fields of a database file."""

    application_id: int
    schema: int
    tables: int

    @property
    def empty(self) -> bool:
        """Whether nothing was ever stored: a new file, or one whose first opening died before COMMIT."""
        return self.schema == 0 and self.tables == 0


def read_format(connection: sqlite3.Connection) -> DatabaseHeader:
    """Read the header of the database."""
    (application_id,) = connection.execute("PRAGMA application_id").fetchone()
    (schema,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    return DatabaseHeader(application_id=application_id, schema=schema, tables=tables)


def check_numbers(migrations: Sequence[Migration]) -> None:
    """Assert that the migrations are numbered 1, 2, 3, …"""
    numbers = [migration.number for migration in migrations]
    assert numbers == list(range(1, len(numbers) + 1)), f"migrations are numbered {numbers}"


def verify_format(found: DatabaseHeader, *, path: str, migrations: Sequence[Migration]) -> None:
    """Raise StoreUnusable for a file of another program, or of a newer version."""
    if found.empty:
        return
    if found.application_id != APPLICATION_ID:
        raise StoreUnusable(path=path, reason=f"the database in it was not made by eventproc; {ANOTHER}")
    if found.schema > len(migrations):
        raise StoreUnusable(
            path=path,
            reason=f"made by a newer version of eventproc (schema {found.schema}, this one knows up to "
            f"{len(migrations)}); update eventproc",
        )


def is_current(found: DatabaseHeader, migrations: Sequence[Migration]) -> bool:
    """Return whether the file needs no migration."""
    return not found.empty and found.schema == len(migrations)


def migrate(
    connection: sqlite3.Connection,
    *,
    path: str,
    migrations: Sequence[Migration],
    durability: Durability,
    clock: Clock,
) -> None:
    """Bring the schema up to date in one transaction. A current file is not changed.

    A death before COMMIT leaves the file unchanged. `durability` is stored if the file is empty. The caller holds
    `format.lock` exclusively.
    """
    found = read_format(connection)
    verify_format(found, path=path, migrations=migrations)
    if is_current(found, migrations):
        return
    connection.execute("BEGIN EXCLUSIVE")
    try:
        tx = Tx(connection, clock)
        if found.empty:
            tx.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            tx.execute(CREATE_META)
            tx.executemany(
                "INSERT INTO meta (key, value) VALUES (?, ?)",
                [("durability", durability.value), ("created_ms", tx.now_ms), ("directory", new_id(clock))],
            )
            store_mark(connection, LogMark(new_id(clock), used=False))  # the journal mode is not WAL yet
        elif (mark := read_mark(connection)) is not None:
            store_mark(connection, attrs.evolve(mark, used=True))
        for migration in migrations[found.schema :]:
            migration.apply(tx)
            tx.flush_pending()
        tx.execute(f"PRAGMA user_version = {len(migrations)}")
        assert connection.in_transaction, "a migration ended the transaction"
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def stored_durability(connection: sqlite3.Connection, *, path: str, asked: Durability | None) -> Durability:
    """Return the directory's durability. Raises StoreUnusable if the caller asked for the other mode."""
    row = connection.execute("SELECT value FROM meta WHERE key = 'durability'").fetchone()
    try:
        stored = Durability(row[0])
    except (TypeError, ValueError):
        found = "no row" if row is None else f"{row[0]!r}"
        raise CorruptRecord(key=path, reason=f"the database is damaged: its durability is {found}") from None
    if asked is not None and asked is not stored:
        raise StoreUnusable(
            path=path,
            reason=f"created with durability {stored.value!r}, opened with {asked.value!r}; "
            "durability is a property of the directory: leave it out when opening",
        )
    return stored


def verify_complete(tx: Tx, name: str) -> None:
    """Raise StoreUnusable for a store that is an unfinished copy of another one. name: of the store."""
    if tx.execute("SELECT 1 FROM meta WHERE key = ?", (COPY,)).fetchone() is not None:
        reason = "is an unfinished copy of another store; run the same `eventproc copy` again, or remove it"
        raise StoreUnusable(path=name, reason=reason)
