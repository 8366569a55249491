"""One connection of a client of Kafka, in messages and bytes: it may be wrong."""

from __future__ import annotations

import socket
import ssl
import struct
import warnings
from pathlib import Path
from typing import Any, Self

from aiokafka.record.default_records import DefaultRecordBatchBuilder

from eventproc.testing.crash import PATIENCE_S

with warnings.catch_warnings():
    warnings.simplefilter(
        "ignore", DeprecationWarning
    )  # how it reads its messages is deprecated in 3.11 and 3.12
    from kafka.protocol.admin.cluster import (
        DescribeClusterRequest as DescribeClusterRequest,
        DescribeClusterResponse as DescribeClusterResponse,
    )
    from kafka.protocol.admin.configs import (
        AlterConfigsRequest as AlterConfigsRequest,
        AlterConfigsResponse as AlterConfigsResponse,
        DescribeConfigsRequest as DescribeConfigsRequest,
        DescribeConfigsResponse as DescribeConfigsResponse,
        IncrementalAlterConfigsRequest as IncrementalAlterConfigsRequest,
        IncrementalAlterConfigsResponse as IncrementalAlterConfigsResponse,
    )
    from kafka.protocol.admin.topics import (
        CreatePartitionsRequest as CreatePartitionsRequest,
        CreatePartitionsResponse as CreatePartitionsResponse,
        CreateTopicsRequest as CreateTopicsRequest,
        CreateTopicsResponse as CreateTopicsResponse,
        DeleteRecordsRequest as DeleteRecordsRequest,
        DeleteRecordsResponse as DeleteRecordsResponse,
        DeleteTopicsRequest as DeleteTopicsRequest,
        DeleteTopicsResponse as DeleteTopicsResponse,
    )
    from kafka.protocol.consumer import (
        FetchRequest,
        FetchResponse as FetchResponse,
        ListOffsetsRequest as ListOffsetsRequest,
        ListOffsetsResponse as ListOffsetsResponse,
        OffsetForLeaderEpochRequest as OffsetForLeaderEpochRequest,
        OffsetForLeaderEpochResponse as OffsetForLeaderEpochResponse,
    )
    from kafka.protocol.metadata import (
        MetadataRequest as MetadataRequest,
        MetadataResponse as MetadataResponse,
    )
    from kafka.protocol.metadata.api_versions import (
        ApiVersionsRequest as ApiVersionsRequest,
        ApiVersionsResponse as ApiVersionsResponse,
    )
    from kafka.protocol.producer import (
        InitProducerIdRequest as InitProducerIdRequest,
        InitProducerIdResponse as InitProducerIdResponse,
        ProduceRequest as ProduceRequest,
        ProduceResponse as ProduceResponse,
    )
    from kafka.protocol.sasl import (
        SaslAuthenticateRequest as SaslAuthenticateRequest,
        SaslAuthenticateResponse as SaslAuthenticateResponse,
        SaslHandshakeRequest as SaslHandshakeRequest,
        SaslHandshakeResponse as SaslHandshakeResponse,
    )

HEAD = struct.Struct(">hhih")


