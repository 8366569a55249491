"""Transactions below the API: beginning, staging, pinging, deciding, listing, and the steps of their workflows."""

from __future__ import annotations

from eventproc.store.model.transactions import (
    PingResult as PingResult,
    TxnState as TxnState,
    ping_interval_ms as ping_interval_ms,
)
from eventproc.store.transactions.cleanup import (
    drop_staged_step as drop_staged_step,
    find_aborting as find_aborting,
    forget_txns as forget_txns,
)
from eventproc.store.transactions.commit_round import (
    CommitRound as CommitRound,
    commit_round as commit_round,
    list_decided as list_decided,
)
from eventproc.store.transactions.decisions import (
    TXN_OPENED as TXN_OPENED,
    TxnNotice as TxnNotice,
    abort_open as abort_open,
    create_txn as create_txn,
    decide_abort as decide_abort,
    decide_and_commit as decide_and_commit,
    decide_commit as decide_commit,
    decide_joint_commit as decide_joint_commit,
    notify_commit as notify_commit,
    notify_failed_commits as notify_failed_commits,
    ping as ping,
    state_after_abort as state_after_abort,
)
from eventproc.store.transactions.direct_commit import (
    TxnStart as TxnStart,
    abort_directly as abort_directly,
    commit_directly as commit_directly,
)
from eventproc.store.transactions.leases import (
    ExpiredTxn as ExpiredTxn,
    expired_txns as expired_txns,
    first_open as first_open,
    next_lease_end_ms as next_lease_end_ms,
)
from eventproc.store.transactions.preparation import (
    PreparationStep as PreparationStep,
    apply_preparation as apply_preparation,
    count_preparation as count_preparation,
    plan_preparation as plan_preparation,
)
from eventproc.store.transactions.staging import (
    StagedTotals as StagedTotals,
    last_staged_sequence as last_staged_sequence,
    stage as stage,
    staged_sequences as staged_sequences,
)
from eventproc.store.transactions.txn_record import (
    CLIENT_IDS_END as CLIENT_IDS_END,
    TXN_OUTCOMES as TXN_OUTCOMES,
    TXN_STEP_LIMITS as TXN_STEP_LIMITS,
    TxnRecord as TxnRecord,
    count_open as count_open,
    find_txn as find_txn,
    flush_txns as flush_txns,
    get_txn as get_txn,
    has_decided as has_decided,
    has_unfinished as has_unfinished,
    joint_rows as joint_rows,
    list_failing as list_failing,
    list_finished as list_finished,
    list_open as list_open,
    oldest_unfinished_epoch as oldest_unfinished_epoch,
    record_commit_failure as record_commit_failure,
    watch_commits as watch_commits,
    watch_txn as watch_txn,
)
