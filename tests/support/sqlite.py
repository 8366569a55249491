"""The connection of a transaction in SQLite, for tests that count what it does."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable


def sqlite_of(connection: object) -> sqlite3.Connection:
    """Return the connection of a transaction."""
    assert isinstance(connection, sqlite3.Connection)
    return connection


def instructions(connection: object, call: Callable[[], object]) -> int:
    """Return how many instructions of SQLite's machine a call takes."""
    count = 0

    def step() -> int:
        nonlocal count
        count += 1
        return 0

    sqlite_of(connection).set_progress_handler(step, 1)
    call()
    sqlite_of(connection).set_progress_handler(None, 1)
    return count
