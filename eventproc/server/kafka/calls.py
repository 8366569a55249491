"""What clients ask and are answered, as values: the messages of the protocol without what only brokers need."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple
from uuid import UUID

import attrs

from eventproc.server.kafka.kafka_errors import KafkaCode

NO_INCARNATION: Final = UUID(int=0)


class TopicPlace(NamedTuple):
    """A partition of a topic, by the name that Kafka's clients know."""

    topic: str
    partition: int


@attrs.frozen
class ApiVersions:
    """Which calls are served, in which versions?"""


@attrs.frozen
class Metadata:
    """Which topics are there, and who serves them? topics: None: all."""

    topics: Sequence[str] | None


@attrs.frozen
class Produce:
    """Append a batch of records to each of some partitions.

    needs_answer: whether the client waits for one. transactional_id: of a producer with transactions.
    """

    batches: Sequence[tuple[TopicPlace, bytes]]
    needs_answer: bool
    transactional_id: str | None = None


@attrs.frozen
class WantedPlace:
    """Where to read on, and how many bytes at most."""

    place: TopicPlace
    offset: int
    bytes_max: int


@attrs.frozen
class Fetch:
    """What follows in some partitions? Waits for bytes_min, for wait_ms at most."""

    wanted: Sequence[WantedPlace]
    wait_ms: int
    bytes_min: int
    bytes_max: int


@attrs.frozen
class ListOffsets:
    """Which events are the first ones of some times? times: in ms, -1 for the end, -2 for the begin."""

    times: Sequence[tuple[TopicPlace, int]]


@attrs.frozen
class EpochPlace:
    """An epoch of a partition's leader. current: the epoch that the client knows, -1: none."""

    place: TopicPlace
    current: int
    epoch: int


@attrs.frozen
class OffsetForLeaderEpoch:
    """Where do epochs of leaders end? The only leader has epoch 0."""

    wanted: Sequence[EpochPlace]


@attrs.frozen
class InitProducerId:
    """Give a producer its identity, or the next epoch of the one that it has (-1: none).

    timeout_ms: how long a transaction of it lasts.
    """

    transactional_id: str | None
    producer_id: int
    epoch: int
    timeout_ms: int = 0


@attrs.frozen
class SaslHandshake:
    """Authenticate by this mechanism. is_bare: its messages follow as frames, without a call around them."""

    mechanism: str
    is_bare: bool = False


@attrs.frozen
class SaslAuthenticate:
    """What the mechanism sends."""

    data: bytes


@attrs.frozen
class TopicAnswer:
    """What there is of a topic: its number of partitions, 0 with an error. incarnation: its id, until it is deleted."""

    name: str
    partitions: int
    code: KafkaCode = KafkaCode.NONE
    incarnation: UUID = NO_INCARNATION


@attrs.frozen
class BatchAnswer:
    """Where a batch was appended: the offset of its first record, -1 if it is not known. text: why it is refused."""

    place: TopicPlace
    code: KafkaCode
    offset: int = -1
    text: str | None = None


@attrs.frozen
class PartitionAnswer:
    """What follows in a partition: batches of records, the offset of the next event, and that of the first one."""

    place: TopicPlace
    code: KafkaCode
    records: bytes = b""
    end: int = -1
    first: int = -1


@attrs.frozen
class FoundOffset:
    """The first event of a time: its offset and its append time in ms; -1 without one."""

    place: TopicPlace
    code: KafkaCode
    offset: int = -1
    time_ms: int = -1


@attrs.frozen
class EpochEnd:
    """Where the epoch of a leader ends: -1 and -1 for one that has not begun."""

    place: TopicPlace
    code: KafkaCode
    epoch: int = -1
    offset: int = -1


Greeting = ApiVersions | SaslHandshake | SaslAuthenticate
"""What a client asks before it is known."""

DataCall = Metadata | Fetch | ListOffsets | OffsetForLeaderEpoch | InitProducerId
"""What a client asks about topics and their events."""
