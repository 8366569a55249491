"""The offsets of a consumer group: committed, first and last of each partition, and how far the group is behind."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from eventproc.groups import GroupDescription, MemberDescription, SegmentLag, describe_group
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


@attrs.frozen(kw_only=True)
class ConsumerGroupDescription:
    """A consumer group at one moment.

    state: Empty, Assigning, Reconciling or Stable.
    generation: grows with each change of members or owners.
    replaced: names of topics that were deleted; the group must be reset.
    lost_events: number of events that were truncated before the group read them.
    """

    __repr__ = short_repr_of_fields

    name: str
    state: str
    topics: tuple[str, ...]
    consumers: tuple[MemberDescription, ...]
    partitions: tuple[PartitionOffsets, ...]
    generation: int
    replaced: tuple[str, ...]
    lost_events: int

    @property
    def assignment(self) -> dict[str, tuple[tuple[str, int], ...]]:
        """The partitions of each consumer: {id: ((topic, partition), ...)}."""
        return {
            member.reader: tuple(
                (each.topic, each.partition) for each in self.partitions if each.consumer == member.reader
            )
            for member in self.consumers
        }

    @property
    def events(self) -> int:
        """Events that are not processed, in all partitions."""
        return sum(each.events for each in self.partitions)


def describe_consumer_group(tx: Tx, name: str) -> ConsumerGroupDescription:
    """Return the description of the group. Raises NotFound. Costs as `describe_group`."""
    found = describe_group(tx, name)
    return ConsumerGroupDescription(
        name=found.name,
        state=found.phase.capitalize(),
        topics=tuple(each.name for each in found.streams),
        consumers=found.members,
        partitions=partition_offsets(tx, found),
        generation=found.generation,
        replaced=found.replaced,
        lost_events=found.lost_events,
    )


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
