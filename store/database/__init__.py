"""One SQLite database: transactions, group commit, locks, wake-ups (architecture.md section 1)."""

from __future__ import annotations

from eventproc.store.database.database import (
    WRITE_WAIT_MS_MAX as WRITE_WAIT_MS_MAX,
    Database as Database,
    DatabaseTimeouts as DatabaseTimeouts,
    Durability as Durability,
    FileWork as FileWork,
    Subscription as Subscription,
    Watch as Watch,
    query_app_tables as query_app_tables,
)
from eventproc.store.database.file_database import start_database as start_database
from eventproc.store.database.instances import Peers as Peers
from eventproc.store.database.migrate import (
    COPY as COPY,
    Migration as Migration,
    verify_complete as verify_complete,
)
from eventproc.store.database.tx import (
    DataNeeded as DataNeeded,
    PendingSlot as PendingSlot,
    SharedSlot as SharedSlot,
    SharedState as SharedState,
    SqlParameters as SqlParameters,
    SqlValue as SqlValue,
    Tx as Tx,
    find_number as find_number,
    upsert as upsert,
)
