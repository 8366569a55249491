"""Transactions below the API: beginning, staging, pinging, deciding, listing, and the steps of their workflows."""

from __future__ import annotations

from eventproc.store.model.transactions import PingResult, TxnState, ping_interval_ms
from eventproc.store.transactions.cleanup import drop_staged_step, find_aborting, forget_txns
from eventproc.store.transactions.commit_round import CommitRound, commit_round, list_decided
from eventproc.store.transactions.decisions import (
    TXN_OPENED,
    TxnNotice,
    abort_open,
    create_txn,
    decide_abort,
    decide_commit,
    notify_commit,
    notify_failed_commits,
    ping,
    record_commit_failure,
    state_after_abort,
)
from eventproc.store.transactions.direct_commit import TxnStart, abort_directly, commit_directly
from eventproc.store.transactions.leases import ExpiredTxn, expired_txns, first_open, next_lease_end_ms
from eventproc.store.transactions.preparation import (
    PreparationStep,
    apply_preparation,
    count_preparation,
    plan_preparation,
)
from eventproc.store.transactions.staging import StagedTotals, stage
from eventproc.store.transactions.txn_record import (
    TXN_OUTCOMES,
    TXN_STEP_LIMITS,
    TxnRecord,
    TxnStepLimits,
    find_txn,
    flush_txns,
    get_txn,
    has_decided,
    has_unfinished,
    list_failing,
    list_finished,
    list_open,
    watch_commits,
    watch_txn,
)

__all__ = [
    "TXN_OPENED",
    "TXN_OUTCOMES",
    "TXN_STEP_LIMITS",
    "CommitRound",
    "ExpiredTxn",
    "PingResult",
    "PreparationStep",
    "StagedTotals",
    "TxnNotice",
    "TxnRecord",
    "TxnStart",
    "TxnState",
    "TxnStepLimits",
    "abort_directly",
    "abort_open",
    "apply_preparation",
    "commit_directly",
    "commit_round",
    "count_preparation",
    "create_txn",
    "decide_abort",
    "decide_commit",
    "drop_staged_step",
    "expired_txns",
    "find_aborting",
    "find_txn",
    "first_open",
    "flush_txns",
    "forget_txns",
    "get_txn",
    "has_decided",
    "has_unfinished",
    "list_decided",
    "list_failing",
    "list_finished",
    "list_open",
    "next_lease_end_ms",
    "notify_commit",
    "notify_failed_commits",
    "ping",
    "ping_interval_ms",
    "plan_preparation",
    "record_commit_failure",
    "stage",
    "state_after_abort",
    "watch_commits",
    "watch_txn",
]
