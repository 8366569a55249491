"""What SQL written by users of the library may do inside our transactions.

A handler's `on_commit` runs in the transaction that moves its progress. Its SQL may read every table and change the
tables with its prefix. It must not end the transaction, attach files or change settings, because that would break the
commit batch it runs in. Source: architecture.md section 1, "A user's SQL".
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from eventproc.store.model.errors import NotSupported

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
        raise NotSupported(
            what=f"this SQL in a user's function ({why})",
            remedy=f"read any table, change only tables whose names begin with {prefix!r}, and do not use "
            "transaction statements, ATTACH or PRAGMA",
        ) from why
    finally:
        connection.set_authorizer(None)
