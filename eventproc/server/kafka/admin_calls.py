"""What clients ask and are answered about topics as objects: to create, show, change and delete them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum

import attrs

from eventproc.server.kafka.calls import TopicPlace
from eventproc.server.kafka.kafka_errors import KafkaCode
from eventproc.server.kafka.topic_configs import ConfigChange, ShownConfig


@attrs.frozen
class NewTopic:
    """A topic to create. partitions, replicas: -1: not given. assignments: the brokers of each partition, if given."""

    name: str
    partitions: int
    replicas: int
    assignments: Mapping[int, Sequence[int]]
    configs: Sequence[ConfigChange]


@attrs.frozen
class CreateTopics:
    """Create topics. is_dry: only say whether they can be created."""

    topics: Sequence[NewTopic]
    timeout_ms: int
    is_dry: bool


@attrs.frozen
class DeleteTopics:
    """Delete topics."""

    names: Sequence[str]
    timeout_ms: int


@attrs.frozen
class GrownTopic:
    """A topic to which partitions are added. count: how many it has then. assignments: the brokers of each new one."""

    name: str
    count: int
    assignments: Sequence[Sequence[int]] | None


@attrs.frozen
class CreatePartitions:
    """Add partitions to topics. is_dry: only say whether they can be added."""

    topics: Sequence[GrownTopic]
    timeout_ms: int
    is_dry: bool


@attrs.frozen
class DeleteRecords:
    """Remove the oldest events of partitions. firsts: the offset of the first one that stays, -1: none stays."""

    firsts: Sequence[tuple[TopicPlace, int]]
    timeout_ms: int


class ResourceKind(IntEnum):
    """What has configs here, with the numbers of the protocol."""

    TOPIC = 2
    BROKER = 4


@attrs.frozen
class ConfigResource:
    """What has configs. kind: one of ResourceKind, or another number of the protocol."""

    kind: int
    name: str


@attrs.frozen
class DescribeConfigs:
    """Show configs. resources: each with the names of the wanted ones, None: all. is_explained: with their meaning."""

    resources: Mapping[ConfigResource, Sequence[str] | None]
    is_explained: bool


@attrs.frozen
class AlterConfigs:
    """Change configs. resets_rest: those that are not named get their defaults.

    is_dry: only say whether they can be changed.
    """

    resources: Sequence[tuple[ConfigResource, Sequence[ConfigChange]]]
    resets_rest: bool
    is_dry: bool


@attrs.frozen
class DescribeCluster:
    """Which brokers are there? of_controllers: which controllers instead, which are none that clients see."""

    of_controllers: bool


@attrs.frozen
class TopicOutcome:
    """Whether a topic was changed. text: why not. partitions, configs: those of a new topic."""

    name: str
    code: KafkaCode = KafkaCode.NONE
    text: str | None = None
    partitions: int = -1
    configs: Sequence[ShownConfig] = ()


@attrs.frozen
class FirstOffset:
    """The offset of the first event that a partition has after a truncation, -1 with an error."""

    place: TopicPlace
    code: KafkaCode
    offset: int = -1


@attrs.frozen
class ResourceOutcome:
    """Whether configs were changed, or the configs that were asked for. text: why not."""

    resource: ConfigResource
    code: KafkaCode = KafkaCode.NONE
    text: str | None = None
    configs: Sequence[ShownConfig] = ()


AdminCall = (
    CreateTopics
    | DeleteTopics
    | CreatePartitions
    | DeleteRecords
    | DescribeConfigs
    | AlterConfigs
    | DescribeCluster
)
"""What a client asks about topics as objects."""
