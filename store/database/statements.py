"""Statements that are written from the names of tables and columns."""

from __future__ import annotations


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
