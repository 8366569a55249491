"""The schema of a store in PostgreSQL: what it is made of, and how it is created and migrated.

The tables are those of a directory: a directory in memory gets all migrations, and its tables are written again for
PostgreSQL. What a server needs beside them is in SERVER_TABLES.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any, Final

import attrs
from psycopg import errors

from eventproc.base.clock import Clock, new_id
from eventproc.store.database import Durability, Migration, Tx
from eventproc.store.database.memory_database import MemoryStore
from eventproc.store.database.tx import Connection
from eventproc.store.model.errors import DirectoryInUse, StoreMissing, StoreUnusable
from eventproc.store.postgres.connection import PostgresConnection, quoted, user_role, user_sql
from eventproc.store.schema import for_postgres

SERVER_TABLES: Final = (
    # Facts about the store.
    """CREATE TABLE meta (key text PRIMARY KEY, value text NOT NULL)""",
    # One row per opening. `batch` counts its commits: after a connection broke during COMMIT, it tells the outcome.
    # `lock_key` is the advisory lock that the opening holds while it lives. The row of a dead one stays for a day.
    """CREATE TABLE opening (
        id text COLLATE "C" PRIMARY KEY,
        lock_key bigint NOT NULL,
        pid bigint NOT NULL,
        machine text NOT NULL,
        batch bigint NOT NULL DEFAULT 0,
        at_ms bigint NOT NULL
    ) WITH (fillfactor = 50)""",
    # The last heartbeat of those that do what only one may do.
    """CREATE TABLE beat (
        name text COLLATE "C" PRIMARY KEY,
        owner_epoch bigint NOT NULL,
        at_ms bigint NOT NULL
    ) WITH (fillfactor = 50)""",
)


@attrs.frozen
class StoreFacts:
    """What `meta` says of a store. id: of the store, in all its openings."""

    schema: int
    durability: Durability
    id: str


def read_facts(connection: PostgresConnection) -> StoreFacts | None:
    """Return the facts of the store in the schema of the connection; None if there is none."""
    schema = connection.address.schema
    (found,) = connection.execute("SELECT to_regclass(?)", (f"{quoted(schema)}.meta",)).fetchone()
    if found is None:
        return None
    facts: dict[str, str] = dict(connection.execute("SELECT key, value FROM meta").fetchall())
    return StoreFacts(int(facts["schema"]), Durability(facts["durability"]), facts["store"])


def verify_facts(facts: StoreFacts, name: str, migrations: Sequence[Migration]) -> None:
    """Raise StoreUnusable for the store of a newer version."""
    if facts.schema > len(migrations):
        reason = (
            f"made by a newer version of eventproc (schema {facts.schema}, this one knows up to {len(migrations)});"
            " update eventproc"
        )
        raise StoreUnusable(path=name, reason=reason)


def make_current(
    connection: PostgresConnection,
    *,
    migrations: Sequence[Migration],
    durability: Durability | None,
    create: bool,
    clock: Clock,
    commit_key: int,
    format_key: int,
) -> StoreFacts:
    """Create or migrate the store, in one transaction, and return its facts. One that is current is not changed, except
    for the role of users' SQL and its rights, where they are missing.

    commit_key: the advisory lock of all commits: one opening at a time creates or migrates the store, and no batch
    runs meanwhile. format_key: the lock that every opening shares while it lives. The caller holds neither.
    Raises StoreMissing, StoreUnusable, DirectoryInUse (a migration is due while other openings live).
    """
    name = connection.address.name
    found = read_facts(connection)
    if found is not None:
        verify_facts(found, name, migrations)
        if found.schema == len(migrations) and not (create and _may_grant(connection)):
            return _checked(found, name, durability)
    elif not create:
        raise StoreMissing(path=name)
    connection.run("BEGIN")
    try:
        connection.execute("SELECT pg_advisory_xact_lock(?)", (commit_key,))
        found = read_facts(connection)
        if found is None:
            _create(connection, migrations, durability or Durability.FSYNC, clock)
        elif found.schema != len(migrations):
            verify_facts(found, name, migrations)
            (free,) = connection.execute("SELECT pg_try_advisory_xact_lock(?)", (format_key,)).fetchone()
            if not free:
                raise DirectoryInUse(path=name, pids=())
            _migrate(connection, migrations[found.schema :], clock)
            connection.execute("UPDATE meta SET value = ? WHERE key = 'schema'", (str(len(migrations)),))
        _grant_user_role(connection)
        connection.run("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.run("ROLLBACK")
        raise
    found = read_facts(connection)
    assert found is not None, "the store was just created"
    return _checked(found, name, durability)


def _checked(facts: StoreFacts, name: str, durability: Durability | None) -> StoreFacts:
    if durability is not None and durability is not facts.durability:
        reason = (
            f"created with durability {facts.durability.value!r}, opened with {durability.value!r}; "
            "durability is a property of the store: leave it out when opening"
        )
        raise StoreUnusable(path=name, reason=reason)
    return facts


def _create(
    connection: PostgresConnection, migrations: Sequence[Migration], durability: Durability, clock: Clock
) -> None:
    schema = connection.address.schema
    # Where it exists, the role of the connection need not be allowed to create schemas.
    if connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = ?", (schema,)).fetchone() is None:
        connection.run(f"CREATE SCHEMA {quoted(schema)}")
    for statement in SERVER_TABLES:
        connection.run(statement)
    with closing(MemoryStore(migrations=migrations, clock=clock)) as directory:
        model = directory.connection
        for statement in _definitions(model):
            connection.run(for_postgres(statement))
        for table, columns, rows in _rows(model):
            marks = ", ".join("?" * len(columns))
            connection.executemany(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})", rows)
    facts = [
        ("schema", str(len(migrations))),
        ("durability", durability.value),
        ("created_ms", str(clock.wall_ms())),
        ("store", new_id(clock)),
    ]
    connection.executemany("INSERT INTO meta (key, value) VALUES (?, ?)", facts)


def _definitions(model: Connection) -> Iterator[str]:
    """Yield the statements that create the tables, then those that create their indexes."""
    for (statement,) in model.execute(
        "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%' AND name != 'meta'"
        " ORDER BY type = 'index', name"
    ):
        yield statement


def _rows(model: Connection) -> Iterator[tuple[str, list[str], list[Any]]]:
    """Yield the tables in which migrations have put rows: name, columns, rows."""
    for (table,) in model.execute(
        "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
    ).fetchall():
        columns = [name for (name,) in model.execute(f"SELECT name FROM pragma_table_info('{table}')")]
        if table != "meta" and (rows := model.execute(f"SELECT * FROM {table}").fetchall()):
            yield table, columns, rows


class _Migrated:
    """The connection of a migration, which is written for SQLite."""

    def __init__(self, connection: PostgresConnection) -> None:
        self._connection = connection
        self.executemany = connection.executemany

    def execute(self, sql: str, parameters: Any = (), /) -> Any:
        """See `Connection.execute`."""
        return self._connection.execute(for_postgres(sql), parameters)

    @property
    def total_changes(self) -> int:
        """See `Connection.total_changes`."""
        return self._connection.total_changes

    @property
    def in_transaction(self) -> bool:
        """See `Connection.in_transaction`."""
        return self._connection.in_transaction


def _migrate(connection: PostgresConnection, migrations: Sequence[Migration], clock: Clock) -> None:
    tx = Tx(_Migrated(connection), clock, restrict=user_sql)
    for migration in migrations:
        migration.apply(tx)
        tx.flush_pending()


_MISSING: Final = """
SELECT me.rolsuper OR me.rolcreaterole, NOT COALESCE(
    pg_has_role(s.nspowner, app.oid, 'MEMBER') AND to_regnamespace(quote_ident($2)) IS NOT NULL
    AND has_schema_privilege(app.oid, s.oid, 'USAGE')
    AND (SELECT bool_and(has_table_privilege(app.oid, t.oid, 'SELECT')) FROM pg_class t
         WHERE t.relnamespace = s.oid AND t.relkind = 'r'), false)
