"""Requests and answers as bytes. The only importer of the library that knows the messages of each version.

A frame is a length of four bytes and a message. A request begins with the number of its call, the version and a number
that its answer repeats.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final

from eventproc.server.frames import MalformedFrame
from eventproc.server.kafka import calls as c
from eventproc.server.kafka.codec import administration, groups, topics, transactions
from eventproc.server.kafka.codec.message import KafkaMessage, KafkaRequest, encode_answer
from eventproc.server.kafka.kafka_errors import KafkaCode

FRAME_BYTES_MAX: Final = 16 * 2**20
"""Largest frame of a client: a request of two partitions with an event of the largest size each. Kafka's own is 100
MiB. Higher: more memory for a connection; lower: producers of large batches are cut off."""

_HEAD: Final = struct.Struct(">hhih")
"""Number of the call, version, number of the request, length of the client's name (-1: none)."""

# A client reads the head of this one answer before it knows the versions.
_API_VERSIONS: Final = KafkaMessage("ApiVersions", 0, 3, lambda _: c.ApiVersions(), is_head_plain=True)

# A test asks each call in each version that is announced.
_MESSAGES: Final[Mapping[int, KafkaMessage]] = {
    each.key: each
    for each in (
        _API_VERSIONS,
        # librdkafka refuses a server without version 0, although it asks in version 1.
        KafkaMessage("SaslHandshake", 0, 1, lambda body: c.SaslHandshake(body.mechanism, body.version == 0)),
        KafkaMessage("SaslAuthenticate", 0, 2, lambda body: c.SaslAuthenticate(bytes(body.auth_bytes))),
        *topics.MESSAGES,
        *groups.MESSAGES,
        *transactions.MESSAGES,
        *administration.MESSAGES,
    )
}


_ANNOUNCED_FROM: Final[Mapping[int, int]] = {0: 0}
"""The first version of a call that is announced, if it is not served. Kafka does so, too: an older librdkafka
compresses batches only for a server that shows Produce from version 0 on. It uses a later version."""


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
        if message is _API_VERSIONS:
            raise UnsupportedApiVersions(number)
        raise MalformedFrame(f"call {key} in version {version}, which is not served")
    at = _HEAD.size + max(name_bytes, 0)
    try:
        client = frame[_HEAD.size : at].decode()
        if message.request.flexible_version_q(version):
            at = _after_tags(frame, at)
        body = message.request.decode(memoryview(frame)[at:], version=version)
        return KafkaRequest(message.call(body), message, version, number, client)
    except MalformedFrame:
        raise
    except Exception as why:  # the library raises what its decoders meet
        raise MalformedFrame(f"call {key} in version {version}: {why!r}") from None


def _after_tags(frame: bytes, at: int) -> int:
    """Return where the tagged fields of a head end. The clients that are known send none."""
    if frame[at] != 0:
        raise MalformedFrame("a head with tagged fields")
    return at + 1


def versions_answer(request: KafkaRequest, code: KafkaCode = KafkaCode.NONE) -> bytes:
    """Return which calls are served, in which versions."""
    served = [
        {
            "api_key": key,
            "min_version": _ANNOUNCED_FROM.get(key, each.least),
            "max_version": each.most,
        }
        for key, each in sorted(_MESSAGES.items())
    ]
    return encode_answer(request, error_code=int(code), api_keys=served)
