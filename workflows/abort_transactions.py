"""Abort transactions: discard their staged events in bounded steps, and free the bytes.

It runs from `_system/abort`. An event there names one transaction, or a stream, for all of its aborting transactions.
The stream itself is not needed; it may be sealed or deleted meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

import attrs

from eventproc.store.database import Tx
from eventproc.store.model.errors import IllegalTransition, NotFound, VersionConflict
from eventproc.store.model.transactions import TxnState
from eventproc.store.ownership import Owner
from eventproc.store.progress import EventRef, finish_event
from eventproc.store.transactions import TxnNotice, decide_abort, drop_staged_step, find_aborting, find_txn


@attrs.frozen
class AbortTimer:
    """A timer's transaction, the version of the transaction when the timer started, and the reason of the abort."""

    stream_id: int
    txn: str
    version: int
    reason: str


def time_out(tx: Tx, timers: Iterable[AbortTimer], owner: Owner) -> None:
    """Decide to abort the transactions of expired timers, each by its version. A stale timer changes nothing.

    Raises OwnerFenced before any change.
    """
    owner.check(tx)
    for timer in timers:
        # An error means that the transaction was pinged or decided, or has ended.
        with suppress(VersionConflict, IllegalTransition, NotFound):
            decide_abort(tx, timer.stream_id, timer.txn, reason=timer.reason, version=timer.version)


def run_step(tx: Tx, notice: TxnNotice, event: EventRef, owner: Owner) -> bool:
    """Discard a part of the staged events; return whether the notice is finished.

    Raises OwnerFenced before any change.
    """
    owner.check(tx)
    txn = (
        find_aborting(tx, notice.stream_id)
        if notice.txn is None
        else find_txn(tx, notice.stream_id, notice.txn)
    )
    if txn is not None and txn.state is TxnState.ABORTING:
        dropped = drop_staged_step(tx, txn)
        if not dropped or notice.txn is None:
            return False
    finish_event(tx, event)
    return True