FROM pg_roles me, pg_namespace s LEFT JOIN pg_roles app ON app.rolname = $2
WHERE me.rolname = current_user AND s.nspname = $1
"""
"""Whether the role of the connection may create roles, and whether users' SQL lacks something."""


def _may_grant(connection: PostgresConnection) -> bool:
    """Return whether something is missing that users' SQL needs, and the role of the connection may create roles."""
    schema = connection.address.schema
    may_create, is_missing = connection.execute(_MISSING, (schema, user_role(schema))).fetchone()
    return bool(may_create and is_missing)


def _grant_user_role(connection: PostgresConnection) -> None:
    """Create the role and the schema of users' SQL and grant their rights, as far as the connection may do that."""
    name = user_role(connection.address.schema)
    schema, role = quoted(connection.address.schema), quoted(name)
    (owner,) = connection.execute(
        "SELECT nspowner::regrole::text FROM pg_namespace WHERE nspname = ?", (connection.address.schema,)
    ).fetchone()
    # Each alone: a role that may not create roles still grants the tables of a migration.
    for missing, script in (
        (
            "SELECT NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = ?)",
            f"CREATE ROLE {role} NOLOGIN; GRANT {role} TO CURRENT_USER, {owner}",
        ),
        (
            "SELECT NOT EXISTS (SELECT 1 FROM pg_namespace WHERE nspname = ?)",
            f"CREATE SCHEMA {role} AUTHORIZATION {role}",
        ),
        (
            "SELECT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = ?)",
            f"GRANT USAGE ON SCHEMA {schema} TO {role}; GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {role}",
        ),
    ):
        if connection.execute(missing, (name,)).fetchone() == (True,):
            connection.run("SAVEPOINT role")
            try:
                connection.run(script)
            except (errors.InsufficientPrivilege, errors.UndefinedObject):  # an administrator can do it later
                connection.run("ROLLBACK TO role")
            connection.run("RELEASE role")
