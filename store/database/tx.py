"""The transaction that a function given to `Database.write` or `Database.read` runs in, and what it reaches.

A `Tx` is a plain synchronous object: SQL runs immediately, on the connection's thread. It also collects what happens
only when the transaction is durable: channels to wake and effects in memory. They belong to the function that
registered them and are dropped if it raises. It also holds *pending writes*, which the functions of one commit batch
share (many appends to one segment become one row) and which are written once, just before COMMIT.

Objects in memory that belong to one opening of a database, such as caches, have slots. A room declares each of its
objects once, as a module constant beside the class:

    EPOCH_CACHE: Final = SharedSlot(EpochCache)

and reaches it with `tx.shared[EPOCH_CACHE]` or `db.shared[EPOCH_CACHE]`. The slot carries the type, so that a lookup
needs no cast and no import of a higher room. docs/design/database-and-group-commit.md lists every slot.

SQL written by users of the library runs inside our transactions, and is restricted (`user_sql`). A handler's
`on_commit` runs in the transaction that moves its progress. Its SQL may read every table and change the tables with its
prefix. It must not end the transaction, attach files or change settings, because that would break the commit batch it
runs in. Source: architecture.md section 1, "Group commit" and "A user's SQL".
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeAlias, TypeVar

import attrs

from eventproc.base.clock import Clock
from eventproc.store.model.errors import NotSupported

S = TypeVar("S")


@attrs.frozen(eq=False)
class SharedSlot(Generic[S]):
    """Declares one object per opening of a database. `make` builds it on first use.

    common: openings of one store in memory use the same object: it holds what a directory keeps in its files.
    in_reads: reads use the object too, on their own threads: it must be safe for threads, and hold for every snapshot.
    """

    make: Callable[[], S]
    common: bool = False
    in_reads: bool = False


class SharedState(dict[SharedSlot[Any], Any]):
    """The objects of one opening of a database: caches and trackers, by slot.

    Their content must be derivable from the database. They change only in `Tx.after`, or inside a transaction if
    the change is correct even when that transaction is rolled back. A lookup is a plain dict lookup.
    """

    def __init__(self, common: SharedState | None = None) -> None:
        """common: the objects that openings of one store use together; None in a directory."""
        super().__init__()
        self._common = common

    def __missing__(self, slot: SharedSlot[S]) -> S:
        if slot.common and self._common is not None:
            return self._common[slot]
        return self.setdefault(slot, slot.make())  # type: ignore[no-any-return]  # one object, also if two threads ask

    if TYPE_CHECKING:

        def __getitem__(self, slot: SharedSlot[S], /) -> S: ...


class ReadState(SharedState):
    """The objects of one read: its own, except those that are declared `in_reads`."""

    def __init__(self, opening: SharedState, common: SharedState | None = None) -> None:
        """opening: the objects of the opening. common: as for `SharedState`."""
        super().__init__(common)
        self._opening = opening

    def __missing__(self, slot: SharedSlot[S]) -> S:
        if slot.in_reads:
            return self._opening[slot]
        return super().__missing__(slot)


class DataNeeded(Exception):  # a request of a function, not a failure
    """Raised by a function of a transaction that needs data which would take long to get, as over a network.

    `Database.read` and `write` call `fetch` on another thread, outside of any transaction, and run the function again.
    What `fetch` returns is kept alive until the call ends, so that the function finds it.
    """

    def __init__(self, fetch: Callable[[], object]) -> None:
        super().__init__()
        self.fetch = fetch


READING: Final = frozenset(
    {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
)
CHANGING_ROWS: Final = frozenset({sqlite3.SQLITE_INSERT, sqlite3.SQLITE_UPDATE, sqlite3.SQLITE_DELETE})
CHANGING_SCHEMA: Final = frozenset(
    {
        sqlite3.SQLITE_CREATE_TABLE,
        sqlite3.SQLITE_DROP_TABLE,
        sqlite3.SQLITE_CREATE_VIEW,
        sqlite3.SQLITE_DROP_VIEW,
        sqlite3.SQLITE_REINDEX,
    }
)
"""Actions whose first argument is the name of the table, view or index."""
CHANGING_SCHEMA_OF_TABLE: Final = frozenset(
    {
        sqlite3.SQLITE_CREATE_INDEX,
        sqlite3.SQLITE_DROP_INDEX,
        sqlite3.SQLITE_CREATE_TRIGGER,
        sqlite3.SQLITE_DROP_TRIGGER,
        sqlite3.SQLITE_ALTER_TABLE,
    }
)
"""Actions whose second argument is the name of the table they belong to."""
SCHEMA_TABLES: Final = frozenset({"sqlite_master", "sqlite_schema"})
"""Tables that SQLite changes itself when a table is created. SQLite refuses direct changes to them."""

_ROLLBACK: Final = re.compile(
    r"\b((insert|update)\s+or|on\s+conflict|raise\s*\()\s*rollback\b", re.IGNORECASE
)
_QUOTED: Final = re.compile(r"""'[^']*'|"[^"]*"|`[^`]*`|\[[^]]*\]|--[^\n]*|/\*.*?\*/""", re.DOTALL)


