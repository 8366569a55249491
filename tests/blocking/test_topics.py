"""Topics and producers without `await`."""

from __future__ import annotations

import attrs
import pytest

from eventproc import Partitioning
from eventproc.blocking import BlockingEventproc, BlockingTopic
from eventproc.store.model.errors import InvalidArgument


@attrs.frozen
class Visit:
    """A payload whose page decides its partition."""

    page: int


class PartitionByPage:
    """An own strategy, which looks into the payload."""

    def partition(self, key: str | None, payload: Visit, partitions: int) -> int:
        return payload.page % partitions


def pages(topic: BlockingTopic) -> list[tuple[int, bytes]]:
    with topic.reader(payload=bytes) as reader:
        return sorted((event.partition, event.payload) for event in reader.until(topic.tail()))


def test_a_topic_is_produced_to_and_grown(ep: BlockingEventproc) -> None:
    ep.create_scope("shop")
    topic = ep.create_topic("shop/clicks", partitions=2)
    with topic.producer(name="p") as producer:
        producer.write(b"a", partition=1, headers={"h": "v"}, event_time=5)
        producer.post(b"b", partition=0)
        assert topic.add_partitions(1) == (2,)
        producer.write_many([(b"c", "k")], sequence=10)
        producer.flush()
        assert (producer.name, producer.sequence, producer.events_written) == ("p", 10, 3)
    found = ep.topic("shop/clicks")
    assert [each.events for each in found.partitions()].count(1) >= 1
    assert {payload for _, payload in pages(found)} == {b"a", b"b", b"c"}
    with topic.transaction() as txn:
        txn.write(b"d", partition=2)
    assert (2, b"d") in pages(found)
    topic.truncate(partition=1, before_number=1)
    topic.alter(partitioning="round_robin")
    assert ep.topics()[0].partitioning is Partitioning.ROUND_ROBIN
    topic.delete()
    assert ep.topics() == []


def test_an_own_strategy_gets_the_payload_as_it_was_written(ep: BlockingEventproc) -> None:
    ep.create_scope("shop")
    topic = ep.create_topic("shop/visits", partitions=3, partitioning=PartitionByPage(), payload=Visit)
    with topic.producer() as producer:
        producer.write(Visit(4), key="k")
        producer.write_many([(Visit(5), None)])
    assert [partition for partition, _ in pages(ep.topic("shop/visits"))] == [1, 2]
    with pytest.raises(InvalidArgument, match="own strategy"):
        ep.topic("shop/visits").producer()


def test_events_posted_behind_one_for_an_unknown_partition_are_written(ep: BlockingEventproc) -> None:
    ep.create_scope("shop")
    topic = ep.create_topic("shop/clicks", partitions=2)
    with topic.producer() as producer:
        producer.post(b"a", partition=9)
        producer.post(b"b", partition=1)
        with pytest.raises(InvalidArgument, match="partition"):
            producer.flush()
        producer.flush()
        assert pages(topic) == [(1, b"b")]


def test_a_transaction_goes_on_without_an_event_for_an_unknown_partition(ep: BlockingEventproc) -> None:
    ep.create_scope("shop")
    topic = ep.create_topic("shop/clicks", partitions=2)
    with topic.transaction() as txn, ep.transaction() as joint:
        for partition in (0, 9, 1):
            txn.write(b"a", partition=partition)
            joint.write(topic, b"b", partition=partition)
        for each in (txn, joint):
            with pytest.raises(InvalidArgument, match="partition"):
                each.flush()
            each.flush()
    assert pages(topic) == [(0, b"a"), (0, b"b"), (1, b"a"), (1, b"b")]
