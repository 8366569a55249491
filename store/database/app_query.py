"""Reading with the SQL of an app: one statement, in one snapshot."""

from __future__ import annotations

import sqlite3
from typing import Final

from eventproc.store.database.database import Database
from eventproc.store.database.tx import SqlParameters, SqlValue, Tx
from eventproc.store.model.argument_checks import check_str, invalid_argument

INVALID_SQL: Final = frozenset(
    {sqlite3.SQLITE_ERROR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_RANGE}
)
"""SQLite's codes for a statement that is not valid; others tell of the database."""


async def query_app_tables(db: Database, sql: str, parameters: SqlParameters) -> list[tuple[SqlValue, ...]]:
    """Return all rows of a SELECT. Raises InvalidArgument and NotSupported."""
    check_str("SQL", sql)

    def select(tx: Tx) -> list[tuple[SqlValue, ...]]:
        try:
            with tx.user_sql():
                return tx.execute(sql, parameters).fetchall()
        except (sqlite3.Error, TypeError) as why:
            if getattr(why, "sqlite_errorcode", sqlite3.SQLITE_ERROR) not in INVALID_SQL:
                raise
            raise invalid_argument("SQL", sql, str(why)) from why

    return await db.read(select)
