"""The partitions of a consumer group: their committed numbers, and how far the group is behind."""

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
class GroupPartition:
    """A partition as a consumer group sees it.

    consumer: the id of its owner, None without one. target: the id of the consumer that shall own it.
    committed: the number of the next event to read; None if none was ever committed.
    first, end: the number of the first event that is kept, and the one after the last event.
    lag: events from committed to end that are kept; None if nothing was ever committed. Open transactions do not count.
    events: how many events the group has not processed, also if nothing was committed.
    lag_ms: time since the first of them was appended; None without one.
    """

    __repr__ = short_repr_of_fields

    topic: str
    partition: int
    consumer: str | None
    target: str | None
    committed: int | None
    first: int
    end: int
    lag: int | None
    events: int
    lag_ms: int | None


def group_partitions(tx: Tx, found: GroupDescription) -> tuple[GroupPartition, ...]:
    """Return the partitions of a described group, sorted; the segments that will hold no event are left out."""
    return tuple(sorted(_partitions(tx, found), key=lambda each: (each.topic, each.partition)))


def _partitions(tx: Tx, found: GroupDescription) -> Iterator[GroupPartition]:
    for each in found.segments:
        if not is_reserve(each.segment):
            yield _of_segment(tx, each)


def _of_segment(tx: Tx, found: SegmentLag) -> GroupPartition:
    state = segment_state(tx, found.stream_id, found.segment)
    committed = found.number if found.moved_ms is not None else None
    return GroupPartition(
        topic=found.stream,
        partition=number_of(found.segment),
        consumer=found.owner,
        target=found.target,
        committed=committed,
        first=0 if state is None else state.head_number,
        end=found.number if state is None else state.tail_number,
        lag=None if committed is None else found.events,
        events=found.events,
        lag_ms=found.age_ms,
    )
