"""Tables of the segment store: the Rust client's reader groups have one each, a key-value table one per partition.

A table is a map of bytes to bytes, where each entry has a version. Versions grow within the table, also across keys, so
that they order its entries: a client that knows a version reads what was written since. Conditions of a batch are
checked against the state before the batch, and a batch takes effect completely or not at all. Only the latest entry of
a key is kept. Source: docs/design/endpoints.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import attrs

from eventproc.store.database import Tx, find_number, upsert
from eventproc.store.model.argument_checks import invalid_argument
from eventproc.store.model.errors import NotFound, VersionConflict
from eventproc.store.model.list_pages import NO_LIMIT

ANY_VERSION: Final = -(2**63)
"""Condition of an update that replaces whatever the key has."""

NO_VERSION: Final = -1
"""Condition of an update that needs the key to be absent, and version of an absent key."""

ENTRY_BYTES: Final = 8 + 8
"""What an entry adds to the positions of its table, besides its key and value."""

KEY_BYTES_MAX: Final = 8 * 1024
"""Largest key, as in Pravega."""

VALUE_BYTES_MAX: Final = 2**20 - KEY_BYTES_MAX
"""Largest value, as in Pravega. Clients keep small records of their reader groups here."""

PAGE_BYTES_MAX: Final = 4 * 2**20
"""Bytes of keys and values that one read returns. Higher: more memory per reply; lower: more calls for a table."""

ENTRIES_A_QUERY: Final = 16
"""Entries that the first query of such a read returns; each next one returns as many as were found before. Higher: more
memory for large values; lower: more queries."""

ENTRIES_A_QUERY_MAX: Final = 128
"""Entries of any query of it. Higher: more memory if large values follow small ones; lower: more queries."""

LOOKUP_BYTES_MAX: Final = 2**24 - 2**16
"""Bytes of the entries that one look-up of keys returns. The Java client asks for 15 entries of the largest size
together. Higher: the reply does not fit a frame, which has 16 MiB; lower: such a look-up is refused."""

_REPLIED_BYTES: Final = 24
"""What an entry takes in a reply besides its key and value."""

DROP_ENTRIES: Final = 1_000
"""Entries of a deleted table that one step frees: some milliseconds under the write lock."""

DROP_BYTES: Final = 8 * 2**20
"""Bytes of keys and values after which such a step ends. Higher: writers wait for longer; lower: more transactions."""

_Rows: TypeAlias = list[tuple[bytes, bytes, int]]
"""Key, value and version of entries."""

_DELETED_NAME: Final = "'/' || id"
"""What a deleted table is named until its entries are freed: no scope has an empty name."""


@attrs.frozen
class TableEntry:
    """A key with its value and version. An absent key has NO_VERSION and an empty value."""

    key: bytes
    value: bytes
    version: int

    @property
    def size_bytes(self) -> int:
        """Bytes of the key and the value."""
        return len(self.key) + len(self.value)


@attrs.frozen
class KeyTable:
    """A table. tail: position of its next entry. key_length: bytes of every key, 0 for any."""

    id: int
    name: str
    tail: int
    key_length: int


@attrs.frozen
class TableDelta:
    """Entries in the order of writing, and the position from which to read on."""

    entries: tuple[TableEntry, ...]
    position: int
    reached_end: bool


def is_deleted(name: str) -> bool:
    """Return whether this is the name of a deleted table whose entries are not freed yet."""
    return name.startswith("/")


def create_table(tx: Tx, name: str, *, key_length: int = 0) -> bool:
    """Create an empty table; return False if one of that name exists.

    Raises InvalidArgument for a name that deleted tables have.
    """
    if is_deleted(name):
        raise invalid_argument("table", name, "its scope is empty")
    done = tx.execute(
        "INSERT INTO ktable (name, tail, key_length) VALUES (?, 0, ?) ON CONFLICT DO NOTHING",
        (name, key_length),
    )
    return done.rowcount > 0


def delete_table(tx: Tx, name: str) -> None:
    """Delete a table; `drop_entries` frees its entries later. Raises NotFound."""
    table = get_table(tx, name)
    tx.execute(f"UPDATE ktable SET name = {_DELETED_NAME} WHERE id = ?", (table.id,))


def delete_tables_in(tx: Tx, path: str, *, limit: int = NO_LIMIT) -> int:
    """Delete the tables whose names begin with `path` and "/", at most `limit`; return how many.

    `drop_entries` frees their entries.
    """
    return tx.execute(
        f"UPDATE ktable SET name = {_DELETED_NAME} WHERE id IN"
        " (SELECT id FROM ktable WHERE name >= ? AND name < ? ORDER BY name LIMIT ?)",
        (f"{path}/", f"{path}0", limit),
    ).rowcount


def has_deleted_tables(tx: Tx) -> bool:
    """Return whether `drop_entries` has something to do. One look-up."""
    return _first_deleted(tx) is not None


def drop_entries(tx: Tx) -> bool:
    """Free some entries of a deleted table, DROP_ENTRIES and about DROP_BYTES at most. Return whether there is more."""
    table_id = _first_deleted(tx)
    if table_id is None:
        return False
    keys: list[tuple[int, bytes]] = []
    size_bytes = 0
    entries = tx.execute(
        "SELECT key, length(value) FROM kentry WHERE tbl = ? LIMIT ?", (table_id, DROP_ENTRIES)
    )
    for key, length in entries.fetchall():
        keys.append((table_id, key))
        size_bytes += len(key) + length
        if size_bytes >= DROP_BYTES:
            break
    tx.executemany("DELETE FROM kentry WHERE tbl = ? AND key = ?", keys)
    if not keys:
        tx.execute("DELETE FROM ktable WHERE id = ?", (table_id,))
    return True


def _first_deleted(tx: Tx) -> int | None:
    return find_number(tx, "SELECT id FROM ktable WHERE name >= '/' AND name < '0' ORDER BY name LIMIT 1")


def get_table(tx: Tx, name: str) -> KeyTable:
    """Return the table. Raises NotFound."""
    row = tx.execute("SELECT id, name, tail, key_length FROM ktable WHERE name = ?", (name,)).fetchone()
    if row is None or is_deleted(name):
        raise NotFound(kind="table", name=name)
    return KeyTable(*row)


def table_names_in(tx: Tx, path: str) -> set[str]:
    """Return the names of the tables that begin with `path` and "/"."""
    rows = tx.execute("SELECT name FROM ktable WHERE name >= ? AND name < ?", (f"{path}/", f"{path}0"))
    return {row[0] for row in rows}


def count_entries(tx: Tx, table: KeyTable) -> int:
    """Return the number of keys."""
    return find_number(tx, "SELECT count(*) FROM kentry WHERE tbl = ?", table.id) or 0


def get_entries(tx: Tx, table: KeyTable, keys: Sequence[bytes]) -> list[TableEntry]:
    """Return one entry per key, in the order of `keys`. One look-up each.

    Raises InvalidArgument for entries of more than LOOKUP_BYTES_MAX together.
    """
    found, size_bytes = [], 0
    for key in keys:
        entry = _find(tx, table, key) or TableEntry(key, b"", NO_VERSION)
        size_bytes += entry.size_bytes + _REPLIED_BYTES
        if size_bytes > LOOKUP_BYTES_MAX:
            reason = f"their entries have more than {LOOKUP_BYTES_MAX:,} bytes together: read fewer"
            raise invalid_argument("number of keys", len(keys), reason)
        found.append(entry)
    return found


def update_entries(tx: Tx, name: str, entries: Sequence[TableEntry]) -> list[int]:
    """Write all entries or none; return their new versions, in order. A key may occur repeatedly: the last one wins.

    entries: the version of each is its condition: ANY_VERSION, NO_VERSION, or the key's present version.
    Raises NotFound for the table, or for a key that should have a version and is absent; VersionConflict; and
    InvalidArgument for a key or a value that the table cannot have.
    Cost: one look-up and two b-trees per entry.
    """
    table = get_table(tx, name)
    for entry in entries:
        _check_sizes(table, entry)
        _verify(tx, table, entry.key, entry.version)
    versions = []
    rows: dict[bytes, tuple[int, bytes, int, bytes]] = {}
    for entry in entries:
        versions.append(table.tail)
        rows[entry.key] = (table.id, entry.key, table.tail, entry.value)
        table = attrs.evolve(table, tail=table.tail + ENTRY_BYTES + entry.size_bytes)
    tx.executemany(upsert("kentry", "tbl, key", "version, value"), rows.values())
    _move_tail(tx, table)
    return versions


def remove_entries(tx: Tx, name: str, keys: Sequence[tuple[bytes, int]]) -> None:
    """Remove all keys or none. keys: with conditions as for `update_entries`; an absent key is removed already.

    Raises NotFound, VersionConflict.
    """
    table = get_table(tx, name)
    for key, version in keys:
        _verify(tx, table, key, version)
    tx.executemany("DELETE FROM kentry WHERE tbl = ? AND key = ?", [(table.id, key) for key, _ in keys])
    _move_tail(tx, attrs.evolve(table, tail=table.tail + sum(ENTRY_BYTES + len(key) for key, _ in keys)))


def entries_since(tx: Tx, table: KeyTable, position: int, count: int) -> TableDelta:
    """Return up to `count` entries that were written at `position` or later, oldest first; one index scan.

    They have at most PAGE_BYTES_MAX. A removed key, and an older entry of a key that was written again, are left out.
    """

    def read(last: TableEntry | None, limit: int) -> _Rows:
        return tx.execute(
            "SELECT key, value, version FROM kentry WHERE tbl = ? AND version >= ? ORDER BY version LIMIT ?",
            (table.id, position if last is None else last.version + 1, limit),
        ).fetchall()

    entries, is_all = _page(read, count)
    if is_all and len(entries) < count:
        return TableDelta(tuple(entries), max(table.tail, position), True)
    return TableDelta(tuple(entries), entries[-1].version + 1, False)


def entries_after(
    tx: Tx, table: KeyTable, after: bytes, count: int, *, first: bytes = b"", last: bytes = b""
) -> list[TableEntry]:
    """Return up to `count` entries in the order of keys, beginning after the key `after`. No key is empty.

    first, last: only keys from `first` to `last`, both included; empty for no bound.
    They have at most PAGE_BYTES_MAX, but there is at least one if any follows. One index scan.
    """

    def read(before: TableEntry | None, limit: int) -> _Rows:
        behind = after if before is None else before.key
        # One lower bound: of two, SQLite seeks to the first and reads each row up to the second.
        is_behind = behind >= first
        return tx.execute(
            f"SELECT key, value, version FROM kentry WHERE tbl = ? AND key {'>' if is_behind else '>='} ?"
            f"{' AND key <= ?' if last else ''} ORDER BY key LIMIT ?",
            (table.id, behind if is_behind else first, *([last] if last else []), limit),
        ).fetchall()

    return _page(read, count)[0]


def _page(read: Callable[[TableEntry | None, int], _Rows], count: int) -> tuple[list[TableEntry], bool]:
    """Return the first entries, of at most PAGE_BYTES_MAX but at least one, and whether these are all up to `count`.

    read: returns the rows behind an entry, at most so many. A server sends all that a statement finds, so it asks for
    few at a time, and for more while entries are small: each query is a trip to the server.
    """
    entries: list[TableEntry] = []
    size_bytes = 0
    most = ENTRIES_A_QUERY
    while (limit := min(count - len(entries), most)) > 0:
        rows = read(entries[-1] if entries else None, limit)
        for row in rows:
            entry = TableEntry(*row)
            size_bytes += entry.size_bytes
            if entries and size_bytes > PAGE_BYTES_MAX:
                return entries, False
            entries.append(entry)
        if len(rows) < limit:
            break
        most = min(len(entries), ENTRIES_A_QUERY_MAX)
    return entries, True


def _check_sizes(table: KeyTable, entry: TableEntry) -> None:
    lengths = range(1, KEY_BYTES_MAX + 1) if not table.key_length else (table.key_length,)
    if len(entry.key) not in lengths:
        wanted = f"{table.key_length}" if table.key_length else f"1 to {KEY_BYTES_MAX:,}"
        raise invalid_argument("key", entry.key, f"keys of the table {table.name} have {wanted} bytes")
    if len(entry.value) > VALUE_BYTES_MAX:
        reason = f"values of tables have at most {VALUE_BYTES_MAX:,} bytes"
        raise invalid_argument("length of a value", len(entry.value), reason)


def _find(tx: Tx, table: KeyTable, key: bytes) -> TableEntry | None:
    row = tx.execute(
        "SELECT key, value, version FROM kentry WHERE tbl = ? AND key = ?", (table.id, key)
    ).fetchone()
    return None if row is None else TableEntry(*row)


def _verify(tx: Tx, table: KeyTable, key: bytes, version: int) -> None:
    if version == ANY_VERSION:
        return
    found = _find(tx, table, key)
    actual = NO_VERSION if found is None else found.version
    if actual == version:
        return
    shown = f"{table.name} {key!r}"
    if found is None:
        raise NotFound(kind="key of table", name=shown)
    raise VersionConflict(key=shown, expected=version, actual=actual)


def _move_tail(tx: Tx, table: KeyTable) -> None:
    tx.execute("UPDATE ktable SET tail = ? WHERE id = ?", (table.tail, table.id))
