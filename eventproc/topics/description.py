"""Topics and partitions as callers see them. Functions of a database transaction."""

from __future__ import annotations

import attrs

from eventproc.store.catalog import StreamRecord
from eventproc.store.database import Tx
from eventproc.store.model.ids import SegmentId, number_of
from eventproc.store.model.policies import Partitioning
from eventproc.store.model.short_repr import short_repr_of_fields
from eventproc.store.model.states import StreamState
from eventproc.streams.description import StreamDescription, describe_stream


@attrs.frozen
class TopicInfo:
    """A topic as `ep.topics()` lists it; `ep.topic(name)` is its handle.

    name: "scope/topic".
    stream_id: the incarnation; never reused.
    state: of its life: active, scaling, sealed and so on.
    partitions: how many it has.
    partitioning: its strategy; OWN if producers bring a Partitioner.
    created_ms: when it was made, in ms since 1970.
    """

    name: str
    stream_id: int
    state: StreamState
    partitions: int
    partitioning: Partitioning
    created_ms: int

    @classmethod
    def of(cls, topic: StreamRecord) -> TopicInfo:
        """Return what is public of a topic's record."""
        return cls(
            name=topic.name,
            stream_id=topic.stream_id,
            state=topic.state,
            partitions=topic.config.scaling.segments_min,
            partitioning=partitioning_of(topic),
            created_ms=topic.created_ms,
        )


@attrs.frozen
class PartitionDescription:
    """A partition: its events have the numbers [first, end), which consumers call offsets.

    number: its number, from 0. segment: its segment. size_bytes: of the events that can be read, with frames.
    """

    number: int
    segment: SegmentId
    first: int
    end: int
    size_bytes: int

    @property
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
