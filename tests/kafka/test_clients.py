"""Unmodified clients of Kafka produce to topics of a serving process, and read them, beside eventproc's own."""

from __future__ import annotations

from functools import partial
from typing import TypeVar

import anyio
import pytest
from anyio import to_thread
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from eventproc import CompactionPolicy, Event, ScalingPolicy, Topic
from eventproc.runtime import Eventproc
from eventproc.store.model.limits import HEADERS_COUNT_MAX
from tests.kafka.clients import (
    CLIENTS,
    CONFLUENT,
    PATIENCE_S,
    KafkaClient,
    ReceivedRecord,
    Record,
    confluent_consumer,
    confluent_produce,
    confluent_producer,
    take,
)
from tests.server.support import ServerProcess

pytestmark = pytest.mark.subprocess

T = TypeVar("T")

each_client = pytest.mark.parametrize("client", CLIENTS, ids=lambda each: each.name)

ODD = [
    Record(b"plain", b"key", (("name", b"value"),), 1_000),
    Record(b"no key", None, (), 2_000),
    Record(None, b"key", (), 3_000),
    Record(b"", b"key", (), 4_000),
    Record(b"binary key", b"\xff\x00\xfe", (), 5_000),
    Record(b"empty key", b"", (), 6_000),
    Record(b"twice", b"key", (("name", b"1"), ("name", b"2"), ("other", b"3")), 7_000),
    Record(b"binary header", b"key", (("name", b"\xff"), ("none", None)), 8_000),
    Record(bytes(range(256)) * 3_000, b"large", (), 9_000),
    Record(b"", b"many headers", tuple((f"name {n}", b"%d" % n) for n in range(261)), 10_000),
    Record(
        b"1", b"most headers", (*((f"{n}", b"1") for n in range(HEADERS_COUNT_MAX)), ("none", None)), 11_000
    ),
]
"""Records that the model of the store says, and others that it does not."""


def received(records: list[Record], partition: int = 0) -> list[ReceivedRecord]:
    """Return what a consumer gets of records that were sent to an empty partition."""
    return [
        ReceivedRecord(partition, offset, each.value, each.key, each.headers, each.time or 0)
        for offset, each in enumerate(records)
    ]


async def events_of(topic: Topic, count: int) -> list[Event]:
    """Return the first events of a topic."""
    async with topic.reader() as reader:
        found: list[Event] = []
        async for event in reader:
            found.append(event)
            if len(found) == count:
                break
        return found


@each_client
async def test_what_a_client_sends_comes_back_equal_from_memory_and_from_disk(
    client: KafkaClient, server: ServerProcess, ep: Eventproc
) -> None:
    name = f"odd-{client.name}"
    await ep.create_topic(f"shop/{name}", partitions=2)
    sent = [each for each in ODD if client.name != "kafka-python" or ("none", None) not in each.headers]
    assert await to_thread.run_sync(client.produce, server.kafka, name, 1, sent) == list(range(len(sent)))
    assert await to_thread.run_sync(client.consume, server.kafka, name, 2, len(sent)) == received(sent, 1)
    with ServerProcess(ep.path or "", kafka_scope="shop") as other:  # it has nothing in memory
        found = await to_thread.run_sync(client.consume, other.kafka, name, 2, len(sent))
    assert found == received(sent, 1)


@each_client
async def test_readers_of_the_library_see_the_records_of_clients_without_reserved_headers(
    client: KafkaClient, server: ServerProcess, ep: Eventproc
) -> None:
    name = f"native-{client.name}"
    topic = await ep.create_topic(f"shop/{name}", partitions=1)
    sent = [each for each in ODD if client.name != "kafka-python" or ("none", None) not in each.headers]
    await to_thread.run_sync(client.produce, server.kafka, name, 0, sent)
    events = await events_of(topic, len(sent))
    assert [each.payload for each in events] == [each.value or b"" for each in sent]
    assert [each.key_bytes for each in events] == [each.key for each in sent]
    assert [each.event_time for each in events] == [each.time for each in sent]
    assert [dict(each.headers) for each in events][:1] == [{"name": "value"}]
    assert all(not key.startswith("ep-") for each in events for key in each.headers)


async def test_a_record_for_a_name_that_no_topic_can_have_is_refused_at_once(server: ServerProcess) -> None:
    for name in ("no/topic", "$", "_system"):
        with pytest.raises(KafkaException, match="TOPIC_EXCEPTION"):
            await to_thread.run_sync(confluent_produce, server.kafka, name, 0, [Record(b"a")])


