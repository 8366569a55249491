"""Topics: streams with partitions, and what produces to them and consumes them."""

from __future__ import annotations

from eventproc.streams.partitioners import Partitioner
from eventproc.topics.consumer import Consumer
from eventproc.topics.description import PartitionDescription, TopicDescription, TopicInfo
from eventproc.topics.group import Group
from eventproc.topics.group_partitions import GroupPartition
from eventproc.topics.partition import TopicPartition
from eventproc.topics.topic import Topic

__all__ = [
    "Consumer",
    "Group",
    "GroupPartition",
    "PartitionDescription",
    "Partitioner",
    "Topic",
    "TopicDescription",
    "TopicInfo",
    "TopicPartition",
]
