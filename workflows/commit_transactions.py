"""Commit transactions: make the decided transactions of a stream visible in rounds, in the order of their decisions.

It runs from `_system/commit`, whose events are notices. A round is one database transaction, which also finishes its
notice. Staged rows that a round cannot move unchanged are prepared before, in bounded database transactions without
visible effect. If a process dies in between, the notice is delivered again, and the second run reads every row again
(docs/design/transactions.md).
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from eventproc.store.catalog import STREAM, StreamRecord, current_epoch, get_stream
from eventproc.store.database import Tx
from eventproc.store.model.limits import PREPARE_ROWS, ROUND_TRANSACTIONS
from eventproc.store.model.ranges import KeyRange
from eventproc.store.model.roll import plan_roll
from eventproc.store.ownership import Owner
from eventproc.store.progress import EventRef, finish_event
from eventproc.store.records import Versioned, replace
from eventproc.store.transactions import (
    CommitRound,
    PreparationStep,
    TxnNotice,
    TxnRecord,
    commit_round,
    has_decided,
    notify_commit,
    plan_preparation,
    record_commit_failure,
)
from eventproc.workflows.scale_stream import publish_epoch


def run_round(
    tx: Tx, notice: TxnNotice, event: EventRef, owner: Owner, transactions_max: int = ROUND_TRANSACTIONS
) -> CommitRound:
    """Commit decided transactions of the stream in one step, at most `transactions_max`.

    The notice is finished, and another one posted if transactions are left. If the next transaction has to be prepared
    first (`unprepared`), the notice stays: the caller prepares it and calls again.
    Raises OwnerFenced before any change.
    """
    from eventproc.store.marks import note_commits  # few programs need it

    owner.check(tx)
    if not has_decided(tx, notice.stream_id):
        finish_event(tx, event)  # delivered again, or an earlier round committed them
        return CommitRound()
    # The stream exists and is not sealed: its seal waits for decided transactions.
    stream = get_stream(tx, notice.stream, stream_id=notice.stream_id)
    done = commit_round(tx, stream.value, transactions_max=transactions_max)
    if done.divided and not done.committed:
        done = _roll(tx, stream, done.divided, transactions_max)
    note_commits(tx, notice.stream, done.committed)
    if done.unprepared is None:
        if done.more:
            notify_commit(tx, notice.stream, notice.stream_id)
        finish_event(tx, event)
    return done


def _roll(
    tx: Tx, before: Versioned[StreamRecord], divided: Sequence[KeyRange], transactions_max: int
) -> CommitRound:
    """Commit transactions with events of these key ranges, which scales have divided, between two new epochs.

    One roll serves all following transactions with the same ranges. See `eventproc.store.model.roll`.
    """
    stream, name = before.value, before.value.name
    current = current_epoch(tx, stream)
    plan = plan_roll(current, divided)
    first = publish_epoch(tx, stream, plan.first(current, stream=name, now_ms=tx.now_ms), seal=plan.seal)
    rolled = replace(tx, STREAM, before, attrs.evolve(stream, epoch=first.number))
    done = commit_round(tx, rolled.value, transactions_max=transactions_max)
    opened = [segment.id for segment in first.opened]
    second = publish_epoch(tx, rolled.value, plan.second(first, stream=name, now_ms=tx.now_ms), seal=opened)
    replace(tx, STREAM, rolled, attrs.evolve(rolled.value, epoch=second.number))
    return done


def set_aside(tx: Tx, notice: TxnNotice, event: EventRef, owner: Owner, reason: str) -> bool:
    """Finish the notice of a stream whose next commit failed, and record the reason; return whether the reason is new.

    The stream's commits stop there, because they keep their order, until `notify_failed_commits` posts a notice.
    Raises OwnerFenced.
    """
    owner.check(tx)
    news = record_commit_failure(tx, notice.stream_id, reason=reason)
    finish_event(tx, event)
    return news


def plan_step(
    tx: Tx, txn: TxnRecord, *, first_seq: int, pack: bool, rows_max: int = PREPARE_ROWS
) -> PreparationStep:
    """Return the next step of a preparation. Call it in a read, so that its work does not hold the write lock."""
    stream = get_stream(tx, txn.stream, stream_id=txn.stream_id).value
    return plan_preparation(
        tx, txn, current_epoch(tx, stream), first_seq=first_seq, pack=pack, rows_max=rows_max
    )
