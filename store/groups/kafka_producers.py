"""What is stored of Kafka's producers with transactions, and how it is forgotten."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, TypeVar

import attrs

from eventproc.store.database import SharedSlot, Tx
from eventproc.store.groups.kafka_members import KAFKA_PENDING, PendingCommits
from eventproc.store.groups.kafka_pending import is_over
from eventproc.store.records import RecordKind, decodable, delete, keys
from eventproc.store.segments.reaper import WRITER_MEMORY_MS, ScanCursor

T = TypeVar("T")

FORGET_A_STEP: Final = 100
"""Records of each kind that one step of forgetting reads: some milliseconds under the write lock, every 30 s."""


@attrs.frozen(kw_only=True)
class TransactionalProducer:
    """A producer with transactions.

    producer_id, epoch: its identity; a later one of the same transactional id has a higher epoch. asked: the identity
        with which it asked for this one, (-1, -1) if it had none.
    timeout_ms: how long a transaction of it may last. used_ms: when it last began or ended one, wall clock.
    txn: the id of the one that is open, with until_ms, monotonic, its partitions (stream, stream id, partition) and
        groups. committed: how the last one ended; None before the first one of this epoch.
    positions: {"stream id/partition": position} of what came in earlier transactions of this epoch, the latest last.
    """

    producer_id: int
    epoch: int
    timeout_ms: int
    used_ms: int
    asked: tuple[int, int] = (-1, -1)
    txn: str | None = None
    until_ms: int = 0
    places: tuple[tuple[str, int, int], ...] = ()
    groups: tuple[str, ...] = ()
    committed: bool | None = None
    positions: Mapping[str, int] = attrs.field(factory=dict)


KAFKA_PRODUCER: Final = RecordKind(name="kafka producer", value=TransactionalProducer, immutable=True)

_PRODUCER_SCAN: Final = SharedSlot(lambda: ScanCursor(""))
_PENDING_SCAN: Final = SharedSlot(lambda: ScanCursor(""))
"""The last keys that `forget_producers` looked at."""


def forget_producers(tx: Tx, *, limit: int = FORGET_A_STEP) -> None:
    """Forget producers that were not used for WRITER_MEMORY_MS, and commits of transactions whose time is over.

    Calls go round-robin over both, and look at the next `limit` records of each.
    """
    silent_since = tx.now_ms - WRITER_MEMORY_MS
    _forget(tx, KAFKA_PRODUCER, _PRODUCER_SCAN, limit, lambda each: each.used_ms < silent_since)
    _forget(tx, KAFKA_PENDING, _PENDING_SCAN, limit, partial(_has_ended, tx))


def _has_ended(tx: Tx, pending: PendingCommits) -> bool:
    return is_over(tx, pending.until_ms, pending.timeout_ms)


def _forget(
    tx: Tx, kind: RecordKind[T], slot: SharedSlot[ScanCursor[str]], limit: int, is_old: Callable[[T], bool]
) -> None:
    scan = tx.shared[slot]
    names = keys(tx, kind, after=scan.after, limit=limit)
    for found in decodable(tx, kind, names):
        if is_old(found.value):
            delete(tx, kind, found)
    tx.after(partial(scan.advance, names[-1]) if len(names) == limit else scan.restart)
