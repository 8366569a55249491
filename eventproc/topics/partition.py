"""A partition as consumers name it."""

from __future__ import annotations

from typing import NamedTuple

from eventproc.store.model.argument_checks import invalid_argument


class TopicPartition(NamedTuple):
    """A partition of a topic. A plain pair `("shop/clicks", 3)` is equal to it, and accepted wherever one is expected.

    topic: "scope/topic". partition: its number.
    """

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]"


def parse_partition(text: str) -> TopicPartition:
    """Return the partition that a person has written as SCOPE/TOPIC:NUMBER. Raises InvalidArgument."""
    topic, _, number = text.rpartition(":")
    if not topic or not number.isascii() or not number.isdecimal():
        raise invalid_argument("partition", text, "it must look like SCOPE/TOPIC:NUMBER")
    return TopicPartition(topic, int(number))
