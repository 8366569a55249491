"""Transactions as people look at them: whose, how old, how large, how long still. Functions of a transaction."""

from __future__ import annotations

from pathlib import Path

import attrs

from eventproc.store.database import Tx
from eventproc.store.database.instances import is_alive, pid_of
from eventproc.store.segments import AppendResult
from eventproc.store.transactions import TxnRecord, TxnState


@attrs.frozen(kw_only=True)
class TransactionDescription:
    """A transaction of one stream, of one moment.

    created_ms, finished_ms: wall clock. age_ms: since it began. owner: the process that began or pinged it last; None
    in memory, and when it is gone. owner_alive: whether that opening of the directory is still there; True in memory.
    lease_ms: None while it lasts as long as that process lives. lease_left_ms: until it is aborted, unless it is
    pinged. events, size_bytes: what is staged, framed. position: its place in the order of the stream's commits, from
    the decision on. appended: where its events are once it is committed, one entry a segment. reason: of its abort;
    while it is committing, how that failed last.
    """

    id: str
    stream: str
    state: TxnState
    created_ms: int
    age_ms: int
    owner: int | None
    owner_alive: bool
    lease_ms: int | None
    lease_left_ms: int | None
    events: int
    size_bytes: int
    position: int | None
    appended: tuple[AppendResult, ...]
    reason: str | None
    finished_ms: int | None


def describe_txn(tx: Tx, txn: TxnRecord, path: Path | None) -> TransactionDescription:
    """Return the transaction as people look at it. path: the directory, None in memory."""
    is_open = txn.state is TxnState.OPEN
    return TransactionDescription(
        id=txn.id,
        stream=txn.stream,
        state=txn.state,
        created_ms=txn.created_ms,
        age_ms=max(tx.now_ms - txn.created_ms, 0),
        owner=None if path is None else pid_of(path, txn.instance),
        owner_alive=path is None or is_alive(path, txn.instance),
        lease_ms=txn.lease_ms,
        lease_left_ms=txn.lease_left_ms(tx) if is_open else None,
        events=txn.events,
        size_bytes=txn.size_bytes,
        position=txn.position,
        appended=txn.appended,
        reason=txn.reason,
        finished_ms=txn.finished_ms,
    )
