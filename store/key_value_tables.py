"""Key-value tables of Pravega's Java client: a record each, and one table of the segment store per partition.

One transaction makes or deletes the record with all partitions. So a table is complete or absent, and its record needs
no state between the two. The client derives the names of the partitions from the name of the table. It hashes the
primary key of an entry to choose a partition. Source: docs/design/endpoints.md.
"""

from __future__ import annotations

from typing import Final

import attrs

from eventproc.store.catalog import get_scope, record_names, verify_active
from eventproc.store.database import Tx
from eventproc.store.model.argument_checks import check_int, invalid_argument
from eventproc.store.model.errors import AlreadyExists
from eventproc.store.model.list_pages import COMPLETE, ListPage
from eventproc.store.model.names import StreamName
from eventproc.store.records import RecordKind, create, delete, find, get, keys
from eventproc.store.tables import KEY_BYTES_MAX, create_table, delete_tables_in, table_names_in

PARTITIONS_MAX: Final = 256
"""Partitions of a table. All are made in one transaction, which takes some milliseconds of the write lock. They do not
divide the work, because the database has one writer. Higher: other writers wait for longer; lower: refuses tables of
programs that were written for Pravega."""

SUFFIX: Final = "_kvtable"
"""What Pravega's clients append to the name of a table, or of the Rust client's reader group, in names of segments."""


@attrs.frozen(kw_only=True)
class KeyValueTable:
    """The record of a table.

    name: "scope/name". partitions: how many it has, for good.
    primary_key_length, secondary_key_length: in bytes. Each key is a primary key and a secondary key. The length of the
    second may be 0.
    """

    name: str
    partitions: int
    primary_key_length: int
    secondary_key_length: int
    created_ms: int = 0

    @property
    def key_length(self) -> int:
        """Bytes of every key."""
        return self.primary_key_length + self.secondary_key_length

    @property
    def segments(self) -> tuple[str, ...]:
        """Names of its partitions in the segment store."""
        return tuple([f"{self.name}{SUFFIX}/{number}.#epoch.0" for number in range(self.partitions)])

    def verify(self) -> None:
        """Raise InvalidArgument unless such a table is possible."""
        StreamName.parse(self.name)
        check_int("number of partitions", self.partitions, least=1, most=PARTITIONS_MAX)
        check_int("length of the primary key", self.primary_key_length, least=1, most=KEY_BYTES_MAX)
        check_int("length of the secondary key", self.secondary_key_length, least=0, most=KEY_BYTES_MAX)
        if self.key_length > KEY_BYTES_MAX:
            reason = f"the primary and the secondary key have at most {KEY_BYTES_MAX:,} bytes together"
            raise invalid_argument("length of keys", self.key_length, reason)


KEY_VALUE_TABLE: Final = RecordKind(name="key-value table", value=KeyValueTable, immutable=True)


def create_key_value_table(tx: Tx, asked: KeyValueTable) -> bool:
    """Create a table with its empty partitions; return False if one of that name exists.

    Raises InvalidArgument, NotFound (the scope), IllegalTransition (the scope is being deleted), and AlreadyExists: a
    reader group of the Rust client has a partition's name.
    """
    asked.verify()
    verify_active(get_scope(tx, asked.name.partition("/")[0]).value, "create a key-value table")
    if find_key_value_table(tx, asked.name) is not None:
        return False
    create(tx, KEY_VALUE_TABLE, asked.name, attrs.evolve(asked, created_ms=tx.now_ms))
    for each in asked.segments:
        if not create_table(tx, each, key_length=asked.key_length):
            raise AlreadyExists(kind="table", name=each)
    return True


def find_key_value_table(tx: Tx, name: str) -> KeyValueTable | None:
    """Return the table, or None."""
    found = find(tx, KEY_VALUE_TABLE, name)
    return None if found is None else found.value


def get_key_value_table(tx: Tx, name: str) -> KeyValueTable:
    """Return the table. Raises NotFound."""
    return get(tx, KEY_VALUE_TABLE, name).value


def key_value_tables(tx: Tx, scope: str, page: ListPage = COMPLETE) -> list[str]:
    """Return the names of the tables of a scope, sorted. Raises NotFound."""
    return record_names(tx, KEY_VALUE_TABLE, scope, page)


def delete_key_value_table(tx: Tx, name: str) -> None:
    """Delete a table with its partitions, whose entries are freed later. Raises NotFound."""
    delete(tx, KEY_VALUE_TABLE, get(tx, KEY_VALUE_TABLE, name))
    delete_tables_in(tx, name + SUFFIX)


def table_of_partition(tx: Tx, segment: str) -> KeyValueTable | None:
    """Return the table that has a partition of this name in the segment store, None if there is none."""
    name, suffix, _ = segment.rpartition(f"{SUFFIX}/")
    found = find_key_value_table(tx, name) if suffix else None
    return found if found is not None and segment in found.segments else None


def missing_partitions(tx: Tx) -> dict[str, list[str]]:
    """Return the partitions that do not exist, by the names of their tables. For checks. One query for each table."""
    missing: dict[str, list[str]] = {}
    for name in keys(tx, KEY_VALUE_TABLE):
        found = table_names_in(tx, name + SUFFIX)
        lost = [each for each in get_key_value_table(tx, name).segments if each not in found]
        missing |= {name: lost} if lost else {}
    return missing


def permitted_names(name: str) -> tuple[str, ...]:
    """Return the names whose permissions allow to use the segments of `name`, which is as in names of segments.

    These are the name itself, for which the Rust client asks, and that of the table, for which the Java client asks.
    """
    table = name.removesuffix(SUFFIX)
    return (name,) if table == name else (name, table)
