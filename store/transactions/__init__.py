"""Transactions below the API: begun, staged, pinged, decided, listed; what their workflows do with the rows."""

from __future__ import annotations

from eventproc.store.model.transactions import PingResult, TxnState, ping_interval_ms
from eventproc.store.transactions.decide import (
    OPENED,
    Bell,
    abort_open,
    create_txn,
    decide_abort,
    decide_commit,
    has_decided,
    ping,
    ring_commit,
)
from eventproc.store.transactions.staging import Totals, settle_staging, stage
from eventproc.store.transactions.table import Txn, find_txn, get_txn, list_finished, list_open
from eventproc.store.transactions.waiting import Endings, watch_txn

__all__ = [
    "OPENED",
    "Bell",
    "Endings",
    "PingResult",
    "Totals",
    "Txn",
    "TxnState",
    "abort_open",
    "create_txn",
    "decide_abort",
    "decide_commit",
    "find_txn",
    "get_txn",
    "has_decided",
    "list_finished",
    "list_open",
    "ping",
    "ping_interval_ms",
    "ring_commit",
    "settle_staging",
    "stage",
    "watch_txn",
]
