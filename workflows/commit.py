"""Commit: the decided transactions of a stream become visible, in the order of their decisions, in rounds.

Run from `_system/commit`, whose events are bells. A round is one transaction, and it finishes its bell; what it
cannot move as it is, is prepared before, in bounded transactions that nobody notices. Whatever dies in between: the
bell is still there, and a second run looks at every row anew (docs/design/transactions.md).
"""

from __future__ import annotations

from eventproc.store.catalog import current_epoch, get_stream
from eventproc.store.database import Tx
from eventproc.store.model.limits import PREPARE_ROWS, ROUND_TRANSACTIONS
from eventproc.store.ownership import Owner
from eventproc.store.progress import EventRef, finish_event
from eventproc.store.transactions import (
    CommitRound,
    PreparationStep,
    TxnNotice,
    TxnRecord,
    apply_preparation,
    commit_round,
    count_preparation,
    has_decided,
    notify_commit,
    notify_failed_commits,
    plan_preparation,
    record_commit_failure,
)


def run_round(
    tx: Tx, bell: TxnNotice, event: EventRef, owner: Owner, transactions_max: int = ROUND_TRANSACTIONS
) -> CommitRound:
    """Commit what can be committed of the stream's decided transactions, at most so many, in one step.

    Its bell is finished, and another rung if something is left, unless the next transaction has to be prepared: then
    the caller does that and comes again. Raises OwnerFenced, with nothing changed.
    """
    owner.check(tx)
    if not has_decided(tx, bell.stream_id):
        finish_event(tx, event)  # delivered again, or an earlier bell's round took them
        return CommitRound()
    # A stream with a decided transaction is neither sealed nor deleted: seal waits for it.
    stream = get_stream(tx, bell.stream, stream_id=bell.stream_id).value
    done = commit_round(
        tx, bell.stream, bell.stream_id, current_epoch(tx, stream), transactions_max=transactions_max
    )
    if done.unprepared is None:
        if done.more:
            notify_commit(tx, bell.stream, bell.stream_id)
        finish_event(tx, event)
    return done


def set_aside(tx: Tx, bell: TxnNotice, event: EventRef, owner: Owner, reason: str) -> bool:
    """Finish the bell of a stream whose next transaction cannot be committed, and note why; return whether it is news.

    The stream's commits stop there, for their order; `retry_failed` rings again. Raises OwnerFenced.
    """
    owner.check(tx)
    news = record_commit_failure(tx, bell.stream_id, reason=reason)
    finish_event(tx, event)
    return news


def retry_failed(tx: Tx, owner: Owner) -> None:
    """Ring for the streams whose next commit failed. Raises OwnerFenced."""
    owner.check(tx)
    notify_failed_commits(tx)


def begin_preparation(tx: Tx, txn: TxnRecord, owner: Owner) -> bool:
    """Count a preparation; after PREPARATIONS_MAX the stream's next scale waits. Raises OwnerFenced.

    Returns False, with no change, if the transaction was given up meanwhile: then there is nothing to prepare.
    """
    owner.check(tx)
    return count_preparation(tx, txn)


def plan_step(
    tx: Tx, txn: TxnRecord, *, first_seq: int, pack: bool, rows_max: int = PREPARE_ROWS
) -> PreparationStep:
    """Return the next step of a preparation: in a read, so that the work is done outside of the write lock."""
    stream = get_stream(tx, txn.stream, stream_id=txn.stream_id).value
    return plan_preparation(
        tx, txn, current_epoch(tx, stream), first_seq=first_seq, pack=pack, rows_max=rows_max
    )


def take_step(tx: Tx, txn: TxnRecord, planned: PreparationStep, owner: Owner) -> None:
    """Write a planned step. If a scale came after the plan, the round finds that out. Raises OwnerFenced."""
    owner.check(tx)
    apply_preparation(tx, txn, planned)
