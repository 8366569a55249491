"""Unmodified clients of Kafka share topics in groups, through rounds, restarts of the server, and resets."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import pytest
from aiokafka import AIOKafkaConsumer
from anyio import to_thread
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

import kafka
from eventproc.runtime import Eventproc
from tests.kafka.clients import PATIENCE_S, member, run_aiokafka
from tests.server.support import ServerProcess

pytestmark = pytest.mark.subprocess

PARTITIONS = 4


class GroupClient(NamedTuple):
    """A client. read: joins a group, reads so many records of a topic, commits them if it shall, and leaves."""

    name: str
    read: Callable[[str, str, str, int, bool], list[bytes]]


def values_of(consumer: Consumer, count: int) -> list[bytes]:
    """Return the values of the next records."""
    found: list[bytes] = []
    while len(found) < count:
        messages = consumer.consume(count - len(found), PATIENCE_S)
        assert messages, f"only {len(found)} of {count} records came"
        for each in messages:
            assert each.error() is None, each.error()
            found.append(each.value() or b"")
    return found


def confluent_read(address: str, group: str, topic: str, count: int, commits: bool) -> list[bytes]:
    with member(address, group, topic) as consumer:
        found = values_of(consumer, count)
        if commits:
            consumer.commit(asynchronous=False)
    return found


def python_read(address: str, group: str, topic: str, count: int, commits: bool) -> list[bytes]:
    consumer = kafka.KafkaConsumer(
        topic,
        bootstrap_servers=address,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_poll_records=count,
        consumer_timeout_ms=PATIENCE_S * 1_000,
    )
    try:
        found = [next(consumer).value for _ in range(count)]
        if commits:
            consumer.commit()
    finally:
        consumer.close(autocommit=False)
    return found


def aio_read(address: str, group: str, topic: str, count: int, commits: bool) -> list[bytes]:
    async def read() -> list[bytes]:
        async with AIOKafkaConsumer(
            topic,
            bootstrap_servers=address,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        ) as consumer:
            found: list[Any] = [(await consumer.getone()).value for _ in range(count)]
            if commits:
                await consumer.commit()
            return found

    return run_aiokafka(read())


CLIENTS = (
    GroupClient("confluent-kafka", confluent_read),
    GroupClient("kafka-python", python_read),
    GroupClient("aiokafka", aio_read),
)

each_client = pytest.mark.parametrize("client", CLIENTS, ids=lambda each: each.name)


@pytest.fixture
async def orders(ep: Eventproc, unique: str) -> str:
    """A topic of four partitions with ten records in each."""
    topic = await ep.create_topic(f"shop/{unique}-orders", partitions=PARTITIONS)
    async with topic.producer() as producer:
        for each in range(PARTITIONS * 10):
            await producer.write(b"%d %d" % divmod(each, 10), partition=each // 10)
    return f"{unique}-orders"


ALL = {b"%d %d" % (partition, each) for partition in range(PARTITIONS) for each in range(10)}


@each_client
async def test_a_member_goes_on_where_the_last_one_has_committed(
    client: GroupClient, server: ServerProcess, ep: Eventproc, orders: str
) -> None:
    group = f"{orders}-{client.name}"
    read = partial(client.read, server.kafka, group, orders)
    assert set(await to_thread.run_sync(read, 40, False)) == ALL
    first = await to_thread.run_sync(read, 25, True)
    rest = await to_thread.run_sync(read, 15, True)
    assert {*first, *rest} == ALL
    described = await (await ep.group(f"shop/{group}")).describe()
    assert (described.kind, described.phase, described.events) == ("kafka", "empty", 0)


async def test_clients_of_all_kinds_go_on_where_the_others_have_committed(
    server: ServerProcess, orders: str
) -> None:
    found: list[bytes] = []
    for client, count in zip(CLIENTS, (10, 20, 10), strict=True):
        read = partial(client.read, server.kafka, f"{orders}-mixed", orders)
        found += await to_thread.run_sync(read, count, True)
    assert set(found) == ALL
    assert len(found) == len(ALL)


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
async def test_members_divide_the_partitions_and_one_that_leaves_gives_its_own_to_the_others(
    server: ServerProcess, ep: Eventproc, orders: str, strategy: str
) -> None:
    group = f"{orders}-{strategy}"
    settings = {"partition.assignment.strategy": strategy, "heartbeat.interval.ms": 100}

    def divide() -> None:
        with member(server.kafka, group, orders, settings) as one:
            wait_for(lambda: len(one.assignment()) == PARTITIONS, one)
            with member(server.kafka, group, orders, settings) as two:
                wait_for(lambda: len(one.assignment()) == len(two.assignment()) == 2, one, two)
                owned = [{each.partition for each in consumer.assignment()} for consumer in (one, two)]
                assert set.union(*owned) == set(range(PARTITIONS))
            wait_for(lambda: len(one.assignment()) == PARTITIONS, one)

    await to_thread.run_sync(divide)
    described = await (await ep.group(f"shop/{group}")).describe()
    assert (described.members, described.phase) == ((), "empty")


def wait_for(holds: Callable[[], bool], *consumers: Consumer) -> None:
    """Let consumers poll until something holds."""
    for _ in range(PATIENCE_S * 20):
        if holds():
            return
        for each in consumers:
            each.poll(0.05)
    raise AssertionError("it does not hold")


async def test_a_server_that_is_killed_and_started_again_is_no_round_and_delivers_nothing_again(
    ep: Eventproc, server: ServerProcess, orders: str
) -> None:
    group = f"{orders}-kept"

    def read_across_a_kill() -> tuple[list[bytes], int]:
        rounds: list[object] = []
        with ServerProcess(ep.path or "", kafka_scope="shop") as first:
            port = int(first.kafka.rsplit(":", 1)[1])
            with member(first.kafka, group, orders) as consumer:
                consumer.subscribe([orders], on_assign=lambda _, each: rounds.append(each))
                found = values_of(consumer, 15)
                consumer.commit(asynchronous=False)
                first.kill()
                with ServerProcess(ep.path or "", kafka_scope="shop", kafka_port=port):
                    found += values_of(consumer, 25)
                    consumer.commit(asynchronous=False)
                    assert consumer.poll(0) is None
                    consumer.close()
        return found, len(rounds)

    found, rounds = await to_thread.run_sync(read_across_a_kill)
    assert (sorted(found), rounds) == (sorted(ALL), 1)
    assert (await (await ep.group(f"shop/{group}")).describe()).events == 0


async def test_a_member_with_a_name_of_its_own_comes_back_without_a_round(
    server: ServerProcess, ep: Eventproc, orders: str
) -> None:
    settings = {"group.instance.id": "one", "session.timeout.ms": 30_000}

    def come_back() -> None:
        for _ in range(2):
            with member(server.kafka, f"{orders}-static", orders, settings) as consumer:
                wait_for(lambda: len(consumer.assignment()) == PARTITIONS, consumer)

    await to_thread.run_sync(come_back)
    admin = AdminClient({"bootstrap.servers": server.kafka})
    found = await to_thread.run_sync(
        lambda: admin.describe_consumer_groups([f"{orders}-static"])[f"{orders}-static"].result(PATIENCE_S)
    )
    (stays,) = found.members
    assert (stays.group_instance_id, len(stays.assignment.topic_partitions)) == ("one", PARTITIONS)
    partitions = await (await ep.group(f"shop/{orders}-static")).partitions()
    assert [each.consumer for each in partitions] == [stays.member_id] * PARTITIONS


async def test_administrators_list_describe_change_and_delete_groups(
    server: ServerProcess, ep: Eventproc, orders: str
) -> None:
    group = f"{orders}-admin"
    await to_thread.run_sync(confluent_read, server.kafka, group, orders, 40, True)
    admin = AdminClient({"bootstrap.servers": server.kafka})

    def administer() -> None:
        listed = admin.list_consumer_groups().result(PATIENCE_S)
        assert group in [each.group_id for each in listed.valid]
        found = admin.describe_consumer_groups([group])[group].result(PATIENCE_S)
        assert (found.state.name, list(found.members)) == ("EMPTY", [])
        from confluent_kafka import ConsumerGroupTopicPartitions as Offsets

        places = [TopicPartition(orders, 0, 3)]
        admin.alter_consumer_group_offsets([Offsets(group, places)])[group].result(PATIENCE_S)
        read = admin.list_consumer_group_offsets([Offsets(group)])[group].result(PATIENCE_S)
        assert {each.partition: each.offset for each in read.topic_partitions} == {0: 3, 1: 10, 2: 10, 3: 10}
        admin.delete_consumer_groups([group])[group].result(PATIENCE_S)

    await to_thread.run_sync(administer)
    assert f"shop/{group}" not in [each.name for each in await ep.groups("shop")]


async def test_a_group_that_the_library_has_reset_reads_on_there(
    server: ServerProcess, ep: Eventproc, orders: str
) -> None:
    group = f"{orders}-reset"
    await to_thread.run_sync(confluent_read, server.kafka, group, orders, 40, True)
    found = await ep.group(f"shop/{group}")
    await found.reset_partitions(shift=-4, partitions=[(f"shop/{orders}", 2)])
    again = await to_thread.run_sync(confluent_read, server.kafka, group, orders, 4, True)
    assert again == [b"2 6", b"2 7", b"2 8", b"2 9"]
    await found.reset("head")
    assert set(await to_thread.run_sync(confluent_read, server.kafka, group, orders, 40, True)) == ALL
