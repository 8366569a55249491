"""Abort: what a transaction has staged is dropped, in bounded steps, and its bytes are freed.

Run from `_system/abort`: an event names one transaction, or a stream, all of whose aborting ones are meant. It needs
nothing of the stream, which may be sealed or deleted meanwhile.
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
class Timer:
    """What a timer remembers: the transaction, the version that it saw, and why it will abort it."""

    stream_id: int
    txn: str
    version: int
    reason: str


def time_out(tx: Tx, timers: Iterable[Timer], owner: Owner) -> None:
    """Decide to abort, each by the version its timer saw. A stale timer does nothing.

    Raises OwnerFenced, with nothing changed.
    """
    owner.check(tx)
    for timer in timers:
        # When it raises, somebody pinged it, decided it, or it is long over.
        with suppress(VersionConflict, IllegalTransition, NotFound):
            decide_abort(tx, timer.stream_id, timer.txn, reason=timer.reason, version=timer.version)


def run_step(tx: Tx, bell: TxnNotice, event: EventRef, owner: Owner) -> bool:
    """Drop some of it; return whether the event is finished. Raises OwnerFenced, with nothing changed."""
    owner.check(tx)
    txn = find_aborting(tx, bell.stream_id) if bell.txn is None else find_txn(tx, bell.stream_id, bell.txn)
    if txn is not None and txn.state is TxnState.ABORTING:
        dropped = drop_staged_step(tx, txn)
        if not dropped or bell.txn is None:
            return False
    finish_event(tx, event)
    return True
