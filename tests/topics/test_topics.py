"""Topics: creating, producing by each strategy, growing, truncating, deleting."""

from __future__ import annotations

import itertools
from typing import Any

import attrs
import pytest

from eventproc import Partitioner, ScalingPolicy, Topic
from eventproc.describe import PartitionDescription
from eventproc.runtime import Eventproc
from eventproc.store.model.errors import (
    AlreadyExists,
    InvalidArgument,
    NotFound,
    ScaleRefused,
    StreamReplaced,
)
from eventproc.store.model.policies import Partitioning
from tests.support.reading import events_of
from tests.topics.support import by_partition


@attrs.frozen
class ByLength:
    """An own strategy: events of equal length go to one partition."""

    def partition(self, key: str | None, payload: bytes, partitions: int) -> int:
        return len(payload) % partitions


@attrs.frozen
class Beyond:
    """An own strategy with a mistake."""

    def partition(self, key: str | None, payload: bytes, partitions: int) -> int:
        return partitions


async def test_a_new_topic_has_its_partitions_and_no_other_segment(ep: Eventproc) -> None:
    topic = await ep.create_topic("s/t", partitions=3)
    found = await topic.describe()
    assert (found.partitioning, found.events, found.size_bytes) == (Partitioning.KEY, 0, 0)
    assert [(each.number, each.first, each.end, each.events) for each in found.partitions] == [
        (number, 0, 0, 0) for number in range(3)
    ]
    assert [segment.id for segment in found.segments] == [each.segment for each in found.partitions]
    assert [type(each) for each in await topic.partitions()] == [PartitionDescription] * 3


async def test_creating_a_topic_again_returns_it_unless_it_has_too_few_partitions(ep: Eventproc) -> None:
    topic = await ep.create_topic("s/t", partitions=3)
    for partitions in (3, 1):
        assert (await ep.create_topic("s/t", partitions=partitions)).stream_id == topic.stream_id
    with pytest.raises(AlreadyExists, match="3 partitions, partitioning key"):
        await ep.create_topic("s/t", partitions=4)
    with pytest.raises(AlreadyExists, match=r"topic\.alter"):
        await ep.create_topic("s/t", partitions=3, partitioning="round_robin")
    with pytest.raises(AlreadyExists, match="is a topic"):
        await ep.create_stream("s/t")
    await ep.create_stream("s/u")
    with pytest.raises(AlreadyExists, match="is not a topic"):
        await ep.create_topic("s/u")


async def test_topics_are_found_and_listed_by_name(ep: Eventproc) -> None:
    await ep.create_topic("s/b", partitions=2, partitioning="round_robin")
    await ep.create_stream("s/a")
    (found,) = await ep.topics()
    assert (found.name, found.partitions, found.partitioning) == ("s/b", 2, Partitioning.ROUND_ROBIN)
    assert [each.name for each in await ep.streams("s")] == ["s/a", "s/b"]
    assert (await ep.topic("s/b")).name == "s/b"
    for name in ("s/a", "s/x"):
        with pytest.raises(NotFound, match="topic"):
            await ep.topic(name)
    with pytest.raises(NotFound, match="scope"):
        await ep.topic("x/b")
    assert await ep.topics("s") == [found]


@pytest.mark.parametrize("wrong", ["keys", 1, None, ByLength, object()])
async def test_a_strategy_that_is_none_is_refused(ep: Eventproc, wrong: Any) -> None:
    with pytest.raises(InvalidArgument, match="round_robin"):
        await ep.create_topic("s/t", partitioning=wrong)


async def test_a_stream_without_partitions_refuses_a_partition(ep: Eventproc) -> None:
    stream = await ep.create_stream("s/u")
    async with stream.writer() as writer:
        with pytest.raises(InvalidArgument, match="s/u is not a topic"):
            await writer.write(b"x", partition=0)


async def test_an_event_of_a_topic_knows_its_partition_headers_and_times(ep: Eventproc) -> None:
    topic = await ep.create_topic("s/t", partitions=2)
    async with topic.producer() as producer:
        await producer.write(b"a", key="k", partition=1, headers={"h": "v"}, event_time=7)
        await producer.write(b"b", partition=1)
    first, second = await events_of(topic)
    assert (first.partition, first.number, first.key, first.event_time) == (1, 0, "k", 7)
    assert first.headers == {"h": "v"}
    assert (second.partition, second.number, second.key) == (1, 1, None)