@each_client
async def test_clients_read_what_writers_of_the_library_write(
    client: KafkaClient, server: ServerProcess, ep: Eventproc
) -> None:
    name = f"written-{client.name}"
    topic = await ep.create_topic(f"shop/{name}", partitions=1)
    async with topic.writer() as writer:
        await writer.write(b"a", key="k", event_time=7, headers={"h": "v"})
        await writer.write(b"", key=b"\xff")
        await writer.write(b"own time to live", ttl_ms=10**9, id="event-1")
    found = await to_thread.run_sync(client.consume, server.kafka, name, 1, 3)
    assert [each[:5] for each in found] == [
        (0, 0, b"a", b"k", (("h", b"v"),)),
        (0, 1, None, b"\xff", ()),  # an empty payload removes its key, as a null value does
        (0, 2, b"own time to live", None, ()),
    ]
    assert found[0].time == 7
    assert found[1].time > 10**12  # when it was appended


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_compressed_batches_are_read_as_they_came_and_by_readers_of_the_library(
    codec: str, server: ServerProcess, ep: Eventproc
) -> None:
    name = f"compressed-{codec}"
    topic = await ep.create_topic(f"shop/{name}", partitions=1)
    sent = [Record(b"value %d" % each * 20, b"key", (), each + 1) for each in range(1_000)]
    produce = partial(confluent_produce, settings={"compression.type": codec})
    await to_thread.run_sync(produce, server.kafka, name, 0, sent)
    assert await to_thread.run_sync(CONFLUENT.consume, server.kafka, name, 1, 1_000) == received(sent)
    events = await events_of(topic, 1_000)
    assert [each.payload for each in events] == [each.value for each in sent]


async def test_a_waiting_consumer_gets_what_a_writer_of_the_library_writes(
    server: ServerProcess, ep: Eventproc
) -> None:
    topic = await ep.create_topic("shop/live", partitions=1)
    consumer = confluent_consumer(server.kafka)
    consumer.assign([TopicPartition("live", 0, 0)])
    found: list[ReceivedRecord] = []
    async with topic.writer() as writer, anyio.create_task_group() as tasks:

        async def wait() -> None:
            found.extend(await to_thread.run_sync(take, consumer, 1))

        tasks.start_soon(wait)
        await writer.write(b"live")
    assert [each.value for each in found] == [b"live"]
    await to_thread.run_sync(consumer.close)


async def test_offsets_are_found_by_time_and_a_consumer_can_begin_anywhere(
    server: ServerProcess, ep: Eventproc
) -> None:
    await ep.create_topic("shop/times", partitions=1)
    await to_thread.run_sync(
        confluent_produce, server.kafka, "times", 0, [Record(b"%d" % each) for each in range(10)]
    )
    consumer = confluent_consumer(server.kafka)
    begun = await to_thread.run_sync(consumer.offsets_for_times, [TopicPartition("times", 0, 1)], 60)
    assert [each.offset for each in begun] == [0]
    later = await to_thread.run_sync(consumer.offsets_for_times, [TopicPartition("times", 0, 2**45)], 60)
    assert [each.offset for each in later] == [-1]
    assert await to_thread.run_sync(consumer.get_watermark_offsets, TopicPartition("times", 0), 60) == (0, 10)
    consumer.assign([TopicPartition("times", 0, 7)])
    assert [each.value for each in await to_thread.run_sync(take, consumer, 3)] == [b"7", b"8", b"9"]
    await to_thread.run_sync(consumer.close)


async def test_a_consumer_that_takes_small_answers_only_reads_large_records_of_many_partitions(
    server: ServerProcess, ep: Eventproc
) -> None:
    await ep.create_topic("shop/large", partitions=3)
    for partition in range(3):
        large = [Record(bytes(900_000))] * 2
        await to_thread.run_sync(confluent_produce, server.kafka, "large", partition, large)
    small = {"fetch.max.bytes": 1_000_000, "receive.message.max.bytes": 1_000_512, "log_level": 0}
    consumer = confluent_consumer(server.kafka, small)
    consumer.assign([TopicPartition("large", each, 0) for each in range(3)])
    found = await to_thread.run_sync(take, consumer, 6)
    await to_thread.run_sync(consumer.close)
    assert sorted((each.partition, each.offset) for each in found) == [
        (partition, offset) for partition in range(3) for offset in range(2)
    ]


