"""Topics: streams with partitions, and what produces to them and consumes them."""

from __future__ import annotations

from eventproc.streams.partitioners import Partitioner as Partitioner
from eventproc.topics.consumer import Consumer as Consumer
from eventproc.topics.description import (
    PartitionDescription as PartitionDescription,
    PartitionPosition as PartitionPosition,
    TopicDescription as TopicDescription,
    TopicInfo as TopicInfo,
)
from eventproc.topics.group import Group as Group
from eventproc.topics.group_partitions import GroupPartition as GroupPartition
from eventproc.topics.partition import TopicPartition as TopicPartition
from eventproc.topics.topic import Topic as Topic
