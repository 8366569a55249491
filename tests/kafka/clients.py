"""Unmodified clients of Kafka behind one face, so that a test runs with each of them.

Each function blocks; a test calls it in a thread.
"""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition as AioPartition
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from kafka.structs import TopicPartition as PythonPartition

import kafka

PATIENCE_S = 60
"""How long a client waits. It only turns a hanging test into a failure."""

ONE_BROKER: Mapping[str, Any] = MappingProxyType(
    {"metadata.recovery.strategy": "none", "reconnect.backoff.max.ms": 200, "log_level": 0}
)
"""Of a client of librdkafka: a cluster of one broker that is away for a moment is still the same one."""

NO_SETTINGS: Mapping[str, Any] = MappingProxyType({})

T = TypeVar("T")


class Record(NamedTuple):
    """A record that is sent. time: in ms, None for that of the client's clock."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    time: int | None = None


class ReceivedRecord(NamedTuple):
    """A record that was received."""

    partition: int
    offset: int
    value: bytes | None
    key: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    time: int


class KafkaClient(NamedTuple):
    """A client. produce: sends records to a partition, idempotently, and returns their offsets. consume: from the begin
    of each partition on, until there are so many."""

    name: str
    produce: Callable[[str, str, int, Sequence[Record]], list[int]]
    consume: Callable[[str, str, int, int], list[ReceivedRecord]]


def confluent_producer(address: str, settings: Mapping[str, Any] = NO_SETTINGS) -> Producer:
    return Producer({"bootstrap.servers": address, "enable.idempotence": True, "linger.ms": 1, **settings})


def confluent_produce(
    address: str,
    topic: str,
    partition: int,
    records: Sequence[Record],
    settings: Mapping[str, Any] = NO_SETTINGS,
) -> list[int]:
    """Raises KafkaException for the first record that is refused."""
    producer = confluent_producer(address, settings)
    offsets: list[int] = []
    refused: list[KafkaError] = []

    def note(why: KafkaError | None, message: Message) -> None:
        if why is not None:
            refused.append(why)
        else:
            offset = message.offset()
            assert offset is not None
            offsets.append(offset)

    for each in records:
        producer.produce(
            *(topic, each.value, each.key, partition),
            headers=list(each.headers),
            timestamp=each.time or 0,  # 0: now
            on_delivery=note,
        )
    assert producer.flush(PATIENCE_S) == 0
    if refused:
        raise KafkaException(refused[0])
    return offsets


def confluent_consumer(address: str, settings: Mapping[str, Any] = NO_SETTINGS) -> Consumer:
    fixed = {"bootstrap.servers": address, "group.id": "none", "enable.auto.commit": False}
    return Consumer({**fixed, **settings})


@contextmanager
def member(
    address: str, group: str, topic: str, settings: Mapping[str, Any] = NO_SETTINGS
) -> Iterator[Consumer]:
    """A member of a group, which reads from the head where nothing is committed, and leaves at the end."""
    own = {"group.id": group, "auto.offset.reset": "earliest", "log_level": 0}
    consumer = confluent_consumer(address, {**own, **settings})
    consumer.subscribe([topic])
    try:
        yield consumer
    finally:
        consumer.close()


def confluent_consume(address: str, topic: str, partitions: int, count: int) -> list[ReceivedRecord]:
    consumer = confluent_consumer(address)
    consumer.assign([TopicPartition(topic, each, 0) for each in range(partitions)])
    try:
        return take(consumer, count)
    finally:
        consumer.close()


def take(consumer: Consumer, count: int) -> list[ReceivedRecord]:
    """Return the next records of a consumer."""
    found: list[ReceivedRecord] = []
    while len(found) < count:
        message = consumer.poll(PATIENCE_S)
        assert message is not None, f"only {len(found)} of {count} records came"
        assert message.error() is None, message.error()
        headers = tuple(message.headers() or ())
        place = message.partition(), message.offset()
        found.append(ReceivedRecord(*place, message.value(), message.key(), headers, message.timestamp()[1]))  # type: ignore[arg-type]
    return found


def python_produce(address: str, topic: str, partition: int, records: Sequence[Record]) -> list[int]:
    producer = kafka.KafkaProducer(bootstrap_servers=address, enable_idempotence=True)
    try:
        sent = [
            producer.send(topic, each.value, each.key, _any(each.headers), partition, each.time)
            for each in records
        ]
        return [each.get(PATIENCE_S).offset for each in sent]
    finally:
        producer.close()


def python_consume(address: str, topic: str, partitions: int, count: int) -> list[ReceivedRecord]:
    consumer = kafka.KafkaConsumer(bootstrap_servers=address, consumer_timeout_ms=PATIENCE_S * 1_000)
    try:
        consumer.assign([PythonPartition(topic, each) for each in range(partitions)])
        consumer.seek_to_beginning()
        found = [next(consumer) for _ in range(count)]
    finally:
        consumer.close()
    return [_received(each) for each in found]


def run_aiokafka(work: Coroutine[Any, Any, T]) -> T:
    """Run what uses aiokafka on a loop of its own, which ends with it.

    A connection that aiokafka does not wait for may still be open then. It is collected here, and in no other test;
    what others left is not.
    """
    gc.freeze()
    try:
        return asyncio.run(asyncio.wait_for(work, PATIENCE_S))
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()
        gc.unfreeze()


def aio_produce(address: str, topic: str, partition: int, records: Sequence[Record]) -> list[int]:
    async def produce() -> list[int]:
        async with AIOKafkaProducer(bootstrap_servers=address, enable_idempotence=True) as producer:
            sent = [
                await producer.send(topic, each.value, each.key, partition, each.time, _any(each.headers))
                for each in records
            ]
            return [(await each).offset for each in sent]

    return run_aiokafka(produce())


def aio_consume(address: str, topic: str, partitions: int, count: int) -> list[ReceivedRecord]:
    async def consume() -> list[ReceivedRecord]:
        async with AIOKafkaConsumer(bootstrap_servers=address, auto_offset_reset="earliest") as consumer:
            consumer.assign([AioPartition(topic, each) for each in range(partitions)])
            return [_received(await consumer.getone()) for _ in range(count)]

    return run_aiokafka(consume())


def _any(headers: Iterable[tuple[str, bytes | None]]) -> list[Any]:
    """Return headers for a client whose types know no null, which it sends."""
    return list(headers)


def _received(record: Any) -> ReceivedRecord:
    headers = tuple((name, value) for name, value in record.headers)
    return ReceivedRecord(
        record.partition, record.offset, record.value, record.key, headers, record.timestamp
    )


CONFLUENT = KafkaClient("confluent-kafka", confluent_produce, confluent_consume)
CLIENTS = (
    CONFLUENT,
    KafkaClient("kafka-python", python_produce, python_consume),
    KafkaClient("aiokafka", aio_produce, aio_consume),
)
