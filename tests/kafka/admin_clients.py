"""The administration of unmodified clients of Kafka behind one face, so that a test runs with each of them.

Each function blocks; a test calls it in a thread. It returns the code of its error, 0 without one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeAlias

from aiokafka import TopicPartition as AioPartition
from aiokafka.admin import (
    AIOKafkaAdminClient,
    NewPartitions as AioPartitions,
    NewTopic as AioTopic,
    RecordsToDelete,
)
from aiokafka.admin.config_resource import ConfigResource as AioResource, ConfigResourceType as AioType
from aiokafka.errors import BrokerResponseError as AioError
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewPartitions, NewTopic
from kafka.admin import (
    ConfigResource as PythonResource,
    ConfigResourceType as PythonType,
    KafkaAdminClient,
)
from kafka.errors import BrokerResponseError as PythonError
from kafka.structs import TopicPartition as PythonPartition

from tests.kafka.clients import NO_SETTINGS, PATIENCE_S, run_aiokafka


class KafkaAdmin(NamedTuple):
    """What a client does with topics.

    create: a topic with partitions and configs; the last argument: whether to only try it. grow: to a number of
    partitions. alter: configs; None: to their defaults. truncate: a partition before an offset. configs: all of them.
    """

    name: str
    create: Callable[[str, str, int, Mapping[str, str], bool], int]
    grow: Callable[[str, str, int], int]
    alter: Callable[[str, str, Mapping[str, str | None]], int]
    truncate: Callable[[str, str, int, int], int]
    delete: Callable[[str, str], int]
    partitions: Callable[[str, str], int]
    configs: Callable[[str, str], dict[str, str]]


Settings: TypeAlias = Mapping[str, Any]


def confluent_ask(
    address: str, settings: Settings, ask: Callable[[AdminClient], Mapping[Any, Future[Any]]]
) -> Any:
    """Return the only outcome of a call. Raises KafkaException. The client must live until then."""
    admin = AdminClient({"bootstrap.servers": address, **settings})
    (future,) = ask(admin).values()
    return future.result(PATIENCE_S)


def confluent_code(
    address: str, settings: Settings, ask: Callable[[AdminClient], Mapping[Any, Future[Any]]]
) -> int:
    try:
        confluent_ask(address, settings, ask)
    except KafkaException as why:
        return int(why.args[0].code())
    return 0


def confluent_create_new(
    address: str, new: NewTopic, is_dry: bool = False, settings: Settings = NO_SETTINGS
) -> int:
    return confluent_code(address, settings, lambda admin: admin.create_topics([new], validate_only=is_dry))


def confluent_create(
    address: str,
    topic: str,
    partitions: int,
    configs: Mapping[str, str] = NO_SETTINGS,
    is_dry: bool = False,
    settings: Settings = NO_SETTINGS,
) -> int:
    return confluent_create_new(
        address, NewTopic(topic, partitions, 1, config=dict(configs)), is_dry, settings
    )


def confluent_grow(address: str, topic: str, count: int, settings: Settings = NO_SETTINGS) -> int:
    wanted = [NewPartitions(topic, count)]
    return confluent_code(address, settings, lambda admin: admin.create_partitions(wanted))


def confluent_change(
    address: str,
    kind: ResourceType,
    name: str,
    changes: Sequence[tuple[str, str | None, AlterConfigOpType]],
    settings: Settings = NO_SETTINGS,
) -> int:
    entries = [ConfigEntry(key, value, incremental_operation=how) for key, value, how in changes]
    resource = ConfigResource(kind, name, incremental_configs=entries)
    return confluent_code(address, settings, lambda admin: admin.incremental_alter_configs([resource]))


def confluent_alter(
    address: str, topic: str, configs: Mapping[str, str | None], settings: Settings = NO_SETTINGS
) -> int:
    operations = {True: AlterConfigOpType.DELETE, False: AlterConfigOpType.SET}
    changes = [(name, value, operations[value is None]) for name, value in configs.items()]
    return confluent_change(address, ResourceType.TOPIC, topic, changes, settings)


def confluent_truncate(
    address: str, topic: str, partition: int, offset: int, settings: Settings = NO_SETTINGS
) -> int:
    place = TopicPartition(topic, partition, offset)
    return confluent_code(address, settings, lambda admin: admin.delete_records([place], operation_timeout=0))


def confluent_delete(address: str, topic: str, settings: Settings = NO_SETTINGS) -> int:
    return confluent_code(address, settings, lambda admin: admin.delete_topics([topic]))


def confluent_partitions(address: str, topic: str) -> int:
    admin = AdminClient({"bootstrap.servers": address})
    return len(admin.list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions)


def confluent_configs(
    address: str, name: str, settings: Settings = NO_SETTINGS, kind: ResourceType = ResourceType.TOPIC
) -> dict[str, str]:
    """Raises KafkaException."""
    wanted = [ConfigResource(kind, name)]
    found = confluent_ask(address, settings, lambda admin: admin.describe_configs(wanted))
    return {key: entry.value for key, entry in found.items()}


@contextmanager
def python_admin(address: str) -> Iterator[Any]:
    admin = KafkaAdminClient(bootstrap_servers=address)
    try:
        yield admin
    finally:
        admin.close()


def python_create(address: str, topic: str, partitions: int, configs: Mapping[str, str], is_dry: bool) -> int:
    new = {topic: {"num_partitions": partitions, "configs": dict(configs)}}
    with python_admin(address) as admin:
        found = admin.create_topics(new, validate_only=is_dry, raise_errors=False)
        return int(found["topics"][0]["error_code"])


def python_grow(address: str, topic: str, count: int) -> int:
    with python_admin(address) as admin:
        return int(admin.create_partitions({topic: count}, raise_errors=False).results[0].error_code)


def python_alter(address: str, topic: str, configs: Mapping[str, str | None]) -> int:
    changes: dict[str, Any] = {
        name: ("DELETE" if value is None else "SET", value) for name, value in configs.items()
    }
    resource = PythonResource(PythonType.TOPIC, topic, configs=changes)
    with python_admin(address) as admin:
        found = admin.alter_configs([resource], raise_on_unknown=False)["topic"][topic]
        return 0 if found == "OK" else int(found[1:].partition("]")[0].rpartition(" ")[2])


def python_truncate(address: str, topic: str, partition: int, offset: int) -> int:
    with python_admin(address) as admin:
        try:
            admin.delete_records({PythonPartition(topic, partition): offset})
        except PythonError as why:
            return int(why.errno or -1)
        return 0


def python_delete(address: str, topic: str) -> int:
    with python_admin(address) as admin:
        return int(admin.delete_topics([topic], raise_errors=False)["topics"][0]["error_code"])


def python_partitions(address: str, topic: str) -> int:
    with python_admin(address) as admin:
        return len(admin.describe_topics([topic])[0]["partitions"])


def python_configs(address: str, topic: str) -> dict[str, str]:
    resource = PythonResource(PythonType.TOPIC, topic)
    with python_admin(address) as admin:
        found = admin.describe_configs([resource], config_filter="all")["topic"][topic]
        return {name: each["value"] for name, each in found.items()}


def _aio(address: str, work: Callable[[Any], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        admin = AIOKafkaAdminClient(bootstrap_servers=address)
        await admin.start()
        try:
            return await work(admin)
        finally:
            await admin.close()

    return run_aiokafka(run())


def aio_create(address: str, topic: str, partitions: int, configs: Mapping[str, str], is_dry: bool) -> int:
    new = AioTopic(topic, partitions, 1, topic_configs=dict(configs))
    found = _aio(address, lambda admin: admin.create_topics([new], validate_only=is_dry))
    return int(found.topic_errors[0][1])


def aio_grow(address: str, topic: str, count: int) -> int:
    try:
        _aio(address, lambda admin: admin.create_partitions({topic: AioPartitions(count)}))
    except AioError as why:
        return int(why.errno or -1)
    return 0


def aio_alter(address: str, topic: str, configs: Mapping[str, str | None]) -> int:
    """It can only send all configs, so those with defaults are left out."""
    given = {name: value for name, value in configs.items() if value is not None}
    resource = AioResource(AioType.TOPIC, topic, given)
    return int(_aio(address, lambda admin: admin.alter_configs([resource]))[0].resources[0][0])


def aio_truncate(address: str, topic: str, partition: int, offset: int) -> int:
    places = {AioPartition(topic, partition): RecordsToDelete(offset)}
    try:
        _aio(address, lambda admin: admin.delete_records(places))
    except AioError as why:
        return int(why.errno or -1)
    return 0


def aio_delete(address: str, topic: str) -> int:
    found = _aio(address, lambda admin: admin.delete_topics([topic]))
    return int(found.topic_error_codes[0][1])


def aio_partitions(address: str, topic: str) -> int:
    return len(_aio(address, lambda admin: admin.describe_topics([topic]))[0]["partitions"])


def aio_configs(address: str, topic: str) -> dict[str, str]:
    resource = AioResource(AioType.TOPIC, topic)
    found = _aio(address, lambda admin: admin.describe_configs([resource]))
    return {each[0]: each[1] for each in found[0].resources[0][4]}


ADMINS = (
    KafkaAdmin(
        *("confluent-kafka", confluent_create, confluent_grow, confluent_alter, confluent_truncate),
        *(confluent_delete, confluent_partitions, confluent_configs),
    ),
    KafkaAdmin(
        *("kafka-python", python_create, python_grow, python_alter, python_truncate),
        *(python_delete, python_partitions, python_configs),
    ),
    KafkaAdmin(
        *("aiokafka", aio_create, aio_grow, aio_alter, aio_truncate),
        *(aio_delete, aio_partitions, aio_configs),
    ),
)
