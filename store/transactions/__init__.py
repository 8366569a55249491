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
    OpenLease,
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
    open_leases,
    watch_commits,
    watch_txn,
)

__all__ = [
    "TXN_OPENED",
    "TXN_OUTCOMES",
    "TXN_STEP_LIMITS",
    "CommitRound",
    "OpenLease",
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
    "find_aborting",
    "find_txn",
    "flush_txns",
    "forget_txns",
    "get_txn",
    "has_decided",
    "has_unfinished",
    "list_decided",
    "list_failing",
    "list_finished",
    "list_open",
    "notify_commit",
    "notify_failed_commits",
    "open_leases",
    "ping",
    "ping_interval_ms",
    "plan_preparation",
    "record_commit_failure",
    "stage",
    "state_after_abort",
    "watch_commits",
    "watch_txn",
]
