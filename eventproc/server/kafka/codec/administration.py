"""The messages about topics as objects: their creation, configs and deletion."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, Final

from eventproc.server.kafka import admin_calls as a
from eventproc.server.kafka.codec.message import (
    CLUSTER,
    NODE,
    KafkaMessage,
    KafkaRequest,
    bounded,
    by_topic,
    encode_answer,
    place_of,
    text_of,
)
from eventproc.server.kafka.kafka_errors import KafkaCode
from eventproc.server.kafka.topic_configs import ConfigChange, ConfigOperation, ShownConfig

SET_FOR_TOPIC: Final = 1
"""Where the value of a config comes from: it was set for the topic."""

DEFAULT: Final = 5
"""Where the value of a config comes from: nothing was set."""

CONFIGS_SINCE: Final = 5
"""The first version in which the answer to a creation has configs."""

CONTROLLERS: Final = 2
"""What a client asks of a cluster that it reaches by a controller."""


def _create_topics(body: Any) -> a.CreateTopics:
    bounded([each for topic in body.topics for each in topic.assignments])
    bounded([each for topic in body.topics for each in topic.configs], "configs")
    topics = [
        a.NewTopic(
            *(place_of(each.name, 0).topic, each.num_partitions, each.replication_factor),
            {part.partition_index: list(part.broker_ids) for part in each.assignments},
            [ConfigChange(config.name, config.value) for config in each.configs],
        )
        for each in bounded(body.topics, "topics")
    ]
    return a.CreateTopics(topics, body.timeout_ms, body.validate_only)


def _delete_topics(body: Any) -> a.DeleteTopics:
    return a.DeleteTopics(list(map(text_of, bounded(body.topic_names, "topics"))), body.timeout_ms)


def _create_partitions(body: Any) -> a.CreatePartitions:
    bounded([each for topic in body.topics for each in topic.assignments or ()])
    topics = [
        a.GrownTopic(
            *(place_of(each.name, 0).topic, each.count),
            None if each.assignments is None else [list(part.broker_ids) for part in each.assignments],
        )
        for each in bounded(body.topics, "topics")
    ]
    return a.CreatePartitions(topics, body.timeout_ms, body.validate_only)


def _delete_records(body: Any) -> a.DeleteRecords:
    firsts = [
        (place_of(topic.name, part.partition_index), part.offset)
        for topic in body.topics
        for part in topic.partitions
    ]
    return a.DeleteRecords(bounded(firsts), body.timeout_ms)


def _describe_configs(body: Any) -> a.DescribeConfigs:
    bounded([each for one in body.resources for each in one.configuration_keys or ()], "configs")
    resources = {
        a.ConfigResource(each.resource_type, text_of(each.resource_name)): each.configuration_keys
        for each in bounded(body.resources, "resources")
    }
    return a.DescribeConfigs(resources, bool(body.include_documentation))


def _altered(body: Any, *, is_incremental: bool) -> a.AlterConfigs:
    bounded([each for one in body.resources for each in one.configs], "configs")
    resources = [
        (
            a.ConfigResource(each.resource_type, text_of(each.resource_name)),
            [
                ConfigChange(
                    *(config.name, config.value),
                    ConfigOperation(config.config_operation) if is_incremental else ConfigOperation.SET,
                )
                for config in each.configs
            ],
        )
        for each in bounded(body.resources, "resources")
    ]
    return a.AlterConfigs(resources, not is_incremental, body.validate_only)


def _describe_cluster(body: Any) -> a.DescribeCluster:
    return a.DescribeCluster(body.endpoint_type == CONTROLLERS)


MESSAGES: Final = (
    # The versions that name topics by ids are not served.
    KafkaMessage("CreateTopics", 2, 6, _create_topics),
    KafkaMessage("DeleteTopics", 1, 5, _delete_topics),
    KafkaMessage("DeleteRecords", 0, 2, _delete_records),
    KafkaMessage("DescribeConfigs", 1, 4, _describe_configs),
    KafkaMessage("AlterConfigs", 0, 2, partial(_altered, is_incremental=False)),
    KafkaMessage("CreatePartitions", 0, 3, _create_partitions),
    KafkaMessage("IncrementalAlterConfigs", 0, 1, partial(_altered, is_incremental=True)),
    KafkaMessage("DescribeCluster", 0, 2, _describe_cluster),
)


def created_answer(request: KafkaRequest, outcomes: Iterable[a.TopicOutcome]) -> bytes:
    """Return which topics were created, and as what."""
    has_configs = request.version >= CONFIGS_SINCE
    topics = [
        _topic_outcome(each)
        | {
            "num_partitions": each.partitions,
            "replication_factor": -1 if each.code else 1,
            "configs": list(map(_config_fields, each.configs if has_configs else ())),
        }
        for each in outcomes
    ]
    return encode_answer(request, topics=topics)


def _config_fields(config: ShownConfig) -> dict[str, object]:
    return {
        "name": config.name,
        "value": config.value,
        "read_only": config.is_fixed,
        "config_source": DEFAULT if config.is_default else SET_FOR_TOPIC,
        "is_sensitive": False,
    }


def deleted_answer(request: KafkaRequest, outcomes: Iterable[a.TopicOutcome]) -> bytes:
    """Return which topics were deleted."""
    return encode_answer(request, responses=list(map(_topic_outcome, outcomes)))


def grown_answer(request: KafkaRequest, outcomes: Iterable[a.TopicOutcome]) -> bytes:
    """Return which topics have more partitions."""
    return encode_answer(request, results=list(map(_topic_outcome, outcomes)))


def _topic_outcome(each: a.TopicOutcome) -> dict[str, object]:
    return {"name": each.name, "error_code": int(each.code), "error_message": each.text}


def truncated_answer(request: KafkaRequest, outcomes: Iterable[a.FirstOffset]) -> bytes:
    """Return where partitions begin after a truncation."""
    topics = by_topic(
        outcomes, lambda each: {"partition_index": each.place.partition, "low_watermark": each.offset}
    )
    return encode_answer(request, topics=topics)


def configs_answer(request: KafkaRequest, outcomes: Iterable[a.ResourceOutcome], is_explained: bool) -> bytes:
    """Return the configs of resources. is_explained: with their meaning."""
    results = [
        _resource_outcome(each)
        | {
            "configs": [
                _config_fields(config)
                | {
                    "synonyms": [],
                    "config_type": int(config.kind),
                    "documentation": config.about if is_explained else None,
                }
                for config in each.configs
            ]
        }
        for each in outcomes
    ]
    return encode_answer(request, results=results)


def altered_answer(request: KafkaRequest, outcomes: Iterable[a.ResourceOutcome]) -> bytes:
    """Return which configs were changed."""
    return encode_answer(request, responses=list(map(_resource_outcome, outcomes)))


def _resource_outcome(each: a.ResourceOutcome) -> dict[str, object]:
    return {
        "error_code": int(each.code),
        "error_message": each.text,
        "resource_type": each.resource.kind,
        "resource_name": each.resource.name,
    }


def cluster_answer(request: KafkaRequest, call: a.DescribeCluster, address: tuple[str, int]) -> bytes:
    """Return the server at the address as the only broker."""
    if call.of_controllers:
        text = "this is a broker; no controllers are visible"
        code = int(KafkaCode.MISMATCHED_ENDPOINT_TYPE)
        return encode_answer(request, error_code=code, error_message=text, cluster_id=CLUSTER, brokers=[])
    host, port = address
    broker = {"broker_id": NODE, "host": host, "port": port, "rack": None, "is_fenced": False}
    return encode_answer(request, error_code=0, cluster_id=CLUSTER, controller_id=NODE, brokers=[broker])