@contextmanager
def user_sql(connection: sqlite3.Connection, prefix: str) -> Iterator[None]:
    """Restrict `connection` to reading, and to changing tables whose names begin with `prefix`.

    Raises NotSupported for any other statement. Setting and removing the authorizer makes SQLite prepare its cached
    statements again, which takes tens of microseconds per use.
    """

    def decide(
        action: int, first: str | None, second: str | None, _file: str | None, inside: str | None
    ) -> int:
        if action in READING:
            allowed = True
        elif action in CHANGING_ROWS:
            # A trigger (`inside`) may change the same tables as the statements of its owner.
            allowed = first is not None and (first.startswith(prefix) or first in SCHEMA_TABLES)
        elif action in CHANGING_SCHEMA:
            allowed = first is not None and first.startswith(prefix)
        elif action in CHANGING_SCHEMA_OF_TABLE:
            allowed = second is not None and second.startswith(prefix)
        else:
            allowed = False
        return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY

    connection.set_authorizer(decide)
    try:
        yield
    except sqlite3.DatabaseError as why:
        if getattr(why, "sqlite_errorcode", None) != sqlite3.SQLITE_AUTH:  # absent if sqlite3 itself refused
            raise
        raise _not_allowed(str(why), prefix) from why
    finally:
        connection.set_authorizer(None)


def _not_allowed(why: str, prefix: str) -> NotSupported:
    return NotSupported(
        what=f"this SQL in a user's function ({why})",
        remedy=f"read any table, change only tables whose names begin with {prefix!r}, and do not use "
        "transaction statements, ROLLBACK for a conflict, ATTACH or PRAGMA",
    )


SqlValue: TypeAlias = str | int | float | bytes | bytearray | memoryview | None
"""Types of a statement's parameters."""

SqlParameters: TypeAlias = Sequence[SqlValue] | Mapping[str, SqlValue]


class Cursor(Protocol):
    """The result of a statement. Valid only inside the transaction."""

    @property
    def rowcount(self) -> int:
        """Rows that the statement changed."""
        ...

    def fetchone(self) -> Any:
        """Return the next row, None after the last one."""
        ...

    def fetchall(self) -> list[Any]:
        """Return the remaining rows."""
        ...

    def __iter__(self) -> Iterator[Any]:
        """Yield the remaining rows."""
        ...

    def __next__(self) -> Any:
        """Return the next row; raises StopIteration after the last one."""
        ...

    def close(self) -> None:
        """Forget the remaining rows."""
        ...


class Execute(Protocol):
    """Run one statement and return its cursor."""

    def __call__(self, sql: str, parameters: SqlParameters = ..., /) -> Cursor:
        """Run it."""
        ...


class ExecuteMany(Protocol):
    """Run one statement for each row of parameters."""

    def __call__(self, sql: str, parameters: Iterable[SqlParameters], /) -> Cursor:
        """Run it."""
        ...


class Connection(Protocol):
    """The connection of a transaction: that of sqlite3, or one with the same calls."""

    @property
    def execute(self) -> Execute:
        """Run one statement."""
        ...

    @property
    def executemany(self) -> ExecuteMany:
        """Run one statement for many rows of parameters."""
        ...

    @property
    def total_changes(self) -> int:
        """Rows that its statements have changed so far. It only grows."""
        ...

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        ...


class UserSql(Protocol):
    """How a connection restricts the SQL of users; see `Tx.user_sql`."""

    def __call__(self, connection: Any, prefix: str, /) -> AbstractContextManager[None]:
        """Restrict it inside of the block."""
        ...


CACHED_VALUES_MAX: Final = 1024
"""Values in the cache of one transaction. A full cache is emptied. A higher value saves lookups in transactions that
touch many records; a lower one saves memory."""


class PendingWrites(Protocol):
    """Rows that several functions of one commit batch write together."""

    def flush(self, tx: Tx) -> None:
        """Write the rows. Called before COMMIT; if the batch is rolled back, the object is dropped instead."""


