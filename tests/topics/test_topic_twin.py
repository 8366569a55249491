"""Topics against a naive twin: lists of payloads by partition, under random writes, growth, strategies, truncation."""

from __future__ import annotations

import random
from collections.abc import Iterable

import anyio
import attrs
import pytest

from eventproc import Event, EventWriter, NewEvent, Topic
from eventproc.runtime import Eventproc
from eventproc.store.model.routing import point
from tests.support.reading import events_of

STEPS_COUNT = 30


@attrs.frozen
class Written:
    """An event of the twin. chosen: its partition was named; such events may overtake those that were routed."""

    payload: bytes
    key: str
    chosen: bool


class TopicTwin:
    """What a topic must hold. heads: how many events of each partition were truncated."""

    def __init__(self, partitions: int) -> None:
        self.lists: list[list[Written]] = [[] for _ in range(partitions)]
        self.heads = [0] * partitions

    def write(self, payload: bytes, key: str, partition: int | None) -> None:
        where = int(point(key) * len(self.lists)) if partition is None else partition
        self.lists[where].append(Written(payload, key, partition is not None))

    def grow(self, count: int) -> None:
        self.lists += [[] for _ in range(count)]
        self.heads += [0] * count

    def verify(self, events: Iterable[Event[bytes]]) -> None:
        """Assert that these are the events; adopt their order, which is free between keys."""
        found: list[list[tuple[int, bytes]]] = [[] for _ in self.lists]
        for event in events:
            found[event.partition].append((event.number, event.payload))
        for partition, (written, head) in enumerate(zip(self.lists, self.heads, strict=True)):
            numbers = [number for number, _ in found[partition]]
            assert numbers == list(range(head, len(written)))
            known = {each.payload: each for each in written[head:]}
            actual = [known[payload] for _, payload in found[partition]]
            assert len(actual) == len(known)
            for each in {(one.key, one.chosen) for one in actual}:
                in_order = [one for one in written[head:] if (one.key, one.chosen) == each]
                assert [one for one in actual if (one.key, one.chosen) == each] == in_order
            written[head:] = actual


def new_events(dice: random.Random, twin: TopicTwin, names: Iterable[int]) -> list[NewEvent[bytes]]:
    """Return some events, and write them to the twin."""
    made = []
    for name in names:
        payload, key = b"%06d" % name, f"k{dice.randrange(12)}"
        partition = dice.randrange(len(twin.lists)) if dice.random() < 0.3 else None
        twin.write(payload, key, partition)
        made.append(NewEvent(payload, key, partition=partition))
    return made


async def step(
    dice: random.Random, topic: Topic, producers: list[EventWriter[bytes]], twin: TopicTwin, first: int
) -> int:
    """Do something to the topic and to the twin; return the name of the next event."""
    names = range(first, first + dice.randint(1, 8))
    action = dice.choice(["one", "many", "many", "transaction", "staged", "grow", "truncate", "alter"])
    producer = dice.choice(producers)
    if action == "one":
        for event in new_events(dice, twin, names):
            await producer.write(event.payload, key=event.key, partition=event.partition)
    elif action == "many":
        await producer.write_many(new_events(dice, twin, names))
    elif action in ("transaction", "staged"):
        async with topic.transaction() as txn:
            await txn.write_many(new_events(dice, twin, names))
            if action == "staged":
                await txn.flush()
    elif action == "grow":
        count = dice.randint(1, 3)
        await topic.add_partitions(count)
        twin.grow(count)
    elif action == "truncate":
        twin.verify(await events_of(topic))
        where = dice.randrange(len(twin.lists))
        number = dice.randint(0, len(twin.lists[where]))
        await topic.truncate(partition=where, before_number=number)
        twin.heads[where] = max(twin.heads[where], number)
    else:  # a strategy that is changed and changed back ends two epochs, and moves no event
        await topic.alter(partitioning="round_robin")
        await topic.alter(partitioning="key")
    return names.stop


@pytest.mark.hunt(seeds=8)
async def test_a_topic_holds_what_lists_hold(seed: int, ep: Eventproc) -> None:
    dice = random.Random(seed)
    twin = TopicTwin(dice.randint(1, 4))
    topic = await ep.create_topic("s/t", partitions=len(twin.lists))
    group = await ep.create_group("s/g", ["s/t"], on_truncated="earliest")
    first = 0
    async with topic.producer() as one, topic.producer(name="two") as two:
        for _ in range(STEPS_COUNT):
            first = await step(dice, topic, [one, two], twin, first)
    twin.verify(await events_of(topic))
    assert [(each.first, each.end) for each in await topic.partitions()] == [
        (head, len(events)) for head, events in zip(twin.heads, twin.lists, strict=True)
    ]
    async with group.reader("r1") as reader:
        with anyio.fail_after(60):
            twin.verify([event async for event in reader.until(await topic.tail())])
