"""Cleaning up after transactions, in bounded steps.

Dropped are the staged rows and blobs of aborting transactions, and the rows of transactions that ended a day ago, or of
which a stream has very many.
"""

from __future__ import annotations

from functools import partial
from itertools import takewhile
from typing import Final

from eventproc.store.database import SharedSlot, Tx
from eventproc.store.model.limits import (
    TXN_MEMORY_MS,
    TXN_MEMORY_MS_MIN,
    TXNS_ABORTED_MAX,
    TXNS_FINISHED_MAX,
)
from eventproc.store.model.transactions import TxnEvent, TxnState, advance_txn
from eventproc.store.segments.reaper import STEP_EXTENTS_MAX, ScanCursor, free_unreferenced_blobs
from eventproc.store.transactions.txn_record import (
    CLIENT_IDS_END,
    TXN_ID_END,
    TXN_STEP_LIMITS,
    TxnRecord,
    end_txn,
    flush_txns,
    last_finished_order,
    select_txns,
)

FORGET_A_STEP: Final = 1_000
"""Finished transactions forgotten in one step: some milliseconds under the write lock."""

FORGET_STREAMS: Final = 256
"""Streams looked at in one step of forgetting."""


def drop_staged_step(tx: Tx, txn: TxnRecord) -> bool:
    """Drop some staged rows and blobs of an aborting transaction; return whether it is aborted now.

    At most STEP_EXTENTS_MAX rows and `TxnStepLimits.abort_blobs` blobs.
    """
    flush_txns(tx)
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
    end_txn(tx, txn, state=advance_txn(txn.state, TxnEvent.ABORTED, name=txn.id))
    return True


def find_aborting(tx: Tx, stream_id: int) -> TxnRecord | None:
    """Return one aborting transaction of the stream, or None. It reads the stream's unfinished transactions."""
    where = "finished = 0 AND stream_id = ? AND state = ? ORDER BY id LIMIT 1"
    return next(iter(select_txns(tx, where, stream_id, TxnState.ABORTING.value)), None)


_TXN_SCAN: Final = SharedSlot(lambda: ScanCursor(-1))
"""The last stream id that `forget_txns` looked at."""


_OLDEST: Final = """
    SELECT id, created_ms FROM txn
    WHERE finished = 1 AND stream_id = ? AND id > ? AND id < ? ORDER BY id LIMIT ?
"""
_FORGET_OLD: Final = """
    DELETE FROM txn WHERE finished = 1 AND stream_id = ? AND id >= ? AND id <= ? AND finished_ms < ?
"""
_FORGET_MANY: Final = """
    DELETE FROM txn WHERE finished = 1 AND stream_id = ? AND finished_ms < ? AND id IN (
        SELECT id FROM txn WHERE finished = 1 AND stream_id = ? AND position <= ? ORDER BY position LIMIT ?)
"""
# A partial index serves a query only if the query repeats its condition literally.
_ABORTED: Final = f"FROM txn WHERE state = '{TxnState.ABORTED.value}' AND stream_id = ?"
_COUNT_ABORTED: Final = (
    f"SELECT count(*), min(id) FROM (SELECT id {_ABORTED} ORDER BY id DESC LIMIT ?) AS latest"
)
_FORGET_ABORTED: Final = f"""
    DELETE FROM txn WHERE finished = 1 AND stream_id = ? AND finished_ms < ? AND id IN (
        SELECT id {_ABORTED} AND id < ? ORDER BY id LIMIT ?)
"""


def forget_txns(tx: Tx) -> bool:
    """Forget some transactions that ended TXN_MEMORY_MS ago, or before many others of their stream.

    Those are TXNS_FINISHED_MAX commits, or TXNS_ABORTED_MAX aborts; then at least TXN_MEMORY_MS_MIN must have passed.
    Returns whether there may be more.

    Each call looks at the next FORGET_STREAMS streams, round-robin. An index by time would cost every commit a b-tree.
    """
    scan = tx.shared[_TXN_SCAN]
    before, stream_id, left = tx.now_ms - TXN_MEMORY_MS, scan.after, FORGET_A_STEP
    counted = 0
    for _ in range(FORGET_STREAMS):
        row = tx.execute(
            "SELECT min(stream_id) FROM txn WHERE finished = 1 AND stream_id > ?", (stream_id,)
        ).fetchone()
        if row[0] is None:
            tx.after(scan.restart)
            return False
        left -= _forget_old(tx, row[0], "", CLIENT_IDS_END, before, left)
        left -= _forget_old(tx, row[0], CLIENT_IDS_END, TXN_ID_END, before, left)
        left -= _forget_many(tx, row[0], left)
        aborted, oldest = tx.execute(_COUNT_ABORTED, (row[0], TXNS_ABORTED_MAX)).fetchone()
        counted += aborted
        if aborted == TXNS_ABORTED_MAX:
            values = (row[0], tx.now_ms - TXN_MEMORY_MS_MIN, row[0], oldest, left)
            left -= tx.execute(_FORGET_ABORTED, values).rowcount
        if left <= 0:
            break
        stream_id = row[0]
        if counted >= TXNS_ABORTED_MAX:
            break
    tx.after(partial(scan.advance, stream_id))
    return True


def _forget_old(tx: Tx, stream_id: int, first: str, end: str, before: int, limit: int) -> int:
    """Forget transactions of a range of ids that ended before the time `before`, at most `limit`; return how many.

    Such a range is ordered by the time of beginning, so that only rows which began before that time are read.
    """
    rows = tx.execute(_OLDEST, (stream_id, first, end, limit))
    old = [txn_id for txn_id, _ in takewhile(lambda row: row[1] < before, rows)]
    rows.close()
    return tx.execute(_FORGET_OLD, (stream_id, old[0], old[-1], before)).rowcount if old else 0


def _forget_many(tx: Tx, stream_id: int, limit: int) -> int:
    """Forget commits of the stream that TXNS_FINISHED_MAX others followed, at most `limit`; return how many."""
    passed = (last_finished_order(tx, stream_id) or 0) - TXNS_FINISHED_MAX
    values = (stream_id, tx.now_ms - TXN_MEMORY_MS_MIN, stream_id, passed, limit)
    return tx.execute(_FORGET_MANY, values).rowcount
