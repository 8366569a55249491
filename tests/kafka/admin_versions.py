"""The calls about topics as objects, in each version that a server announces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.kafka.peer import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    KafkaPeer,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    new_topic,
)


def speak_administration(peer: KafkaPeer, versions: dict[int, range]) -> None:
    """Ask each call in each of its versions, and remove it from them."""
    for version in versions.pop(19):
        topics = [new_topic(f"created-{version}", 2, version, retention_ms="60000")]
        asked = CreateTopicsRequest(version=version, topics=topics, timeout_ms=60_000, validate_only=False)
        (created,) = peer.ask(asked, CreateTopicsResponse, version).topics
        assert (created.name, created.error_code) == (f"created-{version}", 0)
        if version >= 5:
            shown = {each.name: each.value for each in created.configs}
            assert (created.num_partitions, shown["retention.ms"]) == (2, "60000")
    for version in versions.pop(37):
        of_topic = CreatePartitionsRequest.CreatePartitionsTopic
        grown = of_topic(version=version, name="created-2", count=3 + version, assignments=None)
        grow = CreatePartitionsRequest(
            version=version, topics=[grown], timeout_ms=60_000, validate_only=False
        )
        assert peer.ask(grow, CreatePartitionsResponse, version).results[0].error_code == 0
    for version in versions.pop(32):
        assert described(peer, version)["retention.ms"] == ("60000", 5, 1)
    for version in versions.pop(44):
        assert altered(peer, IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse, version) == 0
        assert described(peer)["retention.ms"] == (f"{version + 1}", 5, 1)
    for version in versions.pop(33):
        assert altered(peer, AlterConfigsRequest, AlterConfigsResponse, version) == 0
        assert described(peer)["retention.ms"] == (f"{version + 1}", 5, 1)
    speak_of_partitions(peer, versions)
    for version in versions.pop(60):
        cluster = peer.ask(DescribeClusterRequest(version=version), DescribeClusterResponse, version)
        assert [each.broker_id for each in cluster.brokers] == [cluster.controller_id]
        if version >= 1:
            asked = DescribeClusterRequest(version=version, endpoint_type=2)
            assert peer.ask(asked, DescribeClusterResponse, version).error_code == 114
    for version in versions.pop(20):
        names = [f"created-{version + 1}", "absent"]
        gone = DeleteTopicsRequest(version=version, topic_names=names, timeout_ms=60_000)
        answers = peer.ask(gone, DeleteTopicsResponse, version).responses
        assert [(each.name, each.error_code) for each in answers] == [*zip(names, (0, 3), strict=True)]


def speak_of_partitions(peer: KafkaPeer, versions: dict[int, range]) -> None:
    for version in versions.pop(21):
        of_topic = DeleteRecordsRequest.DeleteRecordsTopic
        part = of_topic.DeleteRecordsPartition
        parts = [
            part(version=version, partition_index=number, offset=offset)
            for number, offset in ((0, -1), (1, 1), (9, 0))
        ]
        asked = [of_topic(version=version, name="created-2", partitions=parts)]
        cut = DeleteRecordsRequest(version=version, topics=asked, timeout_ms=60_000)
        answers = peer.ask(cut, DeleteRecordsResponse, version).topics[0].partitions
        assert [(each.low_watermark, each.error_code) for each in answers] == [(0, 0), (-1, 1), (-1, 3)]
    for version in versions.pop(23):
        of_topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
        part = of_topic.OffsetForLeaderPartition
        parts = [
            part(version=version, partition=number, current_leader_epoch=current, leader_epoch=epoch)
            for number, current, epoch in ((0, -1, 0), (0, 0, 1), (0, 1, 0), (9, 0, 0))
        ]
        asked = [of_topic(version=version, topic="created-2", partitions=parts)]
        request = OffsetForLeaderEpochRequest(version=version, replica_id=-1, topics=asked)
        answers = peer.ask(request, OffsetForLeaderEpochResponse, version).topics[0].partitions
        found = [(each.error_code, each.leader_epoch, each.end_offset) for each in answers]
        assert found == [(0, 0, 0), (0, -1, -1), (75, -1, -1), (3, -1, -1)]


def described(peer: KafkaPeer, version: int = 4, topic: str = "created-2") -> dict[str, tuple[str, int, int]]:
    """Return the value, the type and the source of each config of a topic."""
    of_resource = DescribeConfigsRequest.DescribeConfigsResource
    resource = of_resource(version=version, resource_type=2, resource_name=topic, configuration_keys=None)
    asked = DescribeConfigsRequest(version=version, resources=[resource], include_synonyms=True)
    (found,) = peer.ask(asked, DescribeConfigsResponse, version).results
    assert found.error_code == 0
    return {
        each.name: (each.value, each.config_type if version >= 3 else 5, each.config_source)
        for each in found.configs
    }


def altered(peer: KafkaPeer, request: Any, response: Any, version: int) -> int:
    """Set a config of a topic to a value that the version has; return the code."""
    return changed(peer, "created-2", [("retention.ms", 0, str(version + 1))], (request, response, version))


INCREMENTAL = (IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse, 1)


def changed(
    peer: KafkaPeer,
    topic: str,
    changes: Sequence[tuple[str, int, str | None]],
    messages: tuple[Any, Any, int] = INCREMENTAL,
    is_dry: bool = False,
) -> int:
    """Change configs, each by the number of an operation; return the code."""
    request, response, version = messages
    of_resource = request.AlterConfigsResource
    configs = [
        of_resource.AlterableConfig(
            version=version,
            name=name,
            value=value,
            **({"config_operation": how} if request is IncrementalAlterConfigsRequest else {}),
        )
        for name, how, value in changes
    ]
    resource = of_resource(version=version, resource_type=2, resource_name=topic, configs=configs)
    asked = request(version=version, resources=[resource], validate_only=is_dry)
    code: int = peer.ask(asked, response, version).responses[0].error_code
    return code


def truncated(peer: KafkaPeer, topic: str, offsets: Mapping[int, int]) -> list[tuple[int, int, int]]:
    """Remove the events of partitions before offsets; return each partition with its begin and code."""
    of_topic = DeleteRecordsRequest.DeleteRecordsTopic
    parts = [
        of_topic.DeleteRecordsPartition(version=2, partition_index=number, offset=offset)
        for number, offset in offsets.items()
    ]
    asked = [of_topic(version=2, name=topic, partitions=parts)]
    cut = DeleteRecordsRequest(version=2, topics=asked, timeout_ms=60_000)
    found = peer.ask(cut, DeleteRecordsResponse, 2).topics[0].partitions
    return [(each.partition_index, each.low_watermark, each.error_code) for each in found]
