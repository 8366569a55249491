"""Beginning, pinging and deciding transactions; each a function of a transaction of the database.

What must be true: a decision is made once. Only a person takes it back, by giving up a commit that fails. The commits
of a stream have one order, that of their decisions. The transaction that decides also posts a notice for the host,
unless one is on its way.

Notices. While a stream has decided transactions, a notice that no host has finished exists; so only the first of
several decisions posts one. If the commit of the first one failed, its `reason` says so, and the host's sweep posts
notices. The notice of an abort names its transaction. That of a seal names none, and means all aborting ones of the
stream.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Final

import attrs

from eventproc.store.catalog import (
    ABORT_STREAM,
    COMMIT_STREAM,
    get_stream,
    get_writable_stream,
    post_event,
)
from eventproc.store.database import Tx
from eventproc.store.model.errors import (
    IllegalTransition,
    NotFound,
    TransactionAborted,
    TransactionMovesProgress,
)
from eventproc.store.model.transactions import (
    PingResult,
    TxnEvent,
    TxnState,
    advance_txn,
    check_lease,
    execution_ms,
    judge_ping,
)
from eventproc.store.transactions.commit_round import commit_round
from eventproc.store.transactions.staging import flush_staging
from eventproc.store.transactions.txn_record import (
    TxnRecord,
    change_txn,
    commit_order,
    failing_streams,
    find_txn,
    flush_txns,
    get_txn,
    has_decided,
    insert_txn,
    joint_rows,
    new_txn,
)

COMMIT_NOW_ROWS: Final = 64
"""Staged rows that a decision moves in its own step, at most. Higher: a decision holds the write lock for longer;
lower: more commits wait for the host, which takes a millisecond and a sync of the disk."""

TXN_OPENED: Final = "transactions"
"""Channel of new transactions, for the host's timers."""


@attrs.frozen
class TxnNotice:
    """The content of an event of `_system/commit` or `_system/abort`: a stream, and perhaps one of its transactions."""

    stream: str
    stream_id: int
    txn: str | None = None

    def encode(self) -> bytes:
        """Return the event's payload."""
        return json.dumps([self.stream, self.stream_id, self.txn]).encode()

    @classmethod
    def decode(cls, payload: bytes) -> TxnNotice:
        """Return the notice that `encode` encoded."""
        return cls(*json.loads(payload))


def create_txn(
    tx: Tx,
    stream: str,
    stream_id: int,
    txn_id: str,
    *,
    instance: str,
    lease_ms: int | None,
    joint: str | None = None,
) -> TxnRecord:
    """Begin a transaction on the stream; return the existing one if it has begun already.

    txn_id: made by the caller with `new_id(clock)`, so that a repeated call begins no second one.
    instance: id of the instance that owns the transaction.
    lease_ms: LEASE_MS_MIN to LEASE_MS_MAX. None: the transaction lasts as long as the instance lives.
    joint: as in `TxnRecord`. The stream is added to the open joint transaction of this id, with its lease, if there is
    one.
    Raises InvalidArgument, NotFound, StreamReplaced, StreamSealed; and TransactionAborted or IllegalTransition if the
    joint transaction is decided. Cost: three look-ups, one row.
    """
    check_lease(lease_ms)
    if (found := find_txn(tx, stream_id, txn_id)) is not None:
        return found
    epoch = get_writable_stream(tx, stream, stream_id=stream_id).value.epoch
    txn = new_txn(
        tx, stream, stream_id, txn_id, epoch=epoch, instance=instance, lease_ms=lease_ms, joint=joint
    )
    if joint is not None and (others := joint_rows(tx, txn_id)):
        first = others[0]
        _verify_undecided(first, "adding a stream")
        txn = attrs.evolve(
            txn,
            created_ms=first.created_ms,
            instance=first.instance,
            lease_ms=first.lease_ms,
            boot_id=first.boot_id,
            lease_until_ms=first.lease_until_ms,
            execution_until_ms=first.execution_until_ms,
        )
    insert_txn(tx, txn)
    tx.wake(TXN_OPENED)
    return txn


