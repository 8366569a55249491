"""What `doctor` reads of a server beside the tables of the store, in a few queries that wait for no lock."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from eventproc.store.database import Tx
from eventproc.store.postgres.clock import NOW_MS

SHOWN_SETTINGS: Final = ("fsync", "synchronous_commit", "synchronous_standby_names", "max_connections")
"""Settings of the server that decide what an acknowledged write survives, and how many openings it can have."""


@attrs.frozen
class ServerOpening:
    """An opening of the store. pid: of its process, on its machine."""

    id: str
    pid: int
    machine: str


@attrs.frozen
class ServerHealth:
    """What a server says of itself and of the store.

    version: of the server. schema: number of the last migration that ran. now_ms: the server's clock.
    settings: by name. standbys: how many are connected. connections: of the store. connections_all: of the server.
    waiting: connections of the store that wait for a lock. sql_role: the role of users' SQL; None if it is missing.
    oldest: the name of the connection of the store with the oldest transaction, and its age in ms; None without one.
    """

    version: str
    schema: int
    now_ms: int
    settings: Mapping[str, str]
    standbys: int
    connections: int
    connections_all: int
    waiting: int
    sql_role: str | None
    oldest: tuple[str, int] | None


def application_name(schema: str, pid: int) -> str:
    """Return how a connection names itself on the server. It keeps the first 63 characters: the pid may be cut."""
    return f"eventproc {schema} {pid}"


def server_health(tx: Tx) -> ServerHealth:
    """Return what the server of the store says. Of connections of other roles it may hide the names."""
    (schema,) = tx.execute("SELECT current_schema()::text").fetchone()
    mine = "starts_with(application_name, ?)"
    named = (application_name(schema, 0)[:-1],)
    version, now_ms, number, role, standbys = tx.execute(
        f"SELECT current_setting('server_version'), {NOW_MS},"
        " (SELECT value FROM meta WHERE key = 'schema'), to_regrole(? || '_app')::text,"
        " (SELECT count(*) FROM pg_stat_replication)",
        (schema,),
    ).fetchone()
    connections, connections_all, waiting = tx.execute(
        f"SELECT count(*) FILTER (WHERE {mine}), count(*), count(*) FILTER (WHERE {mine} AND wait_event_type = 'Lock')"
        " FROM pg_stat_activity WHERE backend_type = 'client backend'",
        named * 2,
    ).fetchone()
    oldest = tx.execute(
        "SELECT application_name, (extract(epoch FROM clock_timestamp() - xact_start) * 1000)::bigint"
        f" FROM pg_stat_activity WHERE {mine} AND xact_start IS NOT NULL AND pid != pg_backend_pid()"
        " ORDER BY xact_start LIMIT 1",
        named,
    ).fetchone()
    marks = ", ".join("?" * len(SHOWN_SETTINGS))
    settings = tx.execute(f"SELECT name, setting FROM pg_settings WHERE name IN ({marks})", SHOWN_SETTINGS)
    return ServerHealth(
        version=version,
        schema=int(number),
        now_ms=now_ms,
        settings=dict(settings),
        standbys=standbys,
        connections=connections,
        connections_all=connections_all,
        waiting=waiting,
        sql_role=role,
        oldest=oldest,
    )


def server_openings(tx: Tx) -> list[ServerOpening]:
    """Return the openings of the store, those of a day that died included."""
    rows = tx.execute("SELECT id, pid, machine FROM opening ORDER BY id").fetchall()
    return [ServerOpening(id, pid, machine) for id, pid, machine in rows]
