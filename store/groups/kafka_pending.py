"""What a transaction of a Kafka producer will commit for a group, if it is committed itself."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import attrs

from eventproc.store.database import Tx
from eventproc.store.groups.kafka_groups import write_note
from eventproc.store.groups.kafka_members import KAFKA_PENDING, KafkaCommit, PendingCommits
from eventproc.store.groups.rows import SegmentKey
from eventproc.store.model.transactions import TxnState
from eventproc.store.records import create, delete, find, get, keys, replace
from eventproc.store.transactions import joint_rows


def add_pending(tx: Tx, group: str, producer: str, pending: PendingCommits) -> None:
    """Keep commits until the producer's transaction ends. A later one of a partition replaces an earlier one."""
    key = f"{group}/{producer}"
    if (found := find(tx, KAFKA_PENDING, key)) is None:
        create(tx, KAFKA_PENDING, key, pending)
        return
    kept = {} if found.value.txn != pending.txn else {each.key: each for each in found.value.commits}
    merged = kept | {each.key: each for each in pending.commits}
    replace(tx, KAFKA_PENDING, found, attrs.evolve(pending, commits=tuple(merged.values())))


def take_pending(tx: Tx, group: str, producer: str) -> tuple[KafkaCommit, ...]:
    """Remove the commits of a producer's transaction, and return them."""
    if (found := find(tx, KAFKA_PENDING, f"{group}/{producer}")) is None:
        return ()
    delete(tx, KAFKA_PENDING, found)
    return found.value.commits


def forget_said(tx: Tx, group: str, moved: Collection[SegmentKey]) -> None:
    """Let nothing count that members said of segments which an administrator has moved since.

    These are the notes of their commits, and what transactions that are open would commit. Some look-ups for each one.
    """
    for each in moved:
        write_note(tx, group, each, "")
    for key in keys(tx, KAFKA_PENDING, prefix=f"{group}/"):
        found = get(tx, KAFKA_PENDING, key)
        left = tuple(each for each in found.value.commits if each.key not in moved)
        if left != found.value.commits:
            replace(tx, KAFKA_PENDING, found, attrs.evolve(found.value, commits=left))


def forget_progress(tx: Tx, group: str, forgotten: Collection[SegmentKey]) -> None:
    """Let nothing be committed in some segments, nor by transactions that are open, and nothing be said about them."""
    for each in forgotten:
        tx.execute(
            "UPDATE group_segment SET moved_ms = NULL WHERE group_name = ? AND stream_id = ? AND segment = ?",
            (group, *each),
        )
    forget_said(tx, group, forgotten)


def pending_keys(tx: Tx, group: str) -> set[SegmentKey]:
    """Return the segments whose committed number an open transaction may still change. Some look-ups for each one."""
    undecided = _undecided(tx, group)
    lasting = (each for each in undecided if not is_over(tx, each.until_ms, each.timeout_ms))
    return {commit.key for each in lasting for commit in each.commits}


def has_lapsed(tx: Tx, group: str) -> bool:
    """Return whether the time of an undecided transaction with commits of the group is over.

    Its decision may be waiting for COMMIT. A write comes behind that, or before a decision that is refused.
    """
    return any(is_over(tx, each.until_ms, each.timeout_ms) for each in _undecided(tx, group))


def _undecided(tx: Tx, group: str) -> Iterator[PendingCommits]:
    for key in keys(tx, KAFKA_PENDING, prefix=f"{group}/"):
        pending = get(tx, KAFKA_PENDING, key).value
        if all(each.state is TxnState.OPEN for each in joint_rows(tx, pending.txn)):
            yield pending


def is_over(tx: Tx, until_ms: int, timeout_ms: int) -> bool:
    """Return whether the time of a transaction has passed. A monotonic clock that went back has ended it, too."""
    return not 0 < until_ms - tx.monotonic_ms <= timeout_ms