P = TypeVar("P", bound=PendingWrites)
K = TypeVar("K", bound=Hashable)


@attrs.frozen(eq=False)
class PendingSlot(Generic[P]):
    """Declares one object per transaction that collects writes until COMMIT. `make` builds it on first use."""

    make: Callable[[], P]


class PendingState(dict[PendingSlot[Any], PendingWrites]):
    """The pending writes of one transaction, by slot."""

    def __missing__(self, slot: PendingSlot[P]) -> P:
        made = self[slot] = slot.make()
        return made

    if TYPE_CHECKING:

        def __getitem__(self, slot: PendingSlot[P], /) -> P: ...


class KnownValues:
    """Values that a commit batch has read, and that the next ones need not read again.

    They hold until this connection writes a row that their room did not count, until another connection commits, and
    until a rollback. So only a run of equal small writes profits from them. Used inside of a batch only.
    """

    __slots__ = ("_changes", "_values")

    def __init__(self) -> None:
        self._values: dict[Hashable, Any] = {}
        self._changes = -1  # rows that the connection had changed when the values held; -1: there are none

    def find(self, key: Hashable, tx: Tx) -> Any:
        """Return the value, or None if there is none that holds."""
        return self._values.get(key) if self._changes == tx.connection.total_changes else None

    def begin(self, tx: Tx) -> None:
        """Announce rows that change no value except those that are given to `keep` after them."""
        if self._changes != tx.connection.total_changes:
            self._values.clear()

    def keep(self, values: Mapping[K, object], tx: Tx) -> None:
        """Keep values that hold now, after the announced rows."""
        if len(self._values) + len(values) > CACHED_VALUES_MAX:
            self._values.clear()
        for key, value in values.items():
            self._values[key] = value
        self._changes = tx.connection.total_changes

    def forget(self) -> None:
        """Forget all values."""
        self._values.clear()
        self._changes = -1


class _NothingKnown(KnownValues):
    """For reads, whose connection changes no rows and so cannot see by their number that a value no longer holds."""

    __slots__ = ()

    def keep(self, values: Mapping[K, object], tx: Tx) -> None:
        """Keep nothing."""


_NOTHING_KNOWN: Final = _NothingKnown()