def ping(tx: Tx, stream_id: int, txn_id: str, *, instance: str, lease_ms: int | None = None) -> PingResult:
    """Extend the lease of an open transaction, counted from now, and make `instance` its owner; in all its streams.

    lease_ms: the new lease; None keeps the length of the old one.
    Each OK makes a new version, so that a timer of an older version does nothing. A missing transaction returns
    UNKNOWN. Raises InvalidArgument for an invalid lease.
    """
    found = find_txn(tx, stream_id, txn_id)
    if found is None:
        return PingResult.UNKNOWN
    lease = found.lease_ms if lease_ms is None else lease_ms
    same_boot = found.boot_id == tx.clock.boot_id
    # Monotonic times of another boot mean nothing: unless the host ended the transaction, the lease counts from now.
    until = found.execution_until_ms if same_boot else None
    answer = judge_ping(found.state, lease_ms=lease, now_ms=tx.monotonic_ms, execution_until_ms=until)
    if answer is not PingResult.OK:
        return answer
    check_lease(lease)
    if until is None and lease is not None:
        until = tx.monotonic_ms + execution_ms(lease)
    for each in _all_rows(tx, found):
        change_txn(
            tx,
            each,
            instance=instance,
            lease_ms=lease,
            boot_id=tx.clock.boot_id,
            lease_until_ms=None if lease is None else tx.monotonic_ms + lease,
            execution_until_ms=until,
        )
    return PingResult.OK


def decide_commit(tx: Tx, stream_id: int, txn_id: str) -> TxnRecord:
    """Decide to commit: give an open transaction the next place in the order of the stream's commits, and return it.

    A joint transaction gets one in each of its streams. A repeated decision changes nothing.
    Raises NotFound, TransactionAborted, and TransactionMovesProgress for an open joint transaction with a consumer.
    Cost per stream: four look-ups, one row, one index entry, and one small append if the stream has no other decided
    transaction.
    """
    found = get_txn(tx, stream_id, txn_id)
    if found.state is TxnState.OPEN and found.joint:
        raise TransactionMovesProgress(stream=found.stream, txn=txn_id, group=found.joint)
    decided = {each.stream_id: each for each in [_decide_commit(tx, each) for each in _all_rows(tx, found)]}
    return decided[stream_id]


def decide_and_commit(tx: Tx, stream_id: int, txn_id: str) -> TxnRecord:
    """Decide to commit, and commit in the same step if the transaction is small and the next in order; return it.

    Otherwise the host commits it. Raises as `decide_commit`, and what a round raises; then nothing changed.
    Cost: that of a decision, and one insert per staged row, at most COMMIT_NOW_ROWS.
    """
    flush_staging(tx)
    found = get_txn(tx, stream_id, txn_id)
    order = commit_order(tx, stream_id)
    is_small = found.joint is None and found.rows <= COMMIT_NOW_ROWS
    if found.state is not TxnState.OPEN or order.undone or not is_small:
        return decide_commit(tx, stream_id, txn_id)
    state = advance_txn(found.state, TxnEvent.COMMIT, name=_name(found))
    decided = change_txn(tx, found, state=state, order=order.last + 1)
    stream = get_stream(tx, found.stream, stream_id=stream_id).value
    done = commit_round(tx, stream, transactions_max=1)
    if done.committed:
        return done.committed[0]
    notify_commit(tx, found.stream, stream_id)  # it needs a roll, or has to be prepared
    return decided


def decide_joint_commit(tx: Tx, txn_id: str, stream_ids: Collection[int]) -> list[TxnRecord]:
    """Decide to commit a joint transaction in all its streams, and return its records in the order of `stream_ids`.

    For the handle that began it, which moves the progress of its consumer in the same database transaction.
    stream_ids: streams that the caller has added. Raises NotFound if one has no record, TransactionAborted.
    """
    rows = joint_rows(tx, txn_id)
    if not {row.stream_id for row in rows}.issuperset(stream_ids):
        raise NotFound(kind="transaction", name=txn_id)
    decided = {row.stream_id: _decide_commit(tx, row) for row in rows}
    return [decided[each] for each in stream_ids]


def _decide_commit(tx: Tx, found: TxnRecord) -> TxnRecord:
    """Decide to commit in one stream."""
    if found.state in (TxnState.ABORTING, TxnState.ABORTED):
        raise TransactionAborted(stream=found.stream, txn=found.id, reason=found.reason or "")
    state = advance_txn(found.state, TxnEvent.COMMIT, name=_name(found))
    if found.state is not TxnState.OPEN:
        return found
    order = commit_order(tx, found.stream_id)
    if not order.undone:
        notify_commit(tx, found.stream, found.stream_id)
    return change_txn(tx, found, state=state, order=order.last + 1)


