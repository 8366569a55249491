"""One connection of a client of Kafka, in messages and bytes: it may be wrong."""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import kafka.protocol.admin as admin
import kafka.protocol.consumer as consumer
import kafka.protocol.metadata as metadata
import kafka.protocol.producer as producer
import kafka.protocol.sasl as sasl
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from eventproc.testing.crash import PATIENCE_S

CLASSES: dict[str, Any] = {}
"""The classes of all messages by their names."""
for module in (admin, consumer, metadata, producer, sasl):
    CLASSES.update(vars(module))

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

    def ask(self, call: str, version: int, /, **fields: object) -> Any:
        """Send a request, and return the body of its answer."""
        self.send(framed(call, version, **fields))
        return answer_of(call, version, self.take())

    def announced(self) -> dict[int, range]:
        """Return the versions of each call that the server announces."""
        found = self.ask("ApiVersions", 0).api_keys
        return {each.api_key: range(each.min_version, each.max_version + 1) for each in found}

    def log_in(self, user: str, password: str) -> None:
        """Show who the client is, by PLAIN."""
        self.ask("SaslHandshake", 1, mechanism="PLAIN")
        message = f"\0{user}\0{password}".encode()
        assert self.ask("SaslAuthenticate", 1, auth_bytes=message).error_code == 0

    def produce(self, topic: str, batch: bytes, partition: int = 0, version: int = 9) -> tuple[int, int]:
        """Send a batch; return the code and the offset of its answer."""
        (found,) = self.ask("Produce", version, **to_produce(topic, batch, partition=partition)).responses
        (part,) = found.partition_responses
        return part.error_code, part.base_offset

    def fetch(
        self, topic: str, offset: int, version: int = 11, *, wait_ms: int = 0, bytes_min: int = 1
    ) -> tuple[int, int, bytes]:
        """Return the code, the end and the records of a partition."""
        fields = to_fetch(topic, offset, wait_ms=wait_ms, bytes_min=bytes_min)
        found = self.ask("Fetch", version, **fields).responses[0].partitions[0]
        return found.error_code, found.high_watermark, bytes(found.records or b"")


def to_fetch(topic: str, offset: int, *, wait_ms: int = 0, bytes_min: int = 1) -> dict[str, Any]:
    """Return the fields of a request for the records of a partition."""
    part = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1_000_000}
    return {
        "max_wait_ms": wait_ms,
        "min_bytes": bytes_min,
        "max_bytes": 1_000_000,
        "topics": [{"topic": topic, "partitions": [part]}],
    }


def to_produce(
    topic: str, *batches: bytes, partition: int = 0, acks: int = -1, name: str | None = None
) -> dict[str, Any]:
    """Return the fields of a request with batches of a partition. name: of the transactions of the producer."""
    parts = [{"index": partition, "records": each} for each in batches]
    topics = [{"name": topic, "partition_data": parts}]
    return {"transactional_id": name, "acks": acks, "timeout_ms": 1, "topic_data": topics}


def new_topic(name: str, partitions: int, **configs: str) -> dict[str, Any]:
    """Return a topic to create. configs: with _ in place of the dots of their names."""
    return {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": -1,
        "assignments": [],
        "configs": [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()],
    }


def message_of(kind: Any, version: int, fields: Mapping[str, object]) -> Any:
    """Return a message, or a part of one, whose own parts are given by their fields."""
    made = {
        name: [message_of(kind.fields[name].data_class, version, each) for each in value]
        if isinstance(value, list) and value and isinstance(value[0], dict)
        else value
        for name, value in fields.items()
    }
    return kind(version=version, **made)


def framed(call: str, version: int, /, **fields: object) -> bytes:
    """Return the frame of a request with number 7."""
    request = message_of(CLASSES[f"{call}Request"], version, fields)
    body: bytes = bytes(request.encode(version=version))
    head = HEAD.pack(request.API_KEY, version, 7, 1) + b"p" + b"\0" * request.flexible_version_q(version)
    return b"".join((struct.pack(">i", len(head) + len(body)), head, body))


def answer_of(call: str, version: int, frame: bytes) -> Any:
    """Return the body of the answer to request 7."""
    assert int.from_bytes(frame[:4], "big") == 7
    kind = CLASSES[f"{call}Response"]
    tags = call != "ApiVersions" and kind.flexible_version_q(version)
    return kind.decode(memoryview(frame)[4 + tags :], version=version)


def batch_of(
    *values: bytes, producer: tuple[int, int] = (-1, -1), first: int = -1, key: bytes | None = b"k"
) -> bytes:
    """Return a batch of records, of a producer with an epoch."""
    builder = DefaultRecordBatchBuilder(2, 0, 0, *producer, first, 2**24)
    for number, value in enumerate(values):
        builder.append(number, 1, key, value, [])
    return bytes(builder.build())


PLAIN_BATCH = batch_of(b"a", b"b")
