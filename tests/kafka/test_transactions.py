"""Unmodified clients of Kafka write in transactions, and copy from topic to topic exactly once."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from aiokafka import AIOKafkaProducer
from anyio import to_thread
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from eventproc.runtime import Eventproc
from tests.kafka.clients import (
    PATIENCE_S,
    Record,
    confluent_consumer,
    confluent_produce,
    member,
    run_aiokafka,
    take,
)
from tests.kafka.group_peer import GroupPeer
from tests.server.support import ServerProcess

pytestmark = pytest.mark.subprocess


def transactional(address: str, name: str, **settings: Any) -> Producer:
    producer = Producer(
        {"bootstrap.servers": address, "transactional.id": name, "linger.ms": 1, "log_level": 0, **settings}
    )
    producer.init_transactions(PATIENCE_S)
    return producer


def values_in(address: str, topic: str, partition: int, count: int) -> list[bytes | None]:
    """Return the values of the first records of a partition."""
    consumer = confluent_consumer(address)
    consumer.assign([TopicPartition(topic, partition, 0)])
    try:
        return [each.value for each in take(consumer, count)]
    finally:
        consumer.close()


def end_of(address: str, topic: str, partition: int = 0) -> int:
    consumer = confluent_consumer(address)
    try:
        found = consumer.get_watermark_offsets(TopicPartition(topic, partition), PATIENCE_S)
        assert found is not None
        return found[1]
    finally:
        consumer.close()


async def test_the_records_of_a_transaction_appear_together_or_not_at_all(
    server: ServerProcess, ep: Eventproc, topic: str
) -> None:
    await (await ep.topic(f"shop/{topic}")).add_partitions(1)

    def write() -> int:
        producer = transactional(server.kafka, f"{topic}-1")
        producer.begin_transaction()
        producer.produce(topic, b"never", partition=0)
        producer.flush(PATIENCE_S)
        producer.abort_transaction(PATIENCE_S)
        producer.begin_transaction()
        for partition in (0, 1):
            for number in range(3):
                producer.produce(topic, b"%d %d" % (partition, number), partition=partition)
        producer.flush(PATIENCE_S)
        before = end_of(server.kafka, topic)
        producer.commit_transaction(PATIENCE_S)
        producer.begin_transaction()
        producer.produce(topic, b"0 3", partition=0)
        producer.commit_transaction(PATIENCE_S)
        return before

    assert await to_thread.run_sync(write) == 0
    found = await to_thread.run_sync(values_in, server.kafka, topic, 0, 4)
    assert found == [b"0 0", b"0 1", b"0 2", b"0 3"]
    assert await to_thread.run_sync(values_in, server.kafka, topic, 1, 3) == [b"1 0", b"1 1", b"1 2"]


async def test_aiokafka_writes_in_transactions(server: ServerProcess, ep: Eventproc, topic: str) -> None:
    def write() -> None:
        async def both() -> None:
            async with AIOKafkaProducer(
                bootstrap_servers=server.kafka, transactional_id=f"{topic}-1"
            ) as producer:
                await producer.begin_transaction()
                await producer.send_and_wait(topic, b"never")
                await producer.abort_transaction()
                async with producer.transaction():
                    await producer.send_and_wait(topic, b"a")
                    await producer.send_and_wait(topic, b"b")

        run_aiokafka(both())

    await to_thread.run_sync(write)
    assert await to_thread.run_sync(values_in, server.kafka, topic, 0, 2) == [b"a", b"b"]


async def test_a_later_producer_of_the_same_id_fences_the_earlier_one_and_aborts_what_it_left(
    server: ServerProcess, ep: Eventproc, topic: str
) -> None:
    def fence() -> None:
        first = transactional(server.kafka, topic)
        first.begin_transaction()
        first.produce(topic, b"never")
        first.flush(PATIENCE_S)
        second = transactional(server.kafka, topic)
        with pytest.raises(KafkaException):
            first.commit_transaction(PATIENCE_S)
        second.begin_transaction()
        second.produce(topic, b"kept")
        second.commit_transaction(PATIENCE_S)

    await to_thread.run_sync(fence)
    assert await to_thread.run_sync(values_in, server.kafka, topic, 0, 1) == [b"kept"]
    assert await to_thread.run_sync(end_of, server.kafka, topic) == 1


def copy(consumer: Consumer, producer: Producer, target: str, messages: list[Message]) -> None:
    """Write the values of messages to another topic, in a transaction that commits their offsets."""
    producer.begin_transaction()
    for each in messages:
        producer.produce(target, each.value())
    positions = consumer.position(consumer.assignment())
    producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), PATIENCE_S)


async def test_offsets_count_when_their_transaction_is_committed_and_not_before(
    server: ServerProcess, ep: Eventproc, topic: str
) -> None:
    source, target = f"{topic}-source", f"{topic}-target"
    for name in (source, target):
        await ep.create_topic(f"shop/{name}", partitions=1)
    records = [Record(b"%d" % each) for each in range(10)]
    await to_thread.run_sync(confluent_produce, server.kafka, source, 0, records)

    def run() -> None:
        producer = transactional(server.kafka, topic)
        with member(server.kafka, topic, source) as consumer, GroupPeer(server.kafka, topic) as peer:
            messages: list[Message] = []
            while len(messages) < 10:
                messages += consumer.consume(10 - len(messages), 1)
            copy(consumer, producer, target, messages)
            assert peer.committed(source, [0]) == {(source, 0): (-1, "")}
            producer.abort_transaction(PATIENCE_S)
            assert peer.committed(source, [0]) == {(source, 0): (-1, "")}
            copy(consumer, producer, target, messages)
            producer.commit_transaction(PATIENCE_S)
            assert peer.committed(source, [0]) == {(source, 0): (10, "")}

    await to_thread.run_sync(run)
    found = await to_thread.run_sync(values_in, server.kafka, target, 0, 10)
    assert found == [each.value for each in records]
    assert (await (await ep.group(f"shop/{topic}")).describe()).events == 0


async def test_a_transaction_survives_the_death_of_the_server(
    ep: Eventproc, server: ServerProcess, topic: str
) -> None:
    def run() -> None:
        with ServerProcess(ep.path or "", kafka_scope="shop") as first:
            port = int(first.kafka.rsplit(":", 1)[1])
            again = {"metadata.recovery.strategy": "none", "reconnect.backoff.max.ms": 200}
            producer = transactional(first.kafka, topic, **again)
            producer.begin_transaction()
            producer.produce(topic, b"before")
            producer.flush(PATIENCE_S)
            first.kill()
            with ServerProcess(ep.path or "", kafka_scope="shop", kafka_port=port):
                producer.produce(topic, b"after")
                producer.commit_transaction(PATIENCE_S)

    await to_thread.run_sync(run)
    assert await to_thread.run_sync(values_in, server.kafka, topic, 0, 2) == [b"before", b"after"]


async def test_a_transaction_whose_time_is_over_is_aborted_and_its_producer_is_told(
    ep: Eventproc, server: ServerProcess, topic: str
) -> None:
    def run() -> None:
        producer = transactional(server.kafka, topic, **{"transaction.timeout.ms": 1_000})
        producer.begin_transaction()
        producer.produce(topic, b"never")
        producer.flush(PATIENCE_S)
        while not finished():
            pass
        with pytest.raises(KafkaException):
            producer.commit_transaction(PATIENCE_S)

    stream = await ep.stream(f"shop/{topic}")

    def finished() -> bool:
        return bool(anyio.from_thread.run(aborted))

    async def aborted() -> bool:
        return bool(await stream.transactions(finished=True))

    await to_thread.run_sync(run)
    assert await to_thread.run_sync(end_of, server.kafka, topic) == 0
