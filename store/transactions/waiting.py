"""Waiting for what becomes of a transaction, and learning it without a read where this process made it.

Memory of one opening of a database, as for the outcomes of requests: what another process commits never comes here;
its waiter is woken by the bell, and reads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from eventproc.store.database import Tx, Watch
from eventproc.store.transactions.table import Txn, find_txn


class Endings:
    """Transactions that somebody of this process waits for, as they ended, by stream and id. On the event loop only."""

    def __init__(self) -> None:
        self._expected: Counter[tuple[int, str]] = Counter()
        self._known: dict[tuple[int, str], Txn] = {}

    @contextmanager
    def expecting(self, stream_id: int, txn_id: str) -> Iterator[None]:
        """Keep the transaction, if it ends while the block runs, until the end of the block."""
        key = stream_id, txn_id
        self._expected[key] += 1
        try:
            yield
        finally:
            self._expected[key] -= 1
            if not self._expected[key]:
                del self._expected[key]
                self._known.pop(key, None)

    def deliver(self, txn: Txn) -> None:
        """Note an ending that is durable now; an effect of the transaction that wrote it."""
        if (key := (txn.stream_id, txn.id)) in self._expected:
            self._known[key] = txn

    def find(self, stream_id: int, txn_id: str) -> Txn | None:
        """Return an expected transaction as it ended, None while that is not known here."""
        return self._known.get((stream_id, txn_id))


def watch_txn(stream_id: int, txn_id: str) -> Watch:
    """Return what to subscribe to in order to learn of changes of the transaction, whoever makes them."""

    def probe(tx: Tx) -> int | None:
        found = find_txn(tx, stream_id, txn_id)
        return None if found is None else found.version

    return Watch(("txn", stream_id, txn_id), probe)


def watch_commits(stream_id: int) -> Watch:
    """Return what to subscribe to in order to learn of the stream's commits that this process makes, as the host."""
    return Watch(("commits", stream_id), lambda tx: None)
