"""Compares the tables of a database with those that this version makes.

The version number of a database does not show a dropped table. So the tables are compared with those of a
new database in memory. Tables of users' programs (USERS_PREFIX) and those of SQLite are left out.
"""

from __future__ import annotations

from typing import Final

from eventproc.store.catalog import SYSTEM_MIGRATIONS
from eventproc.store.database import Tx
from eventproc.store.database.memory_database import open_memory_database
from eventproc.store.inspection.database_file import TableColumns, table_columns

USERS_PREFIX: Final = "app_"
"""Names of the tables that handlers make in the same database begin with it."""

NOT_COMPARED: Final = frozenset({"beat", "meta", "opening"})
"""Tables that a server has beside those of a directory, and one that differs; every opening needs all of them."""


async def expected_tables() -> TableColumns:
    """Return the tables of a directory that this version makes."""
    async with open_memory_database(migrations=SYSTEM_MIGRATIONS) as fresh:
        return await fresh.read(found_tables)


def found_tables(tx: Tx) -> TableColumns:
    """Return the tables of a database."""
    found = table_columns(tx, except_prefix=USERS_PREFIX)
    return {each: columns for each, columns in found.items() if each[1] not in NOT_COMPARED}


def differences(expected: TableColumns, found: TableColumns) -> list[str]:
    """Return one message for each missing, unknown or different table, index or column."""
    messages = [f"the {kind} {name} is missing" for kind, name in expected if (kind, name) not in found]
    messages += [
        f"the {kind} {name} is not of this version" for kind, name in found if (kind, name) not in expected
    ]
    for (kind, name), columns in expected.items():
        own = found.get((kind, name), columns)
        messages += [f"the {kind} {name} lacks the column {each}" for each in columns if each not in own]
        messages += [
            f"the {kind} {name} has a column too many, {each}" for each in own if each not in columns
        ]
    return messages
