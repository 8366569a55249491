"""Requests and answers as bytes. The only importer of the library that knows the messages of each version.

A frame is a length of four bytes and a message. A request begins with the number of its call, the version and a number
that its answer repeats.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, Final, NamedTuple, TypeVar

from kafka.protocol.consumer import (
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
)
from kafka.protocol.metadata import MetadataRequest, MetadataResponse
from kafka.protocol.metadata.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kafka.protocol.producer import (
    InitProducerIdRequest,
    InitProducerIdResponse,
    ProduceRequest,
    ProduceResponse,
)
from kafka.protocol.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

from eventproc.server.frames import MalformedFrame
from eventproc.server.kafka import calls as c
from eventproc.server.kafka.kafka_errors import KafkaCode

T = TypeVar("T")
A = TypeVar("A", c.BatchAnswer, c.PartitionAnswer, c.FoundOffset)

LENGTH: Final = struct.Struct(">i")
"""The length of a frame."""

FRAME_BYTES_MAX: Final = 16 * 2**20
"""Largest frame of a client: a request of two partitions with an event of the largest size each. Kafka's own is 100
MiB. Higher: more memory for a connection; lower: producers of large batches are cut off."""

PLACES_MAX: Final = 5_000
"""Partitions, or topics, that a request names. Each costs some 20 us. Higher: one request keeps all others waiting for
longer; lower: consumers of that many partitions are cut off."""

NODE: Final = 1
"""Number of the broker: a server shows itself as the only one."""

Call = (
    c.ApiVersions
    | c.Metadata
    | c.Produce
    | c.Fetch
    | c.ListOffsets
    | c.InitProducerId
    | c.SaslHandshake
    | c.SaslAuthenticate
)

_HEAD: Final = struct.Struct(">hhih")
"""Number of the call, version, number of the request, length of the client's name (-1: none)."""

_API_VERSIONS: Final = 18


class KafkaRequest(NamedTuple):
    """A request: the call, its number and version, and the number of the request, which the answer repeats."""

    call: Call
    key: int
    version: int
    number: int


class _Message(NamedTuple):
    """The classes of a call's messages, the versions that are served, and how a request becomes a call."""

    request: Any
    answer: Any
    least: int
    most: int
    call: Callable[[Any], Call]


def _place(topic: str | None, partition: int) -> c.TopicPlace:
    if topic is None:
        raise MalformedFrame("a topic without a name")
    return c.TopicPlace(topic, partition)


def _bounded(places: Sequence[T]) -> Sequence[T]:
    if len(places) > PLACES_MAX:
        raise MalformedFrame(f"{len(places):,} partitions in a request, which has {PLACES_MAX:,} at most")
    return places


def _produce(body: Any) -> c.Produce:
    batches = [
        (_place(topic.name, part.index), bytes(part.records or b""))
        for topic in body.topic_data
        for part in topic.partition_data
    ]
    return c.Produce(_bounded(batches), body.acks != 0)


def _fetch(body: Any) -> c.Fetch:
    wanted = [
        c.WantedPlace(_place(topic.topic, part.partition), part.fetch_offset, part.partition_max_bytes)
        for topic in body.topics
        for part in topic.partitions
    ]
    return c.Fetch(_bounded(wanted), body.max_wait_ms, body.min_bytes, body.max_bytes)


def _list_offsets(body: Any) -> c.ListOffsets:
    times = [
        (_place(topic.name, part.partition_index), part.timestamp)
        for topic in body.topics
        for part in topic.partitions
    ]
    return c.ListOffsets(_bounded(times))


def _metadata(body: Any) -> c.Metadata:
    topics = body.topics
    return c.Metadata(None if topics is None else [_place(each.name, 0).topic for each in _bounded(topics)])


# A test asks each call in each version that is announced.
_MESSAGES: Final[Mapping[int, _Message]] = {
    0: _Message(ProduceRequest, ProduceResponse, 3, 9, _produce),
    1: _Message(FetchRequest, FetchResponse, 4, 12, _fetch),
    2: _Message(ListOffsetsRequest, ListOffsetsResponse, 1, 6, _list_offsets),
    3: _Message(
        MetadataRequest,
        MetadataResponse,
        1,
        9,
        _metadata,
    ),
    17: _Message(
        SaslHandshakeRequest, SaslHandshakeResponse, 1, 1, lambda body: c.SaslHandshake(body.mechanism)
    ),
    _API_VERSIONS: _Message(ApiVersionsRequest, ApiVersionsResponse, 0, 3, lambda _: c.ApiVersions()),
    22: _Message(
        InitProducerIdRequest,
        InitProducerIdResponse,
        0,
        4,
        lambda body: c.InitProducerId(body.transactional_id, body.producer_id, body.producer_epoch),
    ),
    36: _Message(
        SaslAuthenticateRequest,
        SaslAuthenticateResponse,
        0,
        2,
        lambda body: c.SaslAuthenticate(bytes(body.auth_bytes)),
    ),
}


