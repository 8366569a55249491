"""Dropping what nobody will see: the staged rows and blobs of aborted transactions, and, after a day, what is
remembered of finished ones. Each in bounded steps."""

from __future__ import annotations

from functools import partial
from typing import Final

from eventproc.store.clock import id_floor
from eventproc.store.database import SharedSlot, Tx
from eventproc.store.model.limits import TXN_MEMORY_MS
from eventproc.store.model.transactions import TxnEvent, TxnState, advance_txn
from eventproc.store.segments.reaper import STEP_EXTENTS_MAX, free_unreferenced_blobs
from eventproc.store.transactions.staging import flush_staging
from eventproc.store.transactions.txn_record import (
    TXN_COLUMNS,
    TXN_OUTCOMES,
    TXN_STEP_LIMITS,
    TxnRecord,
    change_txn,
    txn_from_row,
)

FORGET_A_STEP: Final = 1_000
"""Finished transactions forgotten in one step: some milliseconds under the write lock."""

FORGET_STREAMS: Final = 256
"""Streams looked at in one step of forgetting."""


def drop_staged_step(tx: Tx, txn: TxnRecord) -> bool:
    """Drop some of what an aborting transaction has staged, and its bytes; return whether it is aborted now.

    At most STEP_EXTENTS_MAX rows and `TxnStepLimits.abort_blobs` blobs.
    """
    flush_staging(tx)
    rows = tx.execute(
        "SELECT seq, part, place FROM staged WHERE stream_id = ? AND txn = ? ORDER BY seq, part LIMIT ?",
        (txn.stream_id, txn.id, STEP_EXTENTS_MAX + 1),
    ).fetchall()
    blobs_max = tx.shared[TXN_STEP_LIMITS].abort_blobs
    places: set[int] = set()
    dropped: list[tuple[int, str, int, int]] = []
    for seq, part, place in rows[:STEP_EXTENTS_MAX]:
        if place is not None and place not in places:
            if len(places) == blobs_max:
                break
            places.add(place)
        dropped.append((txn.stream_id, txn.id, seq, part))
    tx.executemany("DELETE FROM staged WHERE stream_id = ? AND txn = ? AND seq = ? AND part = ?", dropped)
    free_unreferenced_blobs(tx, sorted(places))
    if len(dropped) < len(rows):
        return False
    state = advance_txn(txn.state, TxnEvent.ABORTED, name=txn.id)
    after = change_txn(tx, txn, state=state, finished_ms=tx.now_ms)
    tx.after(partial(tx.shared[TXN_OUTCOMES].deliver, (txn.stream_id, txn.id), after))
    return True


def find_aborting(tx: Tx, stream_id: int) -> TxnRecord | None:
    """Return a transaction of the stream that is aborting, if there is one. It looks through the unfinished ones."""
    row = tx.execute(
        f"SELECT {TXN_COLUMNS} FROM txn WHERE finished = 0 AND stream_id = ? AND state = ? LIMIT 1",
        (stream_id, TxnState.ABORTING.value),
    ).fetchone()
    return None if row is None else txn_from_row(row)


def forget_txns(tx: Tx) -> bool:
    """Forget transactions that ended more than TXN_MEMORY_MS ago, some of them; return whether there may be more.

    Each call looks at the next FORGET_STREAMS streams, going round: an index by time would cost every commit a b-tree.
    """
    turn = tx.shared[_TXN_SWEEP_POSITION]
    before, stream_id, left = tx.now_ms - TXN_MEMORY_MS, turn.after, FORGET_A_STEP
    for _ in range(FORGET_STREAMS):
        row = tx.execute(
            "SELECT min(stream_id) FROM txn WHERE finished = 1 AND stream_id > ?", (stream_id,)
        ).fetchone()
        if row[0] is None:
            tx.after(partial(turn.go_on, _Turn.FIRST))
            return False
        gone = tx.execute(
            "DELETE FROM txn WHERE finished = 1 AND stream_id = ? AND id IN (SELECT id FROM txn"
            " WHERE finished = 1 AND stream_id = ? AND id < ? AND finished_ms < ? ORDER BY id LIMIT ?)",
            (row[0], row[0], id_floor(before), before, left),
        ).rowcount
        left -= gone
        if not left:
            break
        stream_id = row[0]
    tx.after(partial(turn.go_on, stream_id))
    return True


class _Turn:
    """After which stream the next look begins; lost with the process, which then begins anew."""

    FIRST: Final = -1

    def __init__(self) -> None:
        self.after = self.FIRST

    def go_on(self, after: int) -> None:
        self.after = after


_TXN_SWEEP_POSITION: Final = SharedSlot(_Turn)
