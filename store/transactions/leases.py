"""Which open transactions have ended: their lease is over, or their process is dead.

Both are found by the index of leases, so that a look costs the same for any number of open transactions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import attrs

from eventproc.store.database import Tx, find_number
from eventproc.store.model.transactions import TxnState
from eventproc.store.transactions.txn_record import flush_txns

# A partial index serves a query only if the query repeats its condition literally.
_OPEN: Final = f"FROM txn WHERE state = '{TxnState.OPEN.value}'"


_ENDED_MS: Final = 2**62
"""A time later than every lease: those of another boot have ended."""


@attrs.frozen
class ExpiredTxn:
    """An open transaction that must be aborted. has_lease: its lease ended; False: its process died.

    version: an abort by this version does nothing if the transaction was pinged meanwhile.
    """

    stream_id: int
    txn: str
    version: int
    has_lease: bool


def expired_txns(tx: Tx, is_alive: Callable[[str], bool], *, limit: int) -> list[ExpiredTxn]:
    """Return open transactions whose lease ended or whose process died, at most `limit`.

    Leases of another boot have ended. Cost: two look-ups per boot that is found, and one per live process.
    """
    found: list[ExpiredTxn] = []
    for boot in list(_values(tx, "boot")):
        until_ms = tx.monotonic_ms if boot == tx.clock.boot_id else _ENDED_MS
        found += _expired(tx, "boot = ? AND lease_until_ms <= ?", (boot, until_ms), True, limit)
        without = "boot = ? AND lease_until_ms IS NULL"
        for instance in list(_values(tx, "instance", f"AND {without}", boot)):
            if not is_alive(instance):
                found += _expired(tx, f"{without} AND instance = ?", (boot, instance), False, limit)
    return found[:limit]


def next_lease_end_ms(tx: Tx) -> int | None:
    """Return when the first lease of this boot ends, in monotonic ms; None if no open transaction has one."""
    flush_txns(tx)
    return find_number(tx, f"SELECT min(lease_until_ms) {_OPEN} AND boot = ?", tx.clock.boot_id)


def first_open(tx: Tx) -> tuple[int, str] | None:
    """Return the open transaction that comes first in the index, or None if there is none.

    A transaction that begins after the last one ended has another id, so a watch of this value misses no beginning.
    """
    flush_txns(tx)
    found: tuple[int, str] | None = tx.execute(
        f"SELECT stream_id, id {_OPEN} ORDER BY boot, lease_until_ms LIMIT 1"
    ).fetchone()
    return found


def _expired(
    tx: Tx, condition: str, values: tuple[str | int, ...], has_lease: bool, limit: int
) -> list[ExpiredTxn]:
    rows = tx.execute(
        f"SELECT stream_id, id, version {_OPEN} AND {condition} ORDER BY lease_until_ms LIMIT ?",
        (*values, limit),
    )
    return [ExpiredTxn(stream_id, txn, version, has_lease) for stream_id, txn, version in rows.fetchall()]


def _values(tx: Tx, column: str, condition: str = "", *values: str) -> Iterator[str]:
    """Yield the distinct values of an indexed column, each by one look-up."""
    flush_txns(tx)
    query = f"SELECT {column} {_OPEN} {condition} AND {column} > ? ORDER BY {column} LIMIT 1"
    row = tx.execute(query, (*values, "")).fetchone()
    while row is not None:
        yield row[0]
        row = tx.execute(query, (*values, row[0])).fetchone()
