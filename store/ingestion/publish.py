"""Publish a sequence: the moved offsets and the pointer of the table in one transaction, which compares both first.

The committed offsets are the only truth about what was ingested. A range is published once: the replica that comes
second finds its sequence published, and a task whose range was read by another one does not match. Source:
docs/design/ingestion.md.
"""

from __future__ import annotations

import attrs

from eventproc.store.database import Tx
from eventproc.store.ingestion.notices import announce
from eventproc.store.ingestion.rows import (
    IngestOffset,
    find_group,
    find_offset,
    find_sequence,
    write_offset,
    write_sequence,
    write_task,
)
from eventproc.store.ingestion.tasks import get_running, with_publications
from eventproc.store.model.ingestion import (
    IngestSequence,
    PartitionKey,
    PublishOutcome,
    SequenceState,
    TaskStats,
)
from eventproc.store.segments import number_at, segment_state


def publish(
    tx: Tx,
    task_id: str,
    worker: str,
    n: int,
    *,
    stats: TaskStats,
) -> PublishOutcome:
    """Publish sequence `n` of the task's group, which the task has read to its ends.

    Its rows must join the table in the same transaction; a range without rows needs nothing else.
    Raises TaskFenced; NotFound if the group has no such sequence.
    Cost: three statements per partition.
    """
    task = get_running(tx, task_id, worker)
    stats = with_publications(task, stats)
    sequence = find_sequence(tx, task.base, n)
    group = find_group(tx, task.base)
    if sequence is None or group is None or sequence.ends is None:
        return PublishOutcome.MISMATCH
    if sequence.state is SequenceState.PUBLISHED:
        write_task(tx, attrs.evolve(task, seen_ms=tx.now_ms, stats=stats))
        return PublishOutcome.ALREADY
    outcome = _compare(tx, group.supervisor, sequence)
    if outcome is PublishOutcome.PUBLISHED:
        _move_offsets(tx, group.supervisor, sequence)
        write_sequence(tx, attrs.evolve(sequence, state=SequenceState.PUBLISHED))
        stats = attrs.evolve(stats, published=stats.published + 1)
        announce(tx)
    write_task(tx, attrs.evolve(task, seen_ms=tx.now_ms, stats=stats))
    return outcome


def _compare(tx: Tx, supervisor: str, sequence: IngestSequence) -> PublishOutcome:
    """Return PUBLISHED if what the sequence read begins where the committed offsets end."""
    ahead = False
    for key, start, _ in _ranges(sequence):
        stored = find_offset(tx, supervisor, key)
        if stored is None or start < stored.offset:
            return PublishOutcome.MISMATCH
        ahead = ahead or start > stored.offset
    return PublishOutcome.RETRY if ahead else PublishOutcome.PUBLISHED


def _ranges(sequence: IngestSequence) -> list[tuple[PartitionKey, int, int]]:
    """Return the partitions of which something was read, with start and end.

    The others have no order: a later group may have read them, and published that, before.
    """
    assert sequence.ends is not None, "an open sequence is not published"
    return [
        (key, start, end) for key, start in sequence.starts.items() if (end := sequence.ends[key]) > start
    ]


def _move_offsets(tx: Tx, supervisor: str, sequence: IngestSequence) -> None:
    for key, _, end in _ranges(sequence):
        state = segment_state(tx, *key)
        if state is None:  # it was deleted with its stream; nothing will be read of it
            write_offset(tx, supervisor, key, IngestOffset(end, 0, closed=True))
            continue
        number = number_at(tx, *key, end) if end >= state.head else state.head_number
        write_offset(tx, supervisor, key, IngestOffset(end, number, state.sealed and end == state.tail))
