"""The offsets of a consumer group: committed, first and last of each partition, and how far the group is behind."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from eventproc.groups import GroupDescription, SegmentLag
from eventproc.store.database import Tx
from eventproc.store.model.ids import number_of
from eventproc.store.model.partitions import is_reserve
from eventproc.store.model.short_repr import short_repr_of_fields
from eventproc.store.segments import segment_state


@attrs.frozen(kw_only=True)
class PartitionOffsets:
    """A partition as a consumer group sees it. Offsets are event numbers.

    consumer: the id of its owner, None without one. target: the id of the consumer that shall own it.
    committed: the next offset to read; None if none was ever committed.
    begin, end: the first offset that is kept, and the one after the last event.
    lag: events from committed to end that are kept; None if no offset was ever committed. Open transactions do not
        count.
    events: how many events the group has not processed, also if no offset was committed.
    lag_ms: time since the first of them was appended; None without one.
    """

    __repr__ = short_repr_of_fields

    topic: str
    partition: int
    consumer: str | None
    target: str | None
    committed: int | None
    begin: int
    end: int
    lag: int | None
    events: int
    lag_ms: int | None


def partition_offsets(tx: Tx, found: GroupDescription) -> tuple[PartitionOffsets, ...]:
    """Return the partitions of a described group, sorted; the segments that will hold no event are left out."""
    return tuple(sorted(_partitions(tx, found), key=lambda each: (each.topic, each.partition)))


def _partitions(tx: Tx, found: GroupDescription) -> Iterator[PartitionOffsets]:
    for each in found.segments:
        if not is_reserve(each.segment):
            yield _of_segment(tx, each)


def _of_segment(tx: Tx, found: SegmentLag) -> PartitionOffsets:
    state = segment_state(tx, found.stream_id, found.segment)
    committed = found.number if found.moved_ms is not None else None
    return PartitionOffsets(
        topic=found.stream,
        partition=number_of(found.segment),
        consumer=found.owner,
        target=found.target,
        committed=committed,
        begin=0 if state is None else state.head_number,
        end=found.number if state is None else state.tail_number,
        lag=None if committed is None else found.events,
        events=found.events,
        lag_ms=found.age_ms,
    )