class Tx:
    """The transaction of a commit batch, or the snapshot of a read. Valid only inside the function that received it."""

    __slots__ = (
        "_restrict",
        "cache",
        "changed",
        "channels",
        "clock",
        "connection",
        "effects",
        "execute",
        "executemany",
        "known",
        "monotonic_ms",
        "now_ms",
        "pending",
        "shared",
        "snapshot",
        "vacuumed",
    )

    execute: Execute
    """Run one statement. This is the connection's own method, so there is no extra call."""
    executemany: ExecuteMany
    """Run one statement for many rows of parameters."""
    clock: Clock
    """The database's clock. Prefer `now_ms`, which is the same for all functions of a batch."""
    now_ms: int
    """Wall clock when the batch began."""
    monotonic_ms: int
    """Monotonic clock when the batch began."""
    shared: SharedState
    """Objects that all writing transactions of this opening share; a read has its own, except for `in_reads`."""
    pending: PendingState
    """Writes that the functions of this commit batch collect; written once, just before COMMIT. A function that adds
    one calls `mark_changed`."""
    cache: dict[tuple[str, ...], Any]
    """Values that this transaction has read or written. No other process can change them before its end. Read it
    directly, write with `remember`, and expect any entry to be missing: the cache is bounded."""
    connection: Connection
    """For use by store/database only."""
    known: KnownValues
    """What earlier commit batches have read and still holds."""
    snapshot: bool
    """Whether this is the snapshot of a read: everything that it sees is committed."""
    vacuumed: bool
    """Whether the batch returned pages to the file system, which SQLite does not count as a change."""

    def __init__(
        self,
        connection: Connection,
        clock: Clock,
        shared: SharedState | None = None,
        known: KnownValues = _NOTHING_KNOWN,
        *,
        snapshot: bool = False,
        restrict: UserSql = user_sql,
    ) -> None:
        """restrict: the engine's way to restrict the SQL of users."""
        self._restrict = restrict
        self.execute = connection.execute
        self.executemany = connection.executemany
        self.clock = clock
        self.now_ms = clock.wall_ms()
        self.monotonic_ms = clock.monotonic_ms()
        self.changed = False
        self.vacuumed = False
        self.effects: list[Callable[[], None]] = []
        self.channels: list[Hashable] = []
        self.shared = SharedState() if shared is None else shared
        self.connection = connection
        self.pending = PendingState()
        self.cache = {}
        self.known = known
        self.snapshot = snapshot

    @property
    def on_server(self) -> bool:
        """Whether it runs on PostgreSQL: for what describes the database itself."""
        return not isinstance(self.connection, sqlite3.Connection)

    def wake(self, channel: Hashable) -> None:
        """Wake the subscriptions of this process on `channel` once the transaction is durable."""
        self.channels.append(channel)

    def after(self, effect: Callable[[], None]) -> None:
        """Call `effect` on the event loop once the transaction is durable; otherwise drop it.

        It runs before the callers of the batch continue. It must not raise; an error is only logged.
        """
        self.effects.append(effect)

    def remember(self, key: tuple[str, ...], value: object) -> None:
        """Put `value` into the transaction's cache; a rollback empties the cache."""
        if len(self.cache) >= CACHED_VALUES_MAX:
            self.cache.clear()
        self.cache[key] = value

    def flush_pending(self) -> None:
        """Write all pending writes now, for a function that must see them with SQL."""
        while self.pending:
            waiting = list(self.pending.values())
            self.pending.clear()
            for rows in waiting:
                rows.flush(self)

    def mark_changed(self) -> None:
        """Record that the function changed something outside SQL, such as pending writes.

        If the function raises afterwards, its batch runs again, each function in its own savepoint.
        """
        self.changed = True

    def is_in_memory(self) -> bool:
        """Return whether the database ends with its process."""
        return not self.on_server and self.directory() is None

    def directory(self) -> Path | None:
        """Return the directory of the database; None in memory and on a server."""
        if self.on_server:
            return None
        row = self.execute("SELECT file FROM pragma_database_list WHERE name = 'main'").fetchone()
        return Path(row[0]).parent if row[0] else None

    def total_changes(self) -> int:
        """Return the number of rows that SQL has changed on this connection so far. It only grows."""
        return self.connection.total_changes

    def vacuum(self, pages: int, ms: int) -> int:
        """Return so many free pages to the file system, or as many as is possible in `ms`; return their number.

        At least one, if any are asked for. The caller knows that there are so many, and that the file can shrink.
        """
        end_ms = self.clock.monotonic_ms() + ms
        for number in range(pages):
            if number and self.clock.monotonic_ms() >= end_ms:
                return number
            self.vacuumed = True
            # One page per statement: the driver steps a statement without columns only once.
            self.execute("PRAGMA incremental_vacuum(1)")
        return pages

    def user_sql(self, prefix: str = "app_") -> AbstractContextManager[None]:
        """Restrict SQL inside the context: it may read all tables and change only those that begin with `prefix`.

        Transaction control, ATTACH and PRAGMA raise `NotSupported`.
        """
        self.changed = True
        return self._restrict(self.connection, prefix)

    def verify_statement(self, sql: str, prefix: str = "app_") -> None:
        """Raise NotSupported for a user's statement that SQLite may answer with a rollback of all functions of a batch.

        Such as INSERT OR ROLLBACK, or a trigger with RAISE(ROLLBACK): the authorizer is not asked about these.
        """
        if not self.on_server and "rollback" in sql.lower() and _ROLLBACK.search(_QUOTED.sub(" ", sql)):
            raise _not_allowed("it has ROLLBACK", prefix)

    def mark(self) -> tuple[int, int]:
        """Return the position to `rewind` to if the function that starts here raises."""
        return len(self.channels), len(self.effects)

    def rewind(self, mark: tuple[int, int]) -> None:
        """Forget the channels and effects registered since `mark`."""
        channels, effects = mark
        del self.channels[channels:]
        del self.effects[effects:]

    def drop_pending(self) -> None:
        """Forget the pending writes and the cache, because their changes were rolled back."""
        self.pending.clear()
        self.cache.clear()


def upsert(table: str, keys: str, values: str) -> str:
    """Return the statement that inserts a row or, if there is one with the same key, gives it the other values.

    keys: the columns of the primary key. values: the other columns that it sets, at least one. Both with commas
    between them; the parameters come in this order.
    """
    columns = f"{keys}, {values}".split(", ")
    changes = ", ".join(f"{each} = excluded.{each}" for each in values.split(", "))
    return (
        f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"
        f" ON CONFLICT ({keys}) DO UPDATE SET {changes}"
    )


def find_number(tx: Tx, sql: str, *parameters: SqlValue) -> int | None:
    """Return the number that a query finds first; None if it finds no row, or NULL."""
    row = tx.execute(sql, parameters).fetchone()
    return None if row is None or row[0] is None else int(row[0])
