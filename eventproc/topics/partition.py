"""A partition as consumers name it."""

from __future__ import annotations

from typing import NamedTuple


class TopicPartition(NamedTuple):
    """A partition of a topic. A plain pair `("shop/clicks", 3)` is equal to it, and accepted wherever one is expected.

    topic: "scope/topic". partition: its number.
    """

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]"
