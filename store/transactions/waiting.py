"""Waiting for what becomes of a transaction, and learning it without a read where this process made it."""

from __future__ import annotations

from typing import Final

from eventproc.store.database import SharedSlot, Tx, Watch
from eventproc.store.local_results import LocalResults
from eventproc.store.transactions.table import Txn, find_txn

TXN_OUTCOMES: Final = SharedSlot(LocalResults[tuple[int, str], Txn])
"""Transactions that ended, by stream id and transaction id, for callers of this process that wait."""


def watch_txn(stream_id: int, txn_id: str) -> Watch:
    """Return what to subscribe to in order to learn of changes of the transaction, whoever makes them."""

    def probe(tx: Tx) -> int | None:
        found = find_txn(tx, stream_id, txn_id)
        return None if found is None else found.version

    return Watch(("txn", stream_id, txn_id), probe)


def watch_commits(stream_id: int) -> Watch:
    """Return what to subscribe to in order to learn of the stream's commits that this process makes, as the host."""
    return Watch(("commits", stream_id), lambda tx: None)