class KafkaPeer:
    """A client's connection, which sends any bytes, also wrong ones."""

    def __init__(self, address: str, authority: Path | None = None) -> None:
        """authority: file with the certificate of the authority that signed the server's; None: without TLS."""
        host, port = address.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), PATIENCE_S)
        if authority is not None:
            context = ssl.create_default_context(cafile=str(authority))
            self._socket = context.wrap_socket(self._socket, server_hostname="localhost")
        self._file = self._socket.makefile("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._socket.close()

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def take(self) -> bytes:
        """Return the payload of the next frame; empty when the server has closed the connection."""
        try:
            head = self._file.read(4)
            return self._file.read(int.from_bytes(head, "big")) if len(head) == 4 else b""
        except ConnectionResetError:
            return b""

    def ask(self, request: Any, response: Any, version: int) -> Any:
        """Send a request, and return the body of its answer."""
        self.send(framed(request, version))
        answer = self.take()
        assert int.from_bytes(answer[:4], "big") == 7
        tags = request.API_KEY != 18 and response.flexible_version_q(version)
        return response.decode(memoryview(answer)[4 + tags :], version=version)

    def log_in(self, user: str, password: str) -> None:
        """Show who the client is, by PLAIN."""
        self.ask(SaslHandshakeRequest(version=1, mechanism="PLAIN"), SaslHandshakeResponse, 1)
        message = SaslAuthenticateRequest(version=1, auth_bytes=f"\0{user}\0{password}".encode())
        assert self.ask(message, SaslAuthenticateResponse, 1).error_code == 0

    def produce(self, topic: str, batch: bytes, partition: int = 0, version: int = 9) -> tuple[int, int]:
        """Send a batch; return the code and the offset of its answer."""
        request = produce_request(topic, batch, partition, version)
        found = self.ask(request, ProduceResponse, version).responses[0].partition_responses[0]
        return found.error_code, found.base_offset

    def fetch(
        self, topic: str, offset: int, version: int = 11, *, wait_ms: int = 0, bytes_min: int = 1
    ) -> tuple[int, int, bytes]:
        """Return the code, the end and the records of a partition."""
        request = fetch_request(topic, offset, version, wait_ms=wait_ms, bytes_min=bytes_min)
        found = self.ask(request, FetchResponse, version).responses[0].partitions[0]
        return found.error_code, found.high_watermark, bytes(found.records or b"")


def fetch_request(topic: str, offset: int, version: int = 11, *, wait_ms: int = 0, bytes_min: int = 1) -> Any:
    topics = FetchRequest.FetchTopic
    part = topics.FetchPartition(
        version=version, partition=0, fetch_offset=offset, partition_max_bytes=1_000_000
    )
    return FetchRequest(
        version=version,
        max_wait_ms=wait_ms,
        min_bytes=bytes_min,
        max_bytes=1_000_000,
        topics=[topics(version=version, topic=topic, partitions=[part])],
    )


def produce_request(topic: str, batch: bytes, partition: int = 0, version: int = 9, acks: int = -1) -> Any:
    topics = ProduceRequest.TopicProduceData
    part = topics.PartitionProduceData(version=version, index=partition, records=batch)
    asked = topics(version=version, name=topic, partition_data=[part])
    return ProduceRequest(version=version, transactional_id=None, acks=acks, timeout_ms=1, topic_data=[asked])


def new_topic(name: str, partitions: int, version: int = 5, **configs: str) -> Any:
    """Return a topic to create. configs: with _ in place of the dots of their names."""
    of_topic = CreateTopicsRequest.CreatableTopic
    given = [
        of_topic.CreatableTopicConfig(version=version, name=key.replace("_", "."), value=value)
        for key, value in configs.items()
    ]
    return of_topic(
        version=version,
        name=name,
        num_partitions=partitions,
        replication_factor=-1,
        assignments=[],
        configs=given,
    )


def framed(request: Any, version: int) -> bytes:
    """Return the frame of a request with number 7."""
    body: bytes = bytes(request.encode(version=version))
    head = HEAD.pack(request.API_KEY, version, 7, 1) + b"p" + b"\0" * request.flexible_version_q(version)
    return b"".join((struct.pack(">i", len(head) + len(body)), head, body))


def batch_of(
    *values: bytes, producer: tuple[int, int] = (-1, -1), first: int = -1, key: bytes | None = b"k"
) -> bytes:
    """Return a batch of records, of a producer with an epoch."""
    builder = DefaultRecordBatchBuilder(2, 0, 0, *producer, first, 2**24)
    for number, value in enumerate(values):
        builder.append(number, 1, key, value, [])
    return bytes(builder.build())


PLAIN_BATCH = batch_of(b"a", b"b")
