"""Kafka's clients of a directory with users: who may produce and read what, and what strangers get."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from eventproc import Permission, open_blocking
from eventproc.runtime import Eventproc
from tests.kafka.clients import Record, confluent_consumer, confluent_produce, confluent_producer, take
from tests.kafka.group_peer import GroupPeer, assignment
from tests.kafka.peer import PLAIN_BATCH, KafkaPeer, answer_of, framed, to_fetch, to_produce
from tests.server.support import ServerProcess

pytestmark = pytest.mark.subprocess


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("kafka") / "served"
    with open_blocking(path, durability="os") as ep:
        ep.create_scope("shop")
        ep.create_topic("shop/orders")
        ep.create_topic("shop/others")
        for user in ("writer", "reader", "stranger"):
            ep.users.add(user, password=f"password of {user}")
        ep.users.grant("writer", Permission.READ_UPDATE, "shop/orders")
        ep.users.grant("reader", Permission.READ, "shop/orders")
    path.chmod(0o700)
    return path


@pytest.fixture(scope="module")
def server(certified_server: ServerProcess) -> ServerProcess:
    return certified_server


def settings_of(user: str, certified: dict[str, Path], password: str = "") -> dict[str, Any]:
    return {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(certified["authority"]),
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": password or f"password of {user}",
        "message.timeout.ms": 5_000,
    }


def produce(server: ServerProcess, topic: str, settings: dict[str, Any]) -> list[int]:
    return confluent_produce(server.kafka, topic, 0, [Record(b"v")], settings)


async def test_users_produce_and_read_what_they_may_and_nothing_else(
    server: ServerProcess, certified: dict[str, Path], ep: Eventproc
) -> None:
    may_write, may_read = settings_of("writer", certified), settings_of("reader", certified)
    assert await to_thread.run_sync(produce, server, "orders", may_write) == [0]
    for settings, topic in ((may_read, "orders"), (may_write, "others"), (may_read, "others")):
        with pytest.raises(KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
            await to_thread.run_sync(produce, server, topic, settings)
    del may_read["message.timeout.ms"]
    consumer = confluent_consumer(server.kafka, may_read)
    seen = await to_thread.run_sync(partial(consumer.list_topics, timeout=60))
    assert [*seen.topics] == ["orders"]
    consumer.assign([TopicPartition("orders", 0, 0)])
    assert [each.value for each in await to_thread.run_sync(take, consumer, 1)] == [b"v"]
    await to_thread.run_sync(consumer.close)


async def test_members_of_a_group_may_change_it_and_read_what_they_commit(
    server: ServerProcess, certified: dict[str, Path], ep: Eventproc
) -> None:
    await to_thread.run_sync(produce, server, "orders", settings_of("writer", certified))
    shared = settings_of("reader", certified)
    del shared["message.timeout.ms"]

    def read(group: str) -> list[bytes | None]:
        consumer = confluent_consumer(
            server.kafka, {**shared, "group.id": group, "auto.offset.reset": "earliest"}
        )
        consumer.subscribe(["orders"])
        try:
            found = take(consumer, 1)
            consumer.commit(asynchronous=False)
        finally:
            consumer.close()
        return [each.value for each in found]

    with pytest.raises(AssertionError, match="GROUP_AUTHORIZATION_FAILED"):
        await to_thread.run_sync(read, "shippers")
    assert await ep.groups("shop") == []
    await ep.users.grant("reader", Permission.READ_UPDATE, "shop/shippers")
    assert await to_thread.run_sync(read, "shippers") == [b"v"]
    administrator = AdminClient({"bootstrap.servers": server.kafka, **shared})
    listed = await to_thread.run_sync(lambda: administrator.list_consumer_groups().result(60))
    assert [each.group_id for each in listed.valid] == ["shippers"]
    stranger = settings_of("stranger", certified)
    del stranger["message.timeout.ms"]
    administrator = AdminClient({"bootstrap.servers": server.kafka, **stranger})
    listed = await to_thread.run_sync(lambda: administrator.list_consumer_groups().result(60))
    assert listed.valid == []


async def test_a_producer_with_transactions_needs_its_transactional_id(
    server: ServerProcess, certified: dict[str, Path], ep: Eventproc
) -> None:
    settings = settings_of("writer", certified)
    del settings["message.timeout.ms"]

    def write() -> None:
        producer = confluent_producer(server.kafka, {**settings, "transactional.id": "copier"})
        producer.init_transactions(60)
        producer.begin_transaction()
        producer.produce("orders", b"v")
        producer.commit_transaction(60)

    with pytest.raises(KafkaException, match="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"):
        await to_thread.run_sync(write)
    await ep.users.grant("writer", Permission.READ_UPDATE, "shop/copier")
    await to_thread.run_sync(write)


async def test_a_token_of_a_user_is_a_password(
    server: ServerProcess, certified: dict[str, Path], ep: Eventproc
) -> None:
    token = await ep.users.add_token("writer", "kafka")
    settings = settings_of("writer", certified, token.text)
    assert len(await to_thread.run_sync(produce, server, "orders", settings)) == 1


async def test_a_wrong_password_is_refused(server: ServerProcess, certified: dict[str, Path]) -> None:
    producer = confluent_producer(server.kafka, settings_of("writer", certified, "wrong"))
    with pytest.raises(KafkaException):
        await to_thread.run_sync(partial(producer.list_topics, timeout=5))


async def test_a_peer_without_credentials_learns_and_stores_nothing(
    server: ServerProcess, certified: dict[str, Path]
) -> None:
    with KafkaPeer(server.kafka, certified["authority"]) as peer:
        peer.send(framed("Produce", 9, **to_produce("orders", PLAIN_BATCH)))
        assert peer.take() == b""


async def test_a_consumer_that_waits_gets_nothing_after_its_permission_was_revoked(
    server: ServerProcess, certified: dict[str, Path], ep: Eventproc
) -> None:
    await ep.users.grant("stranger", Permission.READ, "shop/others")
    connect = partial(KafkaPeer, server.kafka, certified["authority"])
    with connect() as waiting, connect() as other:
        for each in (waiting, other):
            each.log_in("stranger", "password of stranger")
        while other.fetch("others", 0)[0] != 0:
            pass
        waiting.send(
            framed("Metadata", 9, topics=[]) + framed("Fetch", 11, **to_fetch("others", 0, wait_ms=30_000))
        )
        waiting.take()  # the next request has begun
        await ep.users.revoke("stranger", "shop/others")
        while other.fetch("others", 0)[0] == 0:
            pass
        async with (await ep.topic("shop/others")).writer() as writer:
            await writer.write(b"not for it")
        answer = answer_of("Fetch", 11, waiting.take())
        (found,) = answer.responses[0].partitions
    assert (found.error_code, bytes(found.records or b"")) == (29, b"")


async def test_a_member_that_waits_for_a_round_is_refused_when_its_permission_was_revoked(
    server: ServerProcess, certified: dict[str, Path], ep: Eventproc
) -> None:
    for user in ("stranger", "reader"):
        await ep.users.grant(user, Permission.READ_UPDATE, "shop/waiters")
    connect = partial(GroupPeer, server.kafka, "waiters", certified["authority"])
    with connect() as leader, connect() as waiting:
        leader.log_in("reader", "password of reader")
        waiting.log_in("stranger", "password of stranger")
        while leader.join(session_ms=60_000).error_code == 30:  # the server has not heard of the grants yet
            pass
        assert leader.sync()[0] == 0
        found: list[int] = []

        async def join() -> None:
            found.append((await to_thread.run_sync(waiting.join)).error_code)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(join)
            while await to_thread.run_sync(leader.beat) != 27:  # the round has not begun
                pass
            await ep.users.revoke("stranger", "shop/waiters")
        assert found == [30]
        assert leader.leave() == 0
    await (await ep.group("shop/waiters")).delete()  # other tests list all groups


async def test_a_leader_does_not_let_its_group_have_topics_that_it_may_not_read(
    server: ServerProcess, certified: dict[str, Path], ep: Eventproc
) -> None:
    await ep.users.grant("reader", Permission.READ_UPDATE, "shop/readers")
    with GroupPeer(server.kafka, "readers", certified["authority"]) as leader:
        leader.log_in("reader", "password of reader")
        while leader.join().error_code == 30:  # the server has not heard of the grant yet
            pass
        given = {leader.member_id: assignment("others", 0)}
        assert leader.sync(given) == (0, assignment("others", 0))
        assert (await (await ep.group("shop/readers")).info()).streams == ()
        assert leader.join().error_code == 0
        assert leader.sync({leader.member_id: assignment("orders", 0)})[0] == 0
    group = await ep.group("shop/readers")
    assert [each.name for each in (await group.info()).streams] == ["shop/orders"]
    await group.delete()  # other tests list all groups
