"""The messages about events: topics, batches, offsets, and producers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from eventproc.server.kafka import calls as c
from eventproc.server.kafka.codec.message import (
    CLUSTER,
    NODE,
    KafkaMessage,
    KafkaRequest,
    bounded,
    by_topic,
    encode_answer,
    place_of,
)


def _produce(body: Any) -> c.Produce:
    batches = [
        (place_of(topic.name, part.index), bytes(part.records or b""))
        for topic in body.topic_data
        for part in topic.partition_data
    ]
    return c.Produce(bounded(batches), body.acks != 0, body.transactional_id)


def _fetch(body: Any) -> c.Fetch:
    wanted = [
        c.WantedPlace(place_of(topic.topic, part.partition), part.fetch_offset, part.partition_max_bytes)
        for topic in body.topics
        for part in topic.partitions
    ]
    return c.Fetch(bounded(wanted), body.max_wait_ms, body.min_bytes, body.max_bytes)


def _list_offsets(body: Any) -> c.ListOffsets:
    times = [
        (place_of(topic.name, part.partition_index), part.timestamp)
        for topic in body.topics
        for part in topic.partitions
    ]
    return c.ListOffsets(bounded(times))


def _epochs(body: Any) -> c.OffsetForLeaderEpoch:
    wanted = [
        c.EpochPlace(place_of(topic.topic, part.partition), part.current_leader_epoch, part.leader_epoch)
        for topic in body.topics
        for part in topic.partitions
    ]
    return c.OffsetForLeaderEpoch(bounded(wanted))


def _metadata(body: Any) -> c.Metadata:
    topics = body.topics
    return c.Metadata(None if topics is None else [place_of(each.name, 0).topic for each in bounded(topics)])


def _init_producer(body: Any) -> c.InitProducerId:
    return c.InitProducerId(
        body.transactional_id, body.producer_id, body.producer_epoch, body.transaction_timeout_ms
    )


MESSAGES: Final = (
    KafkaMessage("Produce", 3, 9, _produce),
    KafkaMessage("Fetch", 4, 12, _fetch),
    KafkaMessage("ListOffsets", 1, 6, _list_offsets),
    KafkaMessage("Metadata", 1, 11, _metadata),
    KafkaMessage("OffsetForLeaderEpoch", 2, 4, _epochs),
    KafkaMessage("InitProducerId", 0, 4, _init_producer),
)


def metadata_answer(
    request: KafkaRequest, address: tuple[str, int], topics: Sequence[c.TopicAnswer]
) -> bytes:
    """Return the topics, each partition of which the server at the address leads."""
    (host, port) = address
    return encode_answer(
        request,
        brokers=[{"node_id": NODE, "host": host, "port": port, "rack": None}],
        cluster_id=CLUSTER,
        controller_id=NODE,
        topics=[
            {
                "error_code": int(topic.code),
                "name": topic.name,
                "topic_id": topic.incarnation,
                "is_internal": False,
                "partitions": [
                    {
                        "error_code": 0,
                        "partition_index": number,
                        "leader_id": NODE,
                        "leader_epoch": 0,
                        "replica_nodes": [NODE],
                        "isr_nodes": [NODE],
                        "offline_replicas": [],
                    }
                    for number in range(topic.partitions)
                ],
            }
            for topic in topics
        ],
    )


def produce_answer(request: KafkaRequest, produced: Iterable[c.BatchAnswer]) -> bytes:
    """Return where the batches of a request are."""
    topics = by_topic(
        produced,
        lambda each: {
            "index": each.place.partition,
            "base_offset": each.offset,
            "log_append_time_ms": -1,
            "log_start_offset": -1,
            "record_errors": [],
            "error_message": each.text,
        },
        names=("name", "partition_responses"),
    )
    return encode_answer(request, responses=topics)


def fetch_answer(request: KafkaRequest, fetched: Iterable[c.PartitionAnswer]) -> bytes:
    """Return what follows in the partitions of a request."""
    topics = by_topic(
        fetched,
        lambda each: {
            "partition_index": each.place.partition,
            "high_watermark": each.end,
            "last_stable_offset": each.end,  # what is not committed is not visible at all
            "log_start_offset": each.first,
            "aborted_transactions": None,
            "preferred_read_replica": -1,
            "records": each.records,
        },
        names=("topic", "partitions"),
    )
    # Session 0: each request names all of its partitions.
    return encode_answer(request, error_code=0, session_id=0, responses=topics)


def offsets_answer(request: KafkaRequest, found: Iterable[c.FoundOffset]) -> bytes:
    """Return the offsets of the times of a request."""
    topics = by_topic(
        found,
        lambda each: {
            "partition_index": each.place.partition,
            "timestamp": each.time_ms,
            "offset": each.offset,
            "leader_epoch": 0,
        },
    )
    return encode_answer(request, topics=topics)


def epochs_answer(request: KafkaRequest, ends: Iterable[c.EpochEnd]) -> bytes:
    """Return where epochs of leaders end."""
    topics = by_topic(
        ends,
        lambda each: {
            "partition": each.place.partition,
            "leader_epoch": each.epoch,
            "end_offset": each.offset,
        },
        names=("topic", "partitions"),
    )
    return encode_answer(request, topics=topics)
