"""The connection of a transaction in SQLite, for tests that count what it does."""

from __future__ import annotations

import sqlite3


def sqlite_of(connection: object) -> sqlite3.Connection:
    """Return the connection of a transaction."""
    assert isinstance(connection, sqlite3.Connection)
    return connection
