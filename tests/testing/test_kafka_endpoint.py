"""The fixture `eventproc_kafka` in a project of a user, with unmodified clients of Kafka."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from eventproc.errors import NotFound
from eventproc.testing import KafkaEndpoint
from tests.kafka.clients import CLIENTS, KafkaClient, Record, confluent_consumer, confluent_produce, take
from tests.testing.test_pytest_plugin import run_pytest

pytestmark = pytest.mark.subprocess

PLAIN = """
def produce(servers, value):
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": servers})
    producer.produce("orders", value, b"ana")
    assert producer.flush(60) == 0

def consume(servers):
    import kafka

    consumer = kafka.KafkaConsumer(bootstrap_servers=servers, consumer_timeout_ms=60_000)
    consumer.assign([kafka.TopicPartition("orders", 0)])
    consumer.seek_to_beginning()
    value = next(consumer).value
    consumer.close()
    return value
"""


def test_a_plain_test_produces_consumes_and_looks(tmp_path: Path) -> None:
    test = """
@pytest.mark.parametrize("value", [b"2 apples", b"3 lemons"])
def test_it(eventproc_kafka, value):
    eventproc_kafka.create_topic("orders")
    produce(eventproc_kafka.bootstrap_servers, value)
    assert consume(eventproc_kafka.bootstrap_servers) == value
    assert [event.payload for event in eventproc_kafka.events("orders")] == [value]
    assert [each.name for each in eventproc_kafka.ep.topics("kafka")] == ["kafka/orders"]
"""
    code, printed = run_pytest(tmp_path, PLAIN + test)
    assert (code, "2 passed" in printed) == (0, True), printed


def test_async_tests_use_it_on_their_own_loops_and_in_virtual_time(tmp_path: Path) -> None:
    test = """
from anyio import to_thread

async def test_virtual(eventproc_kafka, eventproc_runtime):
    eventproc_kafka.create_topic("orders")
    async with eventproc_runtime.running(app) as t:
        await t.write("shop/orders", b"2 apples")
        await t.settled()
    produce(eventproc_kafka.bootstrap_servers, b"2 apples")
    assert len(eventproc_kafka.events("orders")) == 1

@pytest.mark.anyio
async def test_on_a_loop_of_another_plugin(eventproc_kafka):
    eventproc_kafka.create_topic("orders")
    await to_thread.run_sync(produce, eventproc_kafka.bootstrap_servers, b"1")
    assert await to_thread.run_sync(consume, eventproc_kafka.bootstrap_servers) == b"1"

@pytest.mark.asyncio
async def test_with_a_client_that_is_async(eventproc_kafka):
    from aiokafka import AIOKafkaProducer

    eventproc_kafka.create_topic("orders")
    async with AIOKafkaProducer(bootstrap_servers=eventproc_kafka.bootstrap_servers) as producer:
        await producer.send_and_wait("orders", b"1")
    assert [event.payload for event in eventproc_kafka.events("orders")] == [b"1"]
"""
    code, printed = run_pytest(tmp_path, PLAIN + test)
    assert (code, "4 passed" in printed) == (0, True), printed


def test_nothing_is_left_of_it_after_the_test_although_a_client_is_open(tmp_path: Path) -> None:
    test = """
import socket
import threading
from contextlib import suppress

left = []

def test_it(eventproc_kafka):
    host, port = eventproc_kafka.bootstrap_servers.split(":")
    left.append(socket.create_connection((host, int(port))))

def test_after_it():
    with suppress(ConnectionResetError):
        assert left[0].recv(1) == b""
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(left[0].getpeername())
    left[0].close()
    assert [each.name for each in threading.enumerate() if each.name == "eventproc"] == []
"""
    code, printed = run_pytest(tmp_path, test)
    assert (code, "2 passed" in printed) == (0, True), printed


@pytest.mark.parametrize("package", ["aiokafka", "kafka", "jwt"])
def test_a_missing_package_is_named_with_what_to_install(package: str, tmp_path: Path) -> None:
    test = f"import sys\nsys.modules['{package}'] = None\ndef test_it(eventproc_kafka): pass\n"
    code, printed = run_pytest(tmp_path, test)
    assert code == 1
    assert f'clients without {package} is not supported; pip install "eventproc[server,kafka]"' in printed


@pytest.mark.parametrize("client", CLIENTS, ids=lambda each: each.name)
def test_clients_find_topics_of_several_partitions_and_only_their_own_endpoint_has_them(
    client: KafkaClient,
) -> None:
    with KafkaEndpoint() as kafka, KafkaEndpoint() as other:
        assert kafka.bootstrap_servers != other.bootstrap_servers
        kafka.create_topic("orders", partitions=2)
        sent = [Record(b"%d" % each, b"key", (), each + 1) for each in range(100)]
        assert client.produce(kafka.bootstrap_servers, "orders", 1, sent) == list(range(100))
        found = client.consume(kafka.bootstrap_servers, "orders", 2, 100)
        assert [(each.partition, each.value) for each in found] == [(1, each.value) for each in sent]
        assert [each.payload for each in kafka.events("orders")] == [each.value for each in sent]
        with pytest.raises(NotFound):
            other.events("orders")
    assert [each for each in threading.enumerate() if each.name == "eventproc"] == []


def test_a_waiting_consumer_gets_what_the_test_writes() -> None:
    with KafkaEndpoint() as kafka:
        topic = kafka.create_topic("orders")
        consumer = confluent_consumer(kafka.bootstrap_servers)
        consumer.assign([TopicPartition("orders", 0, 0)])
        confluent_produce(kafka.bootstrap_servers, "orders", 0, [Record(b"1")])
        assert [each.value for each in take(consumer, 1)] == [b"1"]
        with topic.producer() as producer:
            producer.write(b"2")
        assert [each.value for each in take(consumer, 1)] == [b"2"]
        consumer.close()


def test_a_member_of_a_group_subscribes() -> None:
    with KafkaEndpoint() as kafka:
        kafka.create_topic("orders")
        confluent_produce(kafka.bootstrap_servers, "orders", 0, [Record(b"1")])
        settings = {"group.id": "mailer", "auto.offset.reset": "earliest"}
        consumer = confluent_consumer(kafka.bootstrap_servers, settings)
        consumer.subscribe(["orders"])
        assert [each.value for each in take(consumer, 1)] == [b"1"]
        consumer.close()
