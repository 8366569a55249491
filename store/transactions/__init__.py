"""Transactions below the API: begun, staged, pinged, decided, listed; what their workflows do with the rows."""

from __future__ import annotations

from eventproc.store.model.transactions import PingResult, TxnState, ping_interval_ms
from eventproc.store.transactions.decide import (
    OPENED,
    Bell,
    abort_open,
    after_abort,
    create_txn,
    decide_abort,
    decide_commit,
    has_decided,
    note_failure,
    ping,
    ring_commit,
    ring_failed,
)
from eventproc.store.transactions.dropping import drop_some, forget_txns, next_aborting
from eventproc.store.transactions.landing import Round, decided, land_round
from eventproc.store.transactions.preparing import Plan, begin_preparing, plan, replace_rows
from eventproc.store.transactions.staging import Totals, settle_staging, stage
from eventproc.store.transactions.table import (
    OpenLease,
    Txn,
    find_txn,
    get_txn,
    has_undone,
    list_failing,
    list_finished,
    list_open,
    open_leases,
)
from eventproc.store.transactions.waiting import TXN_OUTCOMES, watch_commits, watch_txn

__all__ = [
    "OPENED",
    "TXN_OUTCOMES",
    "Bell",
    "OpenLease",
    "PingResult",
    "Plan",
    "Round",
    "Totals",
    "Txn",
    "TxnState",
    "abort_open",
    "after_abort",
    "begin_preparing",
    "create_txn",
    "decide_abort",
    "decide_commit",
    "decided",
    "drop_some",
    "find_txn",
    "forget_txns",
    "get_txn",
    "has_decided",
    "has_undone",
    "land_round",
    "list_failing",
    "list_finished",
    "list_open",
    "next_aborting",
    "note_failure",
    "open_leases",
    "ping",
    "ping_interval_ms",
    "plan",
    "replace_rows",
    "ring_commit",
    "ring_failed",
    "settle_staging",
    "stage",
    "watch_commits",
    "watch_txn",
]
