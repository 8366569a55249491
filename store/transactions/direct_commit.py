"""Direct commits: a transaction that fits in one send is begun, appended, decided and finished in one step.

What must be true: the commit takes the next place in its stream's order, so it is refused while an earlier decided
transaction is unfinished. Nothing of it may have been staged, because staged events precede those of this call. The
segments guard the rest: an append to a sealed or deleted segment raises and changes nothing.

A record with version 0 that is committed was committed here, by the handle that made its id, because nobody else knows
an id before it is durable. That is how a repeated call recognises its first run.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any, Final

import attrs

from eventproc.store.catalog import get_writable_stream
from eventproc.store.database import Tx
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.transactions import TxnEvent, TxnState, advance_txn, check_lease
from eventproc.store.segments import SegmentEvents, append
from eventproc.store.transactions.txn_record import (
    CommitOrder,
    TxnRecord,
    change_txn,
    commit_order,
    find_txn,
    finish_commit,
    insert_ended,
    new_txn,
)


@attrs.frozen
class TxnStart:
    """What a transaction begins with.

    stream, stream_id, id: as for `create_txn`. epoch: number of the epoch that routed its events. instance, lease_ms:
    its owner and lease. joint: as in `TxnRecord`. guard: as for `append`.
    """

    stream: str
    stream_id: int
    id: str
    epoch: int
    instance: str
    lease_ms: int | None
    joint: str | None = None
    guard: SegmentId | None = None


def commit_directly(
    tx: Tx, txns: Sequence[tuple[TxnStart, Sequence[SegmentEvents]]], *, seen: bool
) -> list[TxnRecord] | None:
    """Commit a transaction with all its events; return its records, or None, without a change, if the host has to.

    txns: one per stream, all of one id, each with all its events, as for `append`.
    seen: whether an earlier call may have stored the transaction. False saves a look-up per stream.
    Raises InvalidArgument, SegmentSealed or NotFound (route the events again), and without events StreamSealed and
    StreamReplaced; then nothing changed.
    Cost per stream: the append, one row and one index entry; two look-ups per group commit.
    """
    done: list[TxnRecord] = []
    undone: list[tuple[TxnRecord | None, CommitOrder]] = []
    for start, _ in txns:
        check_lease(start.lease_ms)
        found = find_txn(tx, start.stream_id, start.id) if seen else None
        if found is not None and found.state is TxnState.COMMITTED and found.version == 0:
            done.append(found)  # by an earlier call, whose result did not arrive
        else:
            undone.append((found, order := commit_order(tx, start.stream_id)))
            if not _is_possible(order, found):
                return None
    if done:
        return None if undone else done
    return [
        _commit(tx, start, parts, order, found)
        for (start, parts), (found, order) in zip(txns, undone, strict=True)
    ]


def _is_possible(order: CommitOrder, found: TxnRecord | None) -> bool:
    """Return whether the commit may take the next place, and nothing of it is staged."""
    return not order.undone and (found is None or (found.state is TxnState.OPEN and not found.rows))


def _commit(
    tx: Tx, start: TxnStart, parts: Sequence[SegmentEvents], order: CommitOrder, found: TxnRecord | None
) -> TxnRecord:
    if parts:
        appended = append(tx, start.stream, start.stream_id, parts, guard=start.guard)
    else:
        get_writable_stream(tx, start.stream, stream_id=start.stream_id)
        appended = ()
    if len(appended) > 1:
        appended = tuple(sorted(appended, key=_segment))
    decided: dict[str, Any] = {
        "order": order.last + 1,
        "events": sum([where.count for where in appended]),
        "size_bytes": sum([part.events.size_bytes for part in parts]),
        "rows": len(parts),
    }
    if found is not None:
        return finish_commit(tx, change_txn(tx, found, state=_COMMITTING, **decided), appended)
    order.last += 1
    return _end(tx, start, state=_COMMITTED, appended=appended, **decided)


def abort_directly(tx: Tx, start: TxnStart, *, reason: str) -> TxnRecord:
    """Abort a transaction that is not stored; return it."""
    return _end(tx, start, state=_ABORTED, reason=reason)


_segment: Final = attrgetter("segment")
_COMMITTING: Final = advance_txn(TxnState.OPEN, TxnEvent.COMMIT)
_COMMITTED: Final = advance_txn(_COMMITTING, TxnEvent.COMMITTED)
_ABORTED: Final = advance_txn(advance_txn(TxnState.OPEN, TxnEvent.ABORT), TxnEvent.ABORTED)


def _end(tx: Tx, start: TxnStart, *, state: TxnState, **decided: Any) -> TxnRecord:
    """Write the record of a transaction that begins and ends in this step; return it."""
    txn = new_txn(
        tx,
        start.stream,
        start.stream_id,
        start.id,
        epoch=start.epoch,
        instance=start.instance,
        lease_ms=start.lease_ms,
        joint=start.joint,
        state=state,
        finished_ms=tx.now_ms,
        **decided,
    )
    insert_ended(tx, txn)
    return txn
