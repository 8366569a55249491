"""Unmodified clients of Kafka create, show, change and delete topics of a serving process."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import anyio
import pytest
from anyio import to_thread
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin._config import AlterConfigOpType
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic

import eventproc
from eventproc import (
    CompactionPolicy,
    NotFound,
    Permission,
    RetentionPolicy,
    StreamConfig,
    open_blocking,
)
from eventproc.runtime import Eventproc
from tests.kafka.admin_clients import (
    ADMINS,
    KafkaAdmin,
    confluent_alter,
    confluent_change,
    confluent_configs,
    confluent_create,
    confluent_create_new,
    confluent_delete,
    confluent_grow,
    confluent_truncate,
    python_admin,
)
from tests.kafka.admin_versions import changed, described, truncated
from tests.kafka.clients import Record, confluent_consumer, confluent_produce, take
from tests.kafka.peer import KafkaPeer, batch_of, framed, new_topic
from tests.server.support import ServerProcess

pytestmark = pytest.mark.subprocess

each_admin = pytest.mark.parametrize("admin", ADMINS, ids=lambda each: each.name)

DEFAULTS = {
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "cleanup.policy": "delete",
    "min.compaction.lag.ms": "0",
    "delete.retention.ms": "86400000",
    "max.message.bytes": "8388608",
    "message.timestamp.type": "CreateTime",
    "min.insync.replicas": "1",
}


async def config_of(ep: Eventproc, topic: str) -> StreamConfig:
    return (await (await ep.topic(f"shop/{topic}")).describe()).config


async def exists(ep: Eventproc, topic: str) -> bool:
    try:
        await ep.topic(f"shop/{topic}")
    except NotFound:
        return False
    return True


@pytest.fixture
def peer(server: ServerProcess) -> Iterator[KafkaPeer]:
    with KafkaPeer(server.kafka) as peer:
        yield peer


@each_admin
async def test_a_topic_that_a_client_creates_serves_clients_and_the_library_until_it_is_deleted(
    admin: KafkaAdmin, server: ServerProcess, ep: Eventproc
) -> None:
    name, address = f"life-{admin.name}", server.kafka
    assert await to_thread.run_sync(admin.create, address, name, 2, {}, False) == 0
    assert await to_thread.run_sync(admin.partitions, address, name) == 2
    sent = [Record(b"%d" % each, b"key", (), each + 1) for each in range(10)]
    assert await to_thread.run_sync(confluent_produce, address, name, 1, sent) == list(range(10))
    assert await to_thread.run_sync(admin.grow, address, name, 5) == 0
    assert await to_thread.run_sync(admin.partitions, address, name) == 5
    assert await to_thread.run_sync(confluent_produce, address, name, 4, sent[:1]) == [0]
    assert await to_thread.run_sync(admin.truncate, address, name, 1, 4) == 0
    partitions = await (await ep.topic(f"shop/{name}")).partitions()
    assert [(each.first, each.end) for each in partitions] == [(0, 0), (4, 10), (0, 0), (0, 0), (0, 1)]
    consumer = confluent_consumer(address, {"auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(name, 1, 0)])
    assert [each.offset for each in await to_thread.run_sync(take, consumer, 6)] == [4, 5, 6, 7, 8, 9]
    await to_thread.run_sync(consumer.close)
    assert await to_thread.run_sync(admin.delete, address, name) == 0
    assert not await exists(ep, name)


@each_admin
async def test_what_is_refused_has_the_code_of_kafka_and_changes_nothing(
    admin: KafkaAdmin, server: ServerProcess, ep: Eventproc
) -> None:
    name, address = f"refused-{admin.name}", server.kafka
    await ep.create_topic(f"shop/{name}", partitions=2)
    await to_thread.run_sync(confluent_produce, address, name, 0, [Record(b"a")] * 3)
    before = await (await ep.topic(f"shop/{name}")).describe()
    assert await to_thread.run_sync(admin.create, address, name, 2, {}, False) == 36
    assert await to_thread.run_sync(admin.create, address, name, 3, {}, True) == 36
    for count in (1, 2, 2_000):
        assert await to_thread.run_sync(admin.grow, address, name, count) == 37
    assert await to_thread.run_sync(admin.alter, address, name, {"retention.ms": "soon"}) == 40
    assert await to_thread.run_sync(admin.truncate, address, name, 0, 4) == 1
    assert await (await ep.topic(f"shop/{name}")).describe() == before
    assert await to_thread.run_sync(admin.delete, address, "absent") == 3
    assert await to_thread.run_sync(admin.alter, address, "absent", {"retention.ms": "1"}) == 3


@each_admin
async def test_a_wrong_new_topic_is_refused_and_not_created(
    admin: KafkaAdmin, server: ServerProcess, ep: Eventproc
) -> None:
    address, name = server.kafka, f"wrong-{admin.name}"
    for topic, code in (("a b", 17), ("_system", 17), ("shop/x", 17), ("..", 17), ("x" * 300, 17)):
        assert await to_thread.run_sync(admin.create, address, topic, 1, {}, False) == code
    for configs in (
        {"no.such.config": "1"},
        {"retention.ms": "0"},
        {"retention.bytes": "1.5"},
        {"cleanup.policy": "archive"},
        {"min.compaction.lag.ms": "5"},
        {"min.insync.replicas": "2"},
        {"cleanup.policy": "compact", "retention.ms": "1000"},
        {"cleanup.policy": "compact,delete"},
    ):
        assert await to_thread.run_sync(admin.create, address, name, 1, configs, False) == 40
    assert await to_thread.run_sync(admin.create, address, name, 1_024, {}, False) == 37
    assert await to_thread.run_sync(admin.create, address, name, 0, {}, False) == 37
    assert await to_thread.run_sync(admin.create, address, name, 4, {}, True) == 0
    assert not await exists(ep, name)


@each_admin
async def test_configs_come_back_equal_and_are_those_that_the_library_shows(
    admin: KafkaAdmin, server: ServerProcess, ep: Eventproc
) -> None:
    name, address = f"configs-{admin.name}", server.kafka
    created = {"retention.ms": "60000", "retention.bytes": "1000000"}
    created |= {"segment.bytes": "7", "compression.type": "lz4"}
    assert await to_thread.run_sync(admin.create, address, name, 1, created, False) == 0
    shown = {"retention.ms": "60000", "retention.bytes": "1000000"}
    assert await to_thread.run_sync(admin.configs, address, name) == DEFAULTS | shown
    assert (await config_of(ep, name)).retention == RetentionPolicy(age_ms=60_000, size_bytes=1_000_000)
    compacted = {"cleanup.policy": "compact", "min.compaction.lag.ms": "5", "delete.retention.ms": "6"}
    changes = compacted | {"retention.ms": None, "retention.bytes": None}
    assert await to_thread.run_sync(admin.alter, address, name, changes) == 0
    assert await to_thread.run_sync(admin.configs, address, name) == DEFAULTS | compacted
    config = await config_of(ep, name)
    assert config.compaction == CompactionPolicy(min_age_ms=5, tombstone_ms=6)
    assert config.retention == RetentionPolicy()
    both = {"cleanup.policy": "compact,delete", "retention.ms": "7"}
    assert await to_thread.run_sync(admin.alter, address, name, both) == 0
    assert await to_thread.run_sync(admin.configs, address, name) == DEFAULTS | both | (
        {} if admin.name == "aiokafka" else dict(list(compacted.items())[1:])
    )  # aiokafka's change gives all configs that it does not name their defaults
    changed: dict[str, str | None] = dict.fromkeys((*both, *compacted))
    assert await to_thread.run_sync(admin.alter, address, name, changed) == 0
    assert await to_thread.run_sync(admin.configs, address, name) == DEFAULTS
    assert (await config_of(ep, name)).compaction == CompactionPolicy()


@each_admin
async def test_a_topic_of_the_library_shows_its_policies_as_configs(
    admin: KafkaAdmin, server: ServerProcess, ep: Eventproc
) -> None:
    name = f"library-{admin.name}"
    await ep.create_topic(
        f"shop/{name}",
        retention=RetentionPolicy(age_ms=1_000, consumed=True),
        compaction=CompactionPolicy(min_age_ms=8),
        ttl_ms=9,
    )
    shown = {"retention.ms": "1000", "cleanup.policy": "compact,delete", "min.compaction.lag.ms": "8"}
    assert await to_thread.run_sync(admin.configs, server.kafka, name) == DEFAULTS | shown
    assert await to_thread.run_sync(admin.alter, server.kafka, name, shown | {"retention.ms": "2000"}) == 0
    config = await config_of(ep, name)
    assert (config.retention, config.ttl_ms) == (RetentionPolicy(age_ms=2_000, consumed=True), 9)


async def test_a_topic_needs_no_number_of_partitions_and_may_name_the_only_broker(
    server: ServerProcess, ep: Eventproc
) -> None:
    create = partial(confluent_create_new, server.kafka)

    async def partitions(name: str) -> int:
        return (await config_of(ep, name)).scaling.segments_min

    assert await to_thread.run_sync(create, NewTopic("unnumbered")) == 0
    assert await partitions("unnumbered") == 1
    assert await to_thread.run_sync(create, NewTopic("replicated", 1, 3)) == 38
    assert await to_thread.run_sync(create, NewTopic("elsewhere", 2, replica_assignment=[[1], [2]])) == 39
    assert await to_thread.run_sync(create, NewTopic("assigned", 2, replica_assignment=[[1], [1]])) == 0
    assert await partitions("assigned") == 2
    assert not await exists(ep, "replicated")
    assert not await exists(ep, "elsewhere")


async def test_lists_grow_and_shrink_by_incremental_changes(server: ServerProcess, ep: Eventproc) -> None:
    async def alter(name: str, value: str, how: AlterConfigOpType) -> int:
        change = partial(confluent_change, server.kafka, ResourceType.TOPIC, "lists")
        return await to_thread.run_sync(change, [(name, value, how)])

    append, subtract = AlterConfigOpType.APPEND, AlterConfigOpType.SUBTRACT
    await ep.create_topic("shop/lists", retention=RetentionPolicy(age_ms=1_000))
    assert await alter("cleanup.policy", "compact", append) == 0
    assert (await config_of(ep, "lists")).is_compacted
    assert await alter("cleanup.policy", "compact", subtract) == 0
    assert not (await config_of(ep, "lists")).is_compacted
    assert await alter("cleanup.policy", "delete", subtract) == 40
    assert await alter("retention.ms", "5", append) == 40


async def test_a_server_shows_what_it_is_and_cannot_be_changed(server: ServerProcess, ep: Eventproc) -> None:
    found = await to_thread.run_sync(partial(confluent_configs, server.kafka, "1", kind=ResourceType.BROKER))
    assert found == {
        "auto.create.topics.enable": "false",
        "default.replication.factor": "1",
        "message.max.bytes": "8388608",
        "num.partitions": "1",
    }
    with pytest.raises(KafkaException, match="UNKNOWN_TOPIC_OR_PART"):
        await to_thread.run_sync(confluent_configs, server.kafka, "absent")
    changes = [("num.partitions", "2", AlterConfigOpType.SET)]
    change = partial(confluent_change, server.kafka, ResourceType.BROKER, "1")
    assert await to_thread.run_sync(change, changes) == 42
    with python_admin(server.kafka) as python:
        cluster = await to_thread.run_sync(python.describe_cluster)
    host, port = server.kafka.rsplit(":", 1)
    assert [(each["host"], each["port"]) for each in cluster["brokers"]] == [(host, int(port))]
    assert cluster["controller_id"] == cluster["brokers"][0]["broker_id"]


async def test_all_records_of_a_partition_are_deleted_and_others_stay(
    server: ServerProcess, ep: Eventproc
) -> None:
    topic = await ep.create_topic("shop/emptied", partitions=2)
    for partition in (0, 1):
        await to_thread.run_sync(confluent_produce, server.kafka, "emptied", partition, [Record(b"a")] * 5)
    assert await to_thread.run_sync(confluent_truncate, server.kafka, "emptied", 1, -1) == 0
    assert await to_thread.run_sync(confluent_truncate, server.kafka, "emptied", 1, 2) == 0  # they are gone
    assert [(each.first, each.end) for each in await topic.partitions()] == [(0, 5), (5, 5)]


async def test_any_changes_of_configs_are_taken_as_asked_or_change_nothing(
    peer: KafkaPeer, ep: Eventproc
) -> None:
    def shown() -> dict[str, str]:
        return {name: each[0] for name, each in described(peer, topic="changing").items()}

    random = Random(11)
    values = {
        "retention.ms": ("-1", "1", "9223372036854775807", "9223372036854775808", "1_000", "0", ""),
        "retention.bytes": ("-1", "9223372036854775807", "5", "-2", "x", "٣"),
        "cleanup.policy": ("delete", "compact", "delete, compact", "compact,delete", "none", ""),
        "min.compaction.lag.ms": ("0", "3", "-1", "99999999999999"),
        "delete.retention.ms": ("0", "7", "1e3"),
        "max.message.bytes": ("8388608", "1"),
        "segment.bytes": ("1",),
        "unknown": ("1",),
    }
    await ep.create_topic("shop/changing")
    before, taken = shown(), 0
    for _ in range(400):
        chosen = random.sample(sorted(values), random.randrange(1, 4))
        changes = [(name, random.choice((0, 0, 0, 1)), random.choice(values[name])) for name in chosen]
        assert changed(peer, "changing", changes, is_dry=True) in (0, 40)
        assert shown() == before
        code = changed(peer, "changing", changes)
        after = shown()
        if code == 40:
            assert after == before
            continue
        assert code == 0
        asked = {name: DEFAULTS[name] if how else value for name, how, value in changes if name in DEFAULTS}
        asked |= (
            {"cleanup.policy": "compact,delete"} if "compact" in asked.get("cleanup.policy", "")[1:] else {}
        )
        assert asked.items() <= after.items()
        assert asked.get("cleanup.policy", before["cleanup.policy"]) == after["cleanup.policy"]
        before, taken = after, taken + 1
    assert 50 < taken < 350


async def test_an_operation_that_does_not_exist_ends_its_connection(peer: KafkaPeer, topic: str) -> None:
    with pytest.raises(AssertionError):
        changed(peer, topic, [("retention.ms", 4, "1")])
    assert peer.take() == b""


async def test_partitions_that_a_request_names_together_are_truncated_each_by_itself(
    peer: KafkaPeer, ep: Eventproc
) -> None:
    topic = await ep.create_topic("shop/together", partitions=5)
    for partition in range(5):
        assert peer.produce("together", batch_of(*[b"a"] * 6), partition) == (0, 0)
    assert truncated(peer, "together", {3: 2, 9: 0, 0: -1, 1: 7, 4: -2, 2: 0}) == [
        *((3, 2, 0), (9, -1, 3), (0, 6, 0), (1, -1, 1), (4, -1, 1), (2, 0, 0)),
    ]
    assert [each.first for each in await topic.partitions()] == [6, 0, 0, 2, 0]
    await topic.seal()
    assert truncated(peer, "together", {1: 1, 2: 9}) == [(1, -1, 44), (2, -1, 44)]


async def test_growing_can_be_tried_and_names_only_the_only_broker(
    server: ServerProcess, ep: Eventproc, topic: str
) -> None:
    def grow(count: int, brokers: list[list[int]], is_dry: bool) -> int:
        with python_admin(server.kafka) as admin:
            wanted = {topic: {"count": count, "assignments": brokers}}
            found = admin.create_partitions(wanted, validate_only=is_dry, raise_errors=False)
            return int(found.results[0].error_code)

    for count, brokers, is_dry, code in (
        (3, [[1], [1]], True, 0),
        (3, [[1], [2]], False, 39),
        (3, [[1]], False, 39),
        (1, [], True, 37),
    ):
        assert await to_thread.run_sync(grow, count, brokers, is_dry) == code
        assert (await config_of(ep, topic)).scaling.segments_min == 1
    assert await to_thread.run_sync(grow, 3, [[1], [1]], False) == 0
    assert (await config_of(ep, topic)).scaling.segments_min == 3


async def test_a_call_that_waits_for_nothing_creates_and_deletes_completely(
    peer: KafkaPeer, ep: Eventproc
) -> None:
    create = partial(peer.ask, "CreateTopics", 5, topics=[new_topic("hurried", 2)], validate_only=False)
    assert create(timeout_ms=0).topics[0].error_code in (0, 7)
    assert create(timeout_ms=60_000).topics[0].error_code == 36
    answers = peer.ask("DeleteTopics", 5, topic_names=["hurried", "hurried"], timeout_ms=0).responses
    assert [each.error_code for each in answers] == [0, 3]
    assert not await exists(ep, "hurried")


async def test_a_creation_that_two_clients_ask_for_succeeds_once(
    server: ServerProcess, ep: Eventproc
) -> None:
    codes: list[int] = []

    async def create() -> None:
        codes.append(await to_thread.run_sync(confluent_create, server.kafka, "contested", 3))

    async with anyio.create_task_group() as tasks:
        for _ in range(4):
            tasks.start_soon(create)
    assert sorted(codes) == [0, 36, 36, 36]


async def test_a_request_creates_many_topics_and_more_than_the_bound_end_its_connection(
    peer: KafkaPeer, ep: Eventproc
) -> None:
    def request(count: int, is_dry: bool) -> dict[str, Any]:
        topics = [new_topic(f"many-{each}", 1) for each in range(count)]
        return {"topics": topics, "timeout_ms": 60_000, "validate_only": is_dry}

    answers = peer.ask("CreateTopics", 5, **request(50, False)).topics
    assert {each.error_code for each in answers} == {0}
    assert [each.name for each in await ep.topics("shop", prefix="many-")] == sorted(
        f"shop/many-{each}" for each in range(50)
    )
    answers = peer.ask("CreateTopics", 5, **request(5_000, True)).topics
    assert [each.error_code for each in answers].count(36) == 50
    peer.send(framed("CreateTopics", 5, **request(5_001, True)))
    assert peer.take() == b""


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServerProcess, Path]]:
    """A server of a directory with users: one may do all to topics that begin with `own`, another may read them."""
    path = tmp_path_factory.mktemp("guarded") / "served"
    with open_blocking(path, durability="os") as ep:
        ep.create_scope("shop")
        ep.create_topic("shop/own")
        ep.create_topic("shop/secret")
        for user in ("owner", "reader"):
            ep.users.add(user, password=f"password of {user}")
        for topic in ("own", "own-new"):
            ep.users.grant("owner", Permission.READ_UPDATE, f"shop/{topic}")
            ep.users.grant("reader", Permission.READ, f"shop/{topic}")
    path.chmod(0o700)
    with ServerProcess(path, kafka_scope="shop") as server:
        yield server, path


async def test_users_administer_what_they_may_and_nothing_else(guarded: tuple[ServerProcess, Path]) -> None:
    server, path = guarded

    def settings(user: str) -> dict[str, str]:
        return {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": user,
            "sasl.password": f"password of {user}",
        }

    async def codes(user: str, old: str, new: str) -> list[int]:
        given: dict[str, Any] = {"settings": settings(user)}
        calls = (
            partial(confluent_create, server.kafka, new, 1, **given),
            partial(confluent_grow, server.kafka, old, 2, **given),
            partial(confluent_alter, server.kafka, old, {"retention.ms": "5"}, **given),
            partial(confluent_truncate, server.kafka, old, 0, 0, **given),
            partial(confluent_delete, server.kafka, new, **given),
        )
        return [await to_thread.run_sync(each) for each in calls]

    def shown(user: str, topic: str) -> dict[str, str]:
        return confluent_configs(server.kafka, topic, settings(user))

    assert set(await codes("reader", "own", "own-new")) == {29}
    for user in ("reader", "owner"):  # -156: librdkafka sends nothing, because it does not see the topic
        assert await codes(user, "secret", "absent") == [29, 29, 29, -156, 29]
    assert (await to_thread.run_sync(shown, "reader", "own"))["retention.ms"] == "-1"
    for topic in ("secret", "absent"):
        with pytest.raises(KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
            await to_thread.run_sync(shown, "owner", topic)
    async with eventproc.open(path, host=False) as ep:
        assert {each.name for each in await ep.topics("shop")} == {"shop/own", "shop/secret"}
    assert await codes("owner", "own", "own-new") == [0] * 5
    assert (await to_thread.run_sync(shown, "reader", "own"))["retention.ms"] == "5"
