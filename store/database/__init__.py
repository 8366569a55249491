"""One SQLite database: transactions, group commit, locks, wake-ups (architecture.md section 1)."""

from __future__ import annotations

from eventproc.store.database.database import (
    WRITE_WAIT_MS_MAX,
    Database,
    DatabaseTimeouts,
    Durability,
    FileWork,
    Subscription,
    Watch,
    query_app_tables,
)
from eventproc.store.database.file_database import open_database, start_database
from eventproc.store.database.instances import Peers
from eventproc.store.database.migrate import COPY, Migration, verify_complete
from eventproc.store.database.statements import upsert
from eventproc.store.database.tx import (
    DataNeeded,
    PendingSlot,
    SharedSlot,
    SharedState,
    SqlParameters,
    SqlValue,
    Tx,
)

__all__ = [
    "COPY",
    "WRITE_WAIT_MS_MAX",
    "DataNeeded",
    "Database",
    "DatabaseTimeouts",
    "Durability",
    "FileWork",
    "Migration",
    "Peers",
    "PendingSlot",
    "SharedSlot",
    "SharedState",
    "SqlParameters",
    "SqlValue",
    "Subscription",
    "Tx",
    "Watch",
    "open_database",
    "query_app_tables",
    "start_database",
    "upsert",
    "verify_complete",
]