class UnsupportedApiVersions(Exception):
    """A client asks for the versions in a version that is too new (KIP-511). request: in the oldest one, to answer."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.request = KafkaRequest(c.ApiVersions(), _API_VERSIONS, 0, number)


def parse_request(frame: bytes) -> KafkaRequest:
    """Return the request of a frame. Raises MalformedFrame, UnsupportedApiVersions."""
    try:
        key, version, number, name_bytes = _HEAD.unpack_from(frame)
    except struct.error:
        raise MalformedFrame(f"a frame of {len(frame)} bytes") from None
    message = _MESSAGES.get(key)
    if message is None or not message.least <= version <= message.most:
        if key == _API_VERSIONS:
            raise UnsupportedApiVersions(number)
        raise MalformedFrame(f"call {key} in version {version}, which is not served")
    at = _HEAD.size + max(name_bytes, 0)
    try:
        if message.request.flexible_version_q(version):
            at = _after_tags(frame, at)
        body = message.request.decode(memoryview(frame)[at:], version=version)
        return KafkaRequest(message.call(body), key, version, number)
    except MalformedFrame:
        raise
    except Exception as why:  # the library raises what its decoders meet
        raise MalformedFrame(f"call {key} in version {version}: {why!r}") from None


def _after_tags(frame: bytes, at: int) -> int:
    """Return where the tagged fields of a head end. The clients that are known send none."""
    if frame[at] != 0:
        raise MalformedFrame("a head with tagged fields")
    return at + 1


def encode_answer(request: KafkaRequest, **fields: object) -> bytes:
    """Return the frame of an answer with these fields of the message."""
    answer, version = _MESSAGES[request.key].answer, request.version
    body = bytes(answer(version=version, **fields).encode(version=version))
    # The head of this one answer has no tagged fields, because a client reads it before it knows the versions.
    is_tagged = request.key != _API_VERSIONS and answer.flexible_version_q(version)
    head = request.number.to_bytes(4, "big", signed=True) + (b"\0" if is_tagged else b"")
    return b"".join((LENGTH.pack(len(head) + len(body)), head, body))


def versions_answer(request: KafkaRequest, code: KafkaCode = KafkaCode.NONE) -> bytes:
    """Return which calls are served, in which versions."""
    kind = ApiVersionsResponse.ApiVersion
    served = [
        kind(version=request.version, api_key=key, min_version=each.least, max_version=each.most)
        for key, each in sorted(_MESSAGES.items())
    ]
    return encode_answer(request, error_code=int(code), api_keys=served)


def metadata_answer(
    request: KafkaRequest, address: tuple[str, int], topics: Sequence[c.TopicAnswer]
) -> bytes:
    """Return the topics, each partition of which the server at the address leads."""
    version, of_topic = request.version, MetadataResponse.MetadataResponseTopic
    (host, port) = address
    broker = MetadataResponse.MetadataResponseBroker(
        version=version, node_id=NODE, host=host, port=port, rack=None
    )
    return encode_answer(
        request,
        brokers=[broker],
        cluster_id="eventproc",
        controller_id=NODE,
        topics=[
            of_topic(
                version=version,
                error_code=int(topic.code),
                name=topic.name,
                is_internal=False,
                partitions=[
                    of_topic.MetadataResponsePartition(
                        version=version,
                        error_code=0,
                        partition_index=number,
                        leader_id=NODE,
                        leader_epoch=0,
                        replica_nodes=[NODE],
                        isr_nodes=[NODE],
                        offline_replicas=[],
                    )
                    for number in range(topic.partitions)
                ],
            )
            for topic in topics
        ],
    )


def produce_answer(request: KafkaRequest, produced: Iterable[c.BatchAnswer]) -> bytes:
    """Return where the batches of a request are."""
    topics = _by_topic(
        request.version,
        ProduceResponse.TopicProduceResponse,
        ProduceResponse.TopicProduceResponse.PartitionProduceResponse,
        ("name", "partition_responses"),
        produced,
        lambda each: {
            "index": each.place.partition,
            "base_offset": each.offset,
            "log_append_time_ms": -1,
            "log_start_offset": -1,
            "record_errors": [],
            "error_message": each.text,
        },
    )
    return encode_answer(request, responses=topics)


def fetch_answer(request: KafkaRequest, fetched: Iterable[c.PartitionAnswer]) -> bytes:
    """Return what follows in the partitions of a request."""
    topics = _by_topic(
        request.version,
        FetchResponse.FetchableTopicResponse,
        FetchResponse.FetchableTopicResponse.PartitionData,
        ("topic", "partitions"),
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
    )
    # Session 0: each request names all of its partitions.
    return encode_answer(request, error_code=0, session_id=0, responses=topics)


def offsets_answer(request: KafkaRequest, found: Iterable[c.FoundOffset]) -> bytes:
    """Return the offsets of the times of a request."""
    topics = _by_topic(
        request.version,
        ListOffsetsResponse.ListOffsetsTopicResponse,
        ListOffsetsResponse.ListOffsetsTopicResponse.ListOffsetsPartitionResponse,
        ("name", "partitions"),
        found,
        lambda each: {
            "partition_index": each.place.partition,
            "timestamp": each.time_ms,
            "offset": each.offset,
            "leader_epoch": 0,
        },
    )
    return encode_answer(request, topics=topics)


def _by_topic(
    version: int,
    of_topic: Any,
    of_partition: Any,
    names: tuple[str, str],
    answers: Iterable[A],
    fields: Callable[[A], dict[str, object]],
) -> list[Any]:
    """Return the answers of partitions, grouped by their topics, which stand together.

    of_topic, of_partition: classes of their answers. names: a topic's fields for its name and its partitions. fields:
    those of a partition, without the code.
    """
    topic_name, parts_name = names
    return [
        of_topic(
            version=version,
            **{
                topic_name: topic,
                parts_name: [
                    of_partition(version=version, error_code=int(each.code), **fields(each)) for each in parts
                ],
            },
        )
        for topic, parts in groupby(answers, lambda each: each.place.topic)
    ]