async def test_round_robin_fills_all_partitions_in_turn(ep: Eventproc) -> None:
    topic = await ep.create_topic("s/t", partitions=4, partitioning="round_robin")
    async with topic.producer() as producer:
        for number in range(20):
            await producer.post(b"%d" % number, key="always the same")
    async with topic.transaction() as txn:
        await txn.write_many([(b"%d" % number, None) for number in range(20, 40)])
    found = await by_partition(topic)
    assert [len(each) for each in found.values()] == [10] * 4
    for each in found.values():
        numbers = [int(payload) for payload in each]
        assert [b - a for a, b in itertools.pairwise(numbers[:5])] == [4] * 4


async def test_events_without_a_key_reach_all_partitions(ep: Eventproc) -> None:
    topic = await ep.create_topic("s/t", partitions=3)
    async with topic.producer() as producer:
        for number in range(9):
            await producer.write(b"%d" % number)
    assert [len(each) for each in (await by_partition(topic)).values()] == [3, 3, 3]


async def test_an_own_strategy_chooses_the_partition(ep: Eventproc) -> None:
    topic = await ep.create_topic("s/t", partitions=3, partitioning=ByLength(), payload=bytes)
    assert isinstance(ByLength(), Partitioner)
    assert (await topic.describe()).partitioning is Partitioning.OWN
    async with topic.producer() as producer:
        await producer.write(b"12345", key="k")
        await producer.write_many([(b"1", "k"), (b"123", None)])
        await producer.write(b"1", partition=2)
    assert await by_partition(topic) == {0: [b"123"], 1: [b"1"], 2: [b"12345", b"1"]}


async def test_a_topic_with_an_own_strategy_needs_the_partitioner(ep: Eventproc) -> None:
    await ep.create_topic("s/t", partitions=3, partitioning=ByLength(), payload=bytes)
    topic = await ep.topic("s/t")
    with pytest.raises(InvalidArgument, match="own strategy"):
        await topic.producer()
    async with topic.producer(partitioner=ByLength()) as producer:
        await producer.write(b"12")
    again = await ep.topic("s/t", payload=bytes, partitioner=ByLength())
    async with again.producer() as producer:
        await producer.write(b"12")
    assert await by_partition(topic) == {2: [b"12", b"12"]}


async def test_a_partitioner_that_chooses_no_partition_is_named(ep: Eventproc) -> None:
    topic = await ep.create_topic("s/t", partitions=3)
    async with topic.producer(partitioner=Beyond()) as producer:
        with pytest.raises(InvalidArgument, match=r"Beyond\.partition must return an int of 0 to 2"):
            await producer.write(b"x")


async def test_a_named_producer_recognises_a_repeated_send(ep: Eventproc) -> None:
    topic = await ep.create_topic("s/t", partitions=3)
    for _ in range(2):
        async with topic.producer(name="p") as producer:
            await producer.write_many([(b"a", "x"), (b"b", "y")], sequence=1)
            assert (producer.name, producer.sequence) == ("p", 1)
    assert len(await events_of(topic)) == 2


async def test_typed_payloads_come_from_the_handle(ep: Eventproc) -> None:
    topic = await ep.create_topic("s/t", partitions=2, payload=str)
    async with topic.producer() as producer:
        await producer.write("héllo", partition=0)
        assert producer.events_written == 1
    async with (await ep.topic("s/t", payload=str)).reader() as reader:
        assert [each.payload async for each in reader.until(await topic.tail())] == ["héllo"]


async def test_the_handle_of_a_deleted_topic_is_refused(ep: Eventproc) -> None:
    topic = await ep.create_topic("s/t", partitions=2)
    await topic.delete()
    assert await ep.topics() == []
    again = await ep.create_topic("s/t", partitions=2)
    assert again.stream_id != topic.stream_id
    with pytest.raises(StreamReplaced):
        await topic.producer()
    with pytest.raises(StreamReplaced):
        await topic.describe()


async def test_a_topic_is_not_scaled_by_key_ranges(ep: Eventproc) -> None:
    topic = await ep.create_topic("s/t", partitions=2)
    stream = await ep.stream("s/t")
    first, second = [each.id for each in await stream.segments()]
    with pytest.raises(ScaleRefused, match="add_partitions"):
        await stream.split(first)
    with pytest.raises(ScaleRefused, match="add_partitions"):
        await stream.merge(first, second)
    with pytest.raises(ScaleRefused, match=r"topic\.alter"):
        await stream.update(scaling=ScalingPolicy.fixed(3))
    with pytest.raises(InvalidArgument, match="create_topic"):
        await ep.create_stream("s/u", scaling=ScalingPolicy.partitions(3))
    assert len(await topic.partitions()) == 2


async def test_a_handle_prints_its_name(ep: Eventproc) -> None:
    topic = await ep.create_topic("s/t")
    assert repr(topic) == "Topic('s/t')"
    assert isinstance(topic, Topic)
    async with topic.producer() as producer:
        assert repr(producer) == "EventWriter('s/t', open)"