async def test_a_producer_learns_that_a_topic_was_created_again_with_fewer_partitions(
    server: ServerProcess, ep: Eventproc
) -> None:
    producer = confluent_producer(server.kafka, {"sticky.partitioning.linger.ms": 0, "log_level": 0})
    topic = await ep.create_topic("shop/recreated", partitions=8)

    def produce() -> list[tuple[KafkaError | None, int | None]]:
        reports: list[tuple[KafkaError | None, int | None]] = []
        for _ in range(40):
            producer.produce(
                "recreated", b"v", on_delivery=lambda why, sent: reports.append((why, sent.partition()))
            )
        assert producer.flush(PATIENCE_S) == 0
        return reports

    assert len(set(await to_thread.run_sync(produce))) > 1
    await topic.delete()
    await ep.create_topic("shop/recreated", partitions=1)
    await to_thread.run_sync(produce)  # those for the partitions that are gone fail
    assert set(await to_thread.run_sync(produce)) == {(None, 0)}


async def test_clients_see_the_topics_of_the_scope_and_neither_streams_nor_other_scopes(
    server: ServerProcess, ep: Eventproc
) -> None:
    await ep.create_topic("shop/seen", partitions=3)
    await ep.create_stream("shop/hidden", scaling=ScalingPolicy.fixed(2))
    await ep.create_scope("other")
    await ep.create_topic("other/elsewhere", partitions=1)
    consumer = confluent_consumer(server.kafka)
    seen = (await to_thread.run_sync(partial(consumer.list_topics, timeout=60))).topics
    await to_thread.run_sync(consumer.close)
    assert len(seen["seen"].partitions) == 3
    assert seen.keys().isdisjoint({"hidden", "elsewhere", "other/elsewhere"})


async def test_a_consumer_before_the_begin_of_a_truncated_topic_goes_on_at_its_begin(
    server: ServerProcess, ep: Eventproc
) -> None:
    topic = await ep.create_topic("shop/truncated", partitions=1)
    await to_thread.run_sync(
        confluent_produce, server.kafka, "truncated", 0, [Record(b"%d" % each) for each in range(10)]
    )
    await topic.truncate(partition=0, before_number=6)
    consumer = confluent_consumer(server.kafka, {"auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition("truncated", 0, 2)])
    assert [each.offset for each in await to_thread.run_sync(take, consumer, 4)] == [6, 7, 8, 9]
    await to_thread.run_sync(consumer.close)


async def test_a_topic_that_grows_or_is_created_again_is_served_as_it_is_now(
    server: ServerProcess, ep: Eventproc
) -> None:
    topic = await ep.create_topic("shop/changing", partitions=1)
    await to_thread.run_sync(confluent_produce, server.kafka, "changing", 0, [Record(b"old")] * 3)
    await topic.add_partitions(1)
    assert await to_thread.run_sync(confluent_produce, server.kafka, "changing", 1, [Record(b"new")]) == [0]
    await topic.seal()
    await topic.delete()
    await ep.create_topic("shop/changing", partitions=1)
    assert await to_thread.run_sync(confluent_produce, server.kafka, "changing", 0, [Record(b"again")]) == [0]
    found = await to_thread.run_sync(CONFLUENT.consume, server.kafka, "changing", 1, 1)
    assert [each.value for each in found] == [b"again"]


async def test_a_sealed_topic_is_refused_for_good_and_stays_readable(
    server: ServerProcess, ep: Eventproc
) -> None:
    topic = await ep.create_topic("shop/sealed", partitions=1)
    await to_thread.run_sync(confluent_produce, server.kafka, "sealed", 0, [Record(b"kept")])
    await topic.seal()
    with pytest.raises(KafkaException, match="POLICY_VIOLATION"):
        await to_thread.run_sync(confluent_produce, server.kafka, "sealed", 0, [Record(b"late")])
    found = await to_thread.run_sync(CONFLUENT.consume, server.kafka, "sealed", 1, 1)
    assert [each.value for each in found] == [b"kept"]


async def test_a_compacted_topic_refuses_records_without_a_key_and_leaves_gaps_where_it_removed(
    server: ServerProcess, ep: Eventproc
) -> None:
    topic = await ep.create_topic("shop/table", partitions=1, compaction=CompactionPolicy(min_age_ms=0))
    with pytest.raises(KafkaException, match="INVALID_RECORD"):
        await to_thread.run_sync(confluent_produce, server.kafka, "table", 0, [Record(b"no key")])
    sent = [Record(b"%d" % each, b"key %d" % (each % 3), (), each + 1) for each in range(30)]
    await to_thread.run_sync(confluent_produce, server.kafka, "table", 0, sent)
    await topic.compact()
    with ServerProcess(ep.path or "", kafka_scope="shop") as other:  # it has nothing in memory
        found = await to_thread.run_sync(CONFLUENT.consume, other.kafka, "table", 1, 3)
    assert [(each.offset, each.value) for each in found] == [(27, b"27"), (28, b"28"), (29, b"29")]
