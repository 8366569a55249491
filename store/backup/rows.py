"""The rows of a store, on either engine: in batches by key, what they contain, and what every store has from the start.

All engines have the same tables, so nothing here knows one of them. A batch is a range of keys of one table, about
BATCH_BYTES long. `contents` reads everything once: number and hash of the rows of each table, and of each segment its
events, its bytes, and a hash over its extents with the events that they refer to.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

import attrs

from eventproc.store.catalog import SYSTEM_MIGRATIONS, list_streams
from eventproc.store.database import Tx
from eventproc.store.database.memory_database import open_memory_database
from eventproc.store.inspection.schema_check import USERS_PREFIX
from eventproc.store.model.ids import SegmentId, format_segment

BATCH_BYTES: Final = 4 * 2**20
"""Size of a batch. Higher: more memory; lower: more transactions."""

BATCH_ROWS: Final = 2_000
"""Most rows of a batch, for tables whose rows are small. As BATCH_BYTES."""

SHORT_BYTES: Final = 1_024
"""Bytes that an outline shows: more than the positions of a blob in a file, which have no checksum in the database."""

Key: TypeAlias = tuple[Any, ...]

Row: TypeAlias = tuple[Any, ...]

MADE_BY_OPENINGS: Final = "kind = 'workers'"
"""Records that every opening which may be the host makes, beside rows of `owner`."""


@attrs.frozen
class Table:
    """A table of the store: its quoted columns, those of its key in their order, and those whose values have a length.

    blobs: which of them hold bytes.
    """

    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]
    long: tuple[str, ...]
    blobs: frozenset[str]

    @property
    def has_identity(self) -> bool:
        """Whether the database numbers its rows."""
        return self.key == ('"id"',) and '"id"' not in self.long

    @property
    def outline(self) -> str:
        """The columns, with the length in place of many bytes: what differs if a row was replaced."""
        shown = f"length({{0}}), CASE WHEN length({{0}}) <= {SHORT_BYTES} THEN {{0}} END"
        return ", ".join(shown.format(each) if each in self.blobs else each for each in self.columns)

    def within(self, part: Range) -> tuple[str, Row]:
        """Return the condition, with its parameters, of the rows of a range."""
        columns, marks = f"({', '.join(self.key)})", f"({', '.join('?' * len(self.key))})"
        conditions: list[str] = []
        if part.after is not None:
            conditions.append(f"{columns} > {marks}")
        if part.end is not None:
            conditions.append(f"{columns} <= {marks}")
        return " AND ".join(conditions) or "1 = 1", (*(part.after or ()), *(part.end or ()))

    def select(self, tx: Tx, part: Range, columns: str | None = None) -> list[Row]:
        """Return the rows of a range, in the order of their keys. columns: None (default): all."""
        condition, parameters = self.within(part)
        chosen = ", ".join(self.columns) if columns is None else columns
        query = f"SELECT {chosen} FROM {self.name} WHERE {condition} ORDER BY {', '.join(self.key)}"
        return tx.execute(query, parameters).fetchall()

    def delete(self, tx: Tx, part: Range) -> None:
        """Delete the rows of a range."""
        condition, parameters = self.within(part)
        tx.execute(f"DELETE FROM {self.name} WHERE {condition}", parameters)

    def insert(self, tx: Tx, rows: list[Row]) -> None:
        """Insert rows with all columns."""
        marks = ", ".join("?" * len(self.columns))
        tx.executemany(f"INSERT INTO {self.name} ({', '.join(self.columns)}) VALUES ({marks})", rows)

    def size(self, tx: Tx) -> int:
        """Return the bytes of all rows; numbers do not count. Cost: reads the lengths of all rows."""
        row = tx.execute(f"SELECT coalesce(sum({self._length}), 0) FROM {self.name}").fetchone()
        return int(row[0])

    def batch(self, tx: Tx, after: Key | None) -> Range | None:
        """Return the range of the next batch after a key, with at least one row; None if there is none."""
        condition, parameters = self.within(Range(after, None))
        query = (
            f"SELECT {self._length}, {', '.join(self.key)} FROM {self.name} WHERE {condition}"
            f" ORDER BY {', '.join(self.key)} LIMIT ?"
        )
        end, size = None, 0
        for length, *key in tx.execute(query, (*parameters, BATCH_ROWS)).fetchall():
            if end is not None and size + length > BATCH_BYTES:
                break
            end, size = tuple(key), size + length
        return None if end is None else Range(after, end, size)

    def find_nul(self, tx: Tx) -> str | None:
        """Return a text with a NUL character, which only a directory can hold; None if there is none."""
        texts = [each for each in self.long if each not in self.blobs]
        if not texts:
            return None
        conditions = " OR ".join(f"instr(CAST({each} AS BLOB), x'00') > 0" for each in texts)
        row = tx.execute(f"SELECT {', '.join(texts)} FROM {self.name} WHERE {conditions} LIMIT 1").fetchone()
        return None if row is None else next(each for each in row if each is not None and "\0" in each)

    @property
    def _length(self) -> str:
        return " + ".join(f"coalesce(length({each}), 0)" for each in self.long) or "0"


@attrs.frozen
class Range:
    """The rows of a table with keys in (after, end]; None: without that limit. size: their bytes, if known."""

    after: Key | None
    end: Key | None
    size: int = 0


@attrs.frozen
class Content:
    """What a table or a segment contains.

    count: rows of the table, or events of the segment. size: bytes of the events. stream_id: of the segment.
    """

    count: int
    digest: bytes
    size: int = 0
    stream_id: int | None = None


@attrs.frozen
class NewStore:
    """The tables of a store, and the keys of the rows that migrations put into them."""

    tables: tuple[Table, ...]
    keys: Mapping[str, frozenset[Key]]

    def find_more(self, tx: Tx) -> str | None:
        """Return the name of a table that has more rows than a store that was only opened; None if there is none."""
        for table in self.tables:
            if table.name == "owner":
                continue
            known = self.keys[table.name]
            condition = f"NOT {MADE_BY_OPENINGS}" if table.name == "record" else "1 = 1"
            found = tx.execute(
                f"SELECT {', '.join(table.key)} FROM {table.name} WHERE {condition} LIMIT ?",
                (len(known) + 1,),
            )
            if any(tuple(key) not in known for key in found.fetchall()):
                return table.name
        return None


async def new_store() -> NewStore:
    """Return what a store of this version has from the start."""
    async with open_memory_database(migrations=SYSTEM_MIGRATIONS) as fresh:
        return await fresh.read(_new_store)


def _new_store(tx: Tx) -> NewStore:
    names = "SELECT name FROM sqlite_master WHERE type = 'table' AND name != 'meta' ORDER BY name"
    tables = tuple(_table(tx, str(name)) for (name,) in tx.execute(names).fetchall())
    everything = Range(None, None)
    keys = {
        each.name: frozenset(map(tuple, each.select(tx, everything, ", ".join(each.key)))) for each in tables
    }
    return NewStore(tables, keys)


def _table(tx: Tx, name: str) -> Table:
    columns = [
        (f'"{column}"', str(of_type), int(place))
        for column, of_type, place in tx.execute("SELECT name, type, pk FROM pragma_table_info(?)", (name,))
    ]
    return Table(
        name=name,
        columns=tuple(column for column, _, _ in columns),
        key=tuple(column for column, _, place in sorted(columns, key=lambda each: each[2]) if place),
        long=tuple(column for column, of_type, _ in columns if of_type in ("TEXT", "BLOB")),
        blobs=frozenset(column for column, of_type, _ in columns if of_type == "BLOB"),
    )


def user_tables(tx: Tx) -> list[str]:
    """Return the tables that SQL of users has created."""
    if tx.on_server:
        query = (
            "SELECT tablename::text FROM pg_tables WHERE schemaname = current_schema() || '_app' ORDER BY 1"
        )
        return [str(name) for (name,) in tx.execute(query)]
    query = "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
    return [str(name) for (name,) in tx.execute(query) if str(name).startswith(USERS_PREFIX)]


def contents(tx: Tx, tables: tuple[Table, ...], read: Callable[[int], None]) -> dict[str, Content]:
    """Return what each segment and each table contains, by its name for people; segments come first.

    read: called with the size of each batch; it may raise. Cost: reads everything, with 0.1 kB of memory per blob.
    """
    by_name = {each.name: each for each in tables}
    blobs: dict[int, bytes] = {}
    id_at = by_name["blob"].columns.index('"id"')
    for row in _rows(tx, by_name["blob"], read):
        blobs[row[id_at]] = _digest(row)
    found = _segments(tx, by_name["extent"], blobs, read)
    for table in tables:
        if table.name not in ("blob", "extent"):
            hashed, count = hashlib.blake2b(digest_size=16), 0
            for row in _rows(tx, table, read):
                hashed.update(_digest(row))
                count += 1
            found[f"table {table.name}"] = Content(count, hashed.digest())
    everything = _digest(tuple(each for id_, digest in blobs.items() for each in (id_, digest)))
    found["table blob"] = Content(len(blobs), everything)
    return found


def _segments(
    tx: Tx, table: Table, blobs: Mapping[int, bytes], read: Callable[[int], None]
) -> dict[str, Content]:
    at = {each.strip('"'): place for place, each in enumerate(table.columns)}
    names = {each.stream_id: each.name for each in list_streams(tx)}
    found: dict[str, Content] = {}
    for row in _rows(tx, table, read):
        stream_id, segment, place = row[at["stream_id"]], row[at["segment"]], row[at["place"]]
        stream = names.get(stream_id, f"stream number {stream_id}")
        name = f"segment {format_segment(SegmentId(segment))} of {stream}"
        before = found.get(name, Content(0, b""))
        digest = _digest((before.digest, _digest(row), None if place is None else blobs.get(place)))
        found[name] = Content(
            before.count + row[at["count"]], digest, before.size + row[at["length"]], stream_id
        )
    return found


def _rows(tx: Tx, table: Table, read: Callable[[int], None]) -> Iterator[Row]:
    after: Key | None = None
    while (part := table.batch(tx, after)) is not None:
        yield from table.select(tx, part)
        read(part.size)
        after = part.end


def _digest(row: Row) -> bytes:
    hashed = hashlib.blake2b(digest_size=16)
    for value in row:
        kind, data = ("b", value) if isinstance(value, bytes) else ("v", repr(value).encode())
        hashed.update(f"{kind}{len(data)}:".encode())
        hashed.update(data)
    return hashed.digest()
