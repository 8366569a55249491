"""The calls about topics as objects, in each version that a server announces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from tests.kafka.peer import KafkaPeer, new_topic


def speak_administration(peer: KafkaPeer, versions: dict[int, range]) -> None:
    """Ask each call in each of its versions, and remove it from them."""
    patient = partial(peer.ask, timeout_ms=60_000)
    for version in versions.pop(19):
        topics = [new_topic(f"created-{version}", 2, retention_ms="60000")]
        (created,) = patient("CreateTopics", version, topics=topics, validate_only=False).topics
        assert (created.name, created.error_code) == (f"created-{version}", 0)
        if version >= 5:
            shown = {each.name: each.value for each in created.configs}
            assert (created.num_partitions, shown["retention.ms"]) == (2, "60000")
    for version in versions.pop(37):
        grown = [{"name": "created-2", "count": 3 + version, "assignments": None}]
        (found,) = patient("CreatePartitions", version, topics=grown, validate_only=False).results
        assert found.error_code == 0
    for version in versions.pop(32):
        assert described(peer, version)["retention.ms"] == ("60000", 5, 1)
    for number, call in ((44, "IncrementalAlterConfigs"), (33, "AlterConfigs")):
        for version in versions.pop(number):
            value = f"{version + 1}"
            assert changed(peer, "created-2", [("retention.ms", 0, value)], call, version) == 0
            assert described(peer)["retention.ms"] == (value, 5, 1)
    for version in versions.pop(21):
        offsets = {0: -1, 1: 1, 9: 0}
        assert truncated(peer, "created-2", offsets, version) == [(0, 0, 0), (1, -1, 1), (9, -1, 3)]
    for version in versions.pop(23):
        parts = [
            {"partition": number, "current_leader_epoch": current, "leader_epoch": epoch}
            for number, current, epoch in ((0, -1, 0), (0, 0, 1), (0, 1, 0), (9, 0, 0))
        ]
        asked = [{"topic": "created-2", "partitions": parts}]
        answers = peer.ask("OffsetForLeaderEpoch", version, replica_id=-1, topics=asked).topics[0].partitions
        ends = [(each.error_code, each.leader_epoch, each.end_offset) for each in answers]
        assert ends == [(0, 0, 0), (0, -1, -1), (75, -1, -1), (3, -1, -1)]
    for version in versions.pop(60):
        cluster = peer.ask("DescribeCluster", version)
        assert [each.broker_id for each in cluster.brokers] == [cluster.controller_id]
        if version >= 1:
            assert peer.ask("DescribeCluster", version, endpoint_type=2).error_code == 114
    for version in versions.pop(20):
        names = [f"created-{version + 1}", "absent"]
        gone = patient("DeleteTopics", version, topic_names=names).responses
        assert [(each.name, each.error_code) for each in gone] == [*zip(names, (0, 3), strict=True)]


def described(peer: KafkaPeer, version: int = 4, topic: str = "created-2") -> dict[str, tuple[str, int, int]]:
    """Return the value, the type and the source of each config of a topic."""
    resource = {"resource_type": 2, "resource_name": topic, "configuration_keys": None}
    (found,) = peer.ask("DescribeConfigs", version, resources=[resource], include_synonyms=True).results
    assert found.error_code == 0
    return {
        each.name: (each.value, each.config_type if version >= 3 else 5, each.config_source)
        for each in found.configs
    }


def changed(
    peer: KafkaPeer,
    topic: str,
    changes: Sequence[tuple[str, int, str | None]],
    call: str = "IncrementalAlterConfigs",
    version: int = 1,
    is_dry: bool = False,
) -> int:
    """Change configs, each by the number of an operation, which an older call does not have; return the code."""
    configs: list[dict[str, object]] = [
        {"name": name, "value": value, **({"config_operation": how} if call != "AlterConfigs" else {})}
        for name, how, value in changes
    ]
    resource = {"resource_type": 2, "resource_name": topic, "configs": configs}
    code: int = peer.ask(call, version, resources=[resource], validate_only=is_dry).responses[0].error_code
    return code


def truncated(
    peer: KafkaPeer, topic: str, offsets: Mapping[int, int], version: int = 2
) -> list[tuple[int, int, int]]:
    """Remove the events of partitions before offsets; return each partition with its begin and code."""
    parts = [{"partition_index": number, "offset": offset} for number, offset in offsets.items()]
    asked = [{"name": topic, "partitions": parts}]
    found = peer.ask("DeleteRecords", version, topics=asked, timeout_ms=60_000).topics[0].partitions
    return [(each.partition_index, each.low_watermark, each.error_code) for each in found]