def decide_abort(
    tx: Tx, stream_id: int, txn_id: str, *, reason: str, version: int | None = None, force: bool = False
) -> TxnRecord:
    """Decide to abort: the transaction's events never become visible. Return the transaction.

    reason: shown to people. version: the version that a timer saw; None skips the check.
    force: also abort a committing transaction whose commit has failed; the ones decided after it then go on. Of a joint
    one, this gives up the events of this stream only, because other streams may show theirs already.
    A repeated decision changes nothing. Raises NotFound, IllegalTransition (it is committing), VersionConflict.
    """
    found = get_txn(tx, stream_id, txn_id)
    state = state_after_abort(found.state, found.reason, force=force, name=_name(found))
    if state is found.state:
        return found
    given_up = found.state is TxnState.COMMITTING
    others = [] if given_up else [each for each in _all_rows(tx, found) if each.stream_id != stream_id]
    if given_up:
        reason = f"{reason}, as its commit failed: {found.reason}"
    joint = None if given_up else found.joint
    after = change_txn(tx, found, expected=version, state=state, reason=reason, order=None, joint=joint)
    _notify_abort(tx, found)
    for each in others:
        _abort(tx, each, reason=f"{reason}, in {found.stream}")
    if given_up and has_decided(tx, stream_id):
        notify_commit(tx, found.stream, stream_id)
    return after


def _abort(tx: Tx, txn: TxnRecord, *, reason: str) -> None:
    """Decide to abort an open transaction in one stream."""
    change_txn(tx, txn, state=advance_txn(txn.state, TxnEvent.ABORT), reason=reason)
    _notify_abort(tx, txn)


def _notify_abort(tx: Tx, txn: TxnRecord) -> None:
    post_event(tx, ABORT_STREAM, txn.stream, TxnNotice(txn.stream, txn.stream_id, txn.id).encode())


def state_after_abort(state: TxnState, failure: str | None, *, force: bool, name: str = "") -> TxnState:
    """Return the state after a decision to abort. failure: how the commit failed, None if it did not.

    Raises IllegalTransition, as `decide_abort`.
    """
    given_up = force and state is TxnState.COMMITTING and failure is not None
    return advance_txn(state, TxnEvent.GIVE_UP if given_up else TxnEvent.ABORT, name=name)


def abort_open(tx: Tx, stream: str, stream_id: int, *, reason: str) -> bool:
    """Decide to abort all open transactions of the stream, with one notice; return whether there were any.

    Joint ones are aborted in all their streams.
    """
    flush_txns(tx)
    after = advance_txn(TxnState.OPEN, TxnEvent.ABORT)
    aborting = tx.execute(
        _ABORT_OPEN, (after.value, reason, stream_id, stream_id, TxnState.OPEN.value)
    ).fetchall()
    if not aborting:
        return False
    for txn_id, joint in aborting:
        tx.wake(("txn", stream_id, txn_id))
        if joint is not None:
            for each in joint_rows(tx, txn_id):
                if each.state is TxnState.OPEN:
                    _abort(tx, each, reason=f"{reason}, in {stream}")
    post_event(tx, ABORT_STREAM, stream, TxnNotice(stream, stream_id).encode())
    return True


# The same as `change_txn`, for all of them in one statement: a stream may have ten thousand, and this is one step.
_ABORT_OPEN: Final = """
    UPDATE txn SET (state, version, reason, events, bytes, rows) = (
        SELECT ?, version + 1, ?,
            coalesce(max(total_events), 0), coalesce(max(total_bytes), 0), coalesce(max(total_rows), 0)
        FROM (SELECT total_events, total_bytes, total_rows FROM staged WHERE stream_id = ? AND txn = txn.id
              ORDER BY seq DESC, part DESC LIMIT 1) AS last)
    WHERE finished = 0 AND stream_id = ? AND state = ? RETURNING id, joint
"""


def notify_commit(tx: Tx, stream: str, stream_id: int) -> None:
    """Post a notice that makes the host commit the stream's decided transactions."""
    post_event(tx, COMMIT_STREAM, stream, TxnNotice(stream, stream_id).encode())


def notify_failed_commits(tx: Tx) -> None:
    """Post notices for all streams whose next commit failed. It reads every unfinished transaction."""
    for stream, stream_id in failing_streams(tx):
        notify_commit(tx, stream, stream_id)


def _all_rows(tx: Tx, txn: TxnRecord) -> list[TxnRecord]:
    """Return the record, and those of a joint transaction in its other streams."""
    return [txn] if txn.joint is None else joint_rows(tx, txn.id)


def _verify_undecided(txn: TxnRecord, event: str) -> None:
    """Raise TransactionAborted or IllegalTransition if the transaction is decided."""
    if txn.state in (TxnState.ABORTING, TxnState.ABORTED):
        raise TransactionAborted(stream=txn.stream, txn=txn.id, reason=txn.reason or "")
    if txn.state is not TxnState.OPEN:
        raise IllegalTransition(state=txn.state.value, event=event, name=_name(txn))


def _name(txn: TxnRecord) -> str:
    return f"{txn.stream}: transaction {txn.id}"
