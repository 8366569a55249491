"""Support for the tests of consumers: events, consumers that settle, and recorded callbacks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence

import anyio

from eventproc import ScalingPolicy, Stream
from eventproc.groups import watch_group
from eventproc.runtime import Eventproc
from eventproc.store.segments import Event
from eventproc.topics import Consumer, Group, TopicPartition

TOPIC = "s/t"


async def make_topic(ep: Eventproc, partitions: int, *, events: int = 0, name: str = TOPIC) -> Stream:
    """Create a topic and write events whose payloads are their numbers."""
    topic = await ep.create_stream(name, scaling=ScalingPolicy.fixed(partitions))
    await produce(topic, range(events))
    return topic


async def produce(topic: Stream, numbers: range) -> None:
    async with topic.writer() as writer:
        await writer.write_many((b"%d" % number, f"k{number}") for number in numbers)


def numbers_of(events: Iterable[Event]) -> list[int]:
    return [int(event.payload) for event in events]


async def poll_all(consumer: Consumer, *, events_max: int = 500) -> list[Event]:
    """Poll until a poll returns nothing."""
    found: list[Event] = []
    while events := await consumer.poll(events_max, timeout_ms=0):
        found += events
    return found


async def settle(ep: Eventproc, consumers: Sequence[Consumer], shares: Sequence[int]) -> None:
    """Poll, without waiting for events, until the consumers own that many partitions."""
    with anyio.fail_after(20), ep.db.subscribe([watch_group("s/g")]) as changes:
        while [len(each.assignment) for each in consumers] != list(shares):
            for each in consumers:
                await each.poll(1, timeout_ms=0)
            await changes.wait(20)


async def eventually(ep: Eventproc, condition: Callable[[], Awaitable[bool]]) -> None:
    with anyio.fail_after(20), ep.db.subscribe([watch_group("s/g")]) as changes:
        while not await condition():
            await changes.wait(20)


async def committed(group: Group) -> dict[tuple[str, int], int | None]:
    return {(each.topic, each.partition): each.committed for each in await group.partitions()}


class Heard:
    """Callbacks that note what they were called with."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[int, ...]]] = []

    async def assigned(self, partitions: tuple[TopicPartition, ...]) -> None:
        self._note("assigned", partitions)

    async def revoked(self, partitions: tuple[TopicPartition, ...]) -> None:
        self._note("revoked", partitions)

    async def lost(self, partitions: tuple[TopicPartition, ...]) -> None:
        self._note("lost", partitions)

    def _note(self, what: str, partitions: tuple[TopicPartition, ...]) -> None:
        self.calls.append((what, tuple(each.partition for each in partitions)))

    def consumer(self, group: Group, name: str, *, auto_commit: bool = True) -> Consumer:
        return group.consumer(
            name,
            auto_commit=auto_commit,
            on_assigned=self.assigned,
            on_revoked=self.revoked,
            on_lost=self.lost,
        )
