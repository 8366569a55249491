"""The transaction that a function given to `Database.write` or `Database.read` runs in.

A `Tx` is a plain synchronous object: SQL runs at once, on the connection's thread. Besides SQL it collects
what must happen only when the transaction is durable: topics to wake and effects in memory. They belong to
the function that registered them and vanish with it when it raises. It also holds *deferred* rows: work that
the functions of one group share (many appends to one segment become one row) and that is written once, just
before COMMIT. Source: architecture.md section 1, "CommitBatch commit".
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, TypeAlias, TypeVar

from eventproc.store.clock import Clock
from eventproc.store.database.authorizer import user_sql

SqlValue: TypeAlias = str | int | float | bytes | bytearray | memoryview | None
"""What a parameter of a statement may be."""

SqlParameters: TypeAlias = Sequence[SqlValue] | Mapping[str, SqlValue]


Cursor: TypeAlias = sqlite3.Cursor
"""What a statement returns; of use inside the transaction only."""


class Deferred(Protocol):
    """Rows that several functions of one group write together."""

    def flush(self, tx: Tx) -> None:
        """Write the rows. Called once; a rolled back group just drops the object instead."""


D = TypeVar("D", bound=Deferred)
S = TypeVar("S")


class Execute(Protocol):
    """`sqlite3.Connection.execute`: run one statement and return its cursor."""

    def __call__(self, sql: str, parameters: SqlParameters = ..., /) -> sqlite3.Cursor:
        """Run it."""
        ...


class ExecuteMany(Protocol):
    """`sqlite3.Connection.executemany`: run one statement for each row of parameters."""

    def __call__(self, sql: str, parameters: Iterable[SqlParameters], /) -> sqlite3.Cursor:
        """Run it."""
        ...


class SharedState:
    """Objects in memory that belong to one opening of a database, one of each type, made when first asked for.

    They are caches and trackers: what they hold must be derivable, and changes only in `Tx.after`; or in a function of
    a transaction, if it holds whatever becomes of that.
    """

    def __init__(self) -> None:
        self._objects: dict[type, object] = {}

    def get(self, kind: type[S]) -> S:
        """Return the one object of `kind`, made by `kind()` if there is none yet."""
        found = self._objects.get(kind)
        if found is None:
            found = self._objects.setdefault(kind, kind())
        return found  # type: ignore[return-value]  # of `kind`; a cast would be a call, several a transaction


class Tx:
    """One group's transaction, or one read's snapshot. Never keep it beyond the function it was passed to."""

    __slots__ = (
        "_deferred",
        "changed",
        "clock",
        "connection",
        "effects",
        "execute",
        "executemany",
        "monotonic_ms",
        "now_ms",
        "shared",
        "topics",
    )

    execute: Execute
    """Run one statement. The connection's own method, bound here: no call in between."""
    executemany: ExecuteMany
    """Run one statement for many rows of parameters."""
    clock: Clock
    """The database's clock; prefer `now_ms`, which is the same for a whole group."""
    now_ms: int
    """Wall clock when the group began."""
    monotonic_ms: int
    """Monotonic clock when the group began."""
    shared: SharedState
    """What all writing transactions of this opening share in memory; a read has one of its own."""
    connection: sqlite3.Connection
    """For the database room's own use."""

    def __init__(
        self, connection: sqlite3.Connection, clock: Clock, shared: SharedState | None = None
    ) -> None:
        self.execute = connection.execute
        self.executemany = connection.executemany
        self.clock = clock
        self.now_ms = clock.wall_ms()
        self.monotonic_ms = clock.monotonic_ms()
        self.changed = False
        self.effects: list[Callable[[], None]] = []
        self.topics: list[Hashable] = []
        self.shared = SharedState() if shared is None else shared
        self.connection = connection
        self._deferred: dict[Hashable, Deferred] = {}

    def wake(self, topic: Hashable) -> None:
        """Wake this process's subscriptions on `topic` once the transaction is durable."""
        self.topics.append(topic)

    def after(self, effect: Callable[[], None]) -> None:
        """Call `effect` on the event loop once the transaction is durable; drop it if that never happens.

        It runs before the callers of the group go on. It must not raise: that is logged, and lost.
        """
        self.effects.append(effect)

    def defer(self, key: Hashable, make: Callable[[], D]) -> D:
        """Return the group's deferred rows under `key`, made by `make` if there are none yet.

        One key always stands for one type. Who changes it says so with `mark_changed`.
        """
        found = self._deferred.get(key)
        if found is None:
            found = self._deferred[key] = make()
        return found  # type: ignore[return-value]  # as `get`

    def flush_deferred(self) -> None:
        """Write all deferred rows now, for a function that must see them with SQL."""
        while self._deferred:
            waiting, self._deferred = self._deferred, {}
            for rows in waiting.values():
                rows.flush(self)

    def mark_changed(self) -> None:
        """Say that the function changed something that SQLite has not seen yet.

        A function that raises after that makes its group run again, each function in its own savepoint.
        """
        self.changed = True

    def total_changes(self) -> int:
        """Return how many rows SQL has changed so far on this connection; it only grows."""
        return self.connection.total_changes

    def user_sql(self, prefix: str = "app_") -> AbstractContextManager[None]:
        """Within this context SQL may read everything, but change only tables that begin with `prefix`.

        Transaction control, ATTACH and PRAGMA are refused with `NotSupported`.
        """
        self.changed = True
        return user_sql(self.connection, prefix)

    def mark(self) -> tuple[int, int]:
        """Return the place to `rewind` to if the function that starts here raises."""
        return len(self.topics), len(self.effects)

    def rewind(self, mark: tuple[int, int]) -> None:
        """Forget the topics and effects registered since `mark`."""
        topics, effects = mark
        del self.topics[topics:]
        del self.effects[effects:]

    def drop_deferred(self) -> None:
        """Forget the deferred rows: what they were to hold was rolled back."""
        self._deferred.clear()
