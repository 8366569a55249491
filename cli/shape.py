"""Whether a database has the tables that this version makes: what is missing, and what is there besides.

A version number says what somebody meant the database to be; a hand that dropped a table leaves it as it is.
So the tables are compared with those of a directory made now, in memory. Tables of users' programs
(USERS_PREFIX) and those of SQLite itself are nobody's business.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from eventproc.runtime import open_memory
from eventproc.store.database import Tx

USERS_PREFIX: Final = "app_"
"""How the tables begin that handlers make in the same database."""

Shape = Mapping[tuple[str, str], tuple[str, ...]]
"""From (kind, name) of a table, its columns with their types; of an index, the columns it is made of."""


async def expected_shape() -> Shape:
    """Return the shape of a directory that this version makes."""
    async with open_memory(host=False) as fresh:
        return await fresh.db.read(shape_of)


def shape_of(tx: Tx) -> Shape:
    """Return the shape of a database."""
    found = tx.execute("SELECT type, name, tbl_name FROM sqlite_master ORDER BY name").fetchall()
    return {
        (str(kind), str(name)): tuple(_columns(tx, str(kind), str(name)))
        for kind, name, table in found
        if not str(table).startswith(("sqlite_", USERS_PREFIX)) and not str(name).startswith("sqlite_")
    }


def _columns(tx: Tx, kind: str, name: str) -> Iterator[str]:
    if kind == "table":
        for column, of_type in tx.execute("SELECT name, type FROM pragma_table_info(?)", (name,)):
            yield f"{column} {of_type}"
    elif kind == "index":
        for (column,) in tx.execute("SELECT name FROM pragma_index_info(?)", (name,)):
            yield str(column)


def differences(expected: Shape, found: Shape) -> list[str]:
    """Return what is missing, and what is there besides, each named."""
    said = [f"the {kind} {name} is missing" for kind, name in expected if (kind, name) not in found]
    said += [
        f"the {kind} {name} is not of this version" for kind, name in found if (kind, name) not in expected
    ]
    for (kind, name), columns in expected.items():
        there = found.get((kind, name), columns)
        said += [f"the {kind} {name} lacks the column {each}" for each in columns if each not in there]
        said += [f"the {kind} {name} has a column too many, {each}" for each in there if each not in columns]
    return said
