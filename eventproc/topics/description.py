"""Topics and partitions as callers see them. Functions of a database transaction."""

from __future__ import annotations

import attrs

from eventproc.store.catalog import StreamRecord
from eventproc.store.database import Tx
from eventproc.store.model.ids import SegmentId, number_of
from eventproc.store.model.policies import Partitioning
from eventproc.store.model.short_repr import short_repr_of_fields
from eventproc.store.records.plain import derived
from eventproc.store.segments import known_state, number_at, offset_at_time
from eventproc.streams.description import StreamDescription, StreamInfo, describe_stream


@attrs.frozen(kw_only=True)
class TopicInfo(StreamInfo):
    """A topic as `ep.topics()` lists it; `ep.topic(name)` is its handle. What a stream has is there, too."""

    @derived
    def partitions(self) -> int:
        """How many partitions it has."""
        return self.config.scaling.segments_min

    @derived
    def partitioning(self) -> Partitioning:
        """Its strategy; OWN if producers bring a Partitioner."""
        return self.config.partitioning or Partitioning.KEY


@attrs.frozen
class PartitionPosition:
    """A place in a partition: `number` is that of the next event to read; `end`, if there is none yet."""

    partition: int
    number: int
    end: int


@attrs.frozen
class PartitionDescription:
    """A partition: its events have the numbers [first, end).

    number: its number, from 0. segment: its segment. size_bytes: of the events that can be read, with frames.
    """

    number: int
    segment: SegmentId
    first: int
    end: int
    size_bytes: int

    @derived
    def events(self) -> int:
        """How many events can be read."""
        return self.end - self.first


@attrs.frozen
class TopicDescription(StreamDescription):
    """A topic as `describe` shows it; everything of one moment. What a stream has is there, too.

    partitioning: its strategy; OWN if producers bring a Partitioner. partitions: by number.
    """

    __repr__ = short_repr_of_fields

    partitioning: Partitioning
    partitions: tuple[PartitionDescription, ...]


def partitioning_of(topic: StreamRecord) -> Partitioning:
    """Return the topic's strategy; KEY if its record has none."""
    return topic.config.partitioning or Partitioning.KEY


def describe_topic(tx: Tx, topic: StreamRecord) -> TopicDescription:
    """Return the topic as it is in this transaction."""
    stream = describe_stream(tx, topic)
    return TopicDescription(
        **attrs.asdict(stream, recurse=False),
        partitioning=partitioning_of(topic),
        partitions=tuple(
            [
                PartitionDescription(
                    number=number_of(each.id),
                    segment=each.id,
                    first=each.head_number,
                    end=each.tail_number,
                    size_bytes=each.tail - each.head,
                )
                for each in stream.segments
            ]
        ),
    )


def position_at(tx: Tx, stream_id: int, segment: SegmentId, time_ms: int) -> PartitionPosition:
    """Return the position in a partition before the events that were appended at or after `time_ms`."""
    state = known_state(tx, stream_id, segment)
    number = number_at(tx, stream_id, segment, offset_at_time(tx, stream_id, segment, time_ms))
    return PartitionPosition(number_of(segment), number, state.tail_number)
