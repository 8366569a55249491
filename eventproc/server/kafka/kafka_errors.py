"""The codes by which Kafka's clients learn why something was refused, and which error of the store has which code."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from eventproc.server.access.authority import NotPermitted
from eventproc.store.model.errors import InvalidArgument, NotFound, Retryable, SegmentSealed, StreamSealed


class KafkaCode(IntEnum):
    """The codes that this server sends, with the names and the numbers of the protocol."""

    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    MESSAGE_TOO_LARGE = 10
    TOPIC_AUTHORIZATION_FAILED = 29
    UNSUPPORTED_SASL_MECHANISM = 33
    UNSUPPORTED_VERSION = 35
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    KAFKA_STORAGE_ERROR = 56
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    INVALID_RECORD = 87


class KafkaRefusal(Exception):
    """What a client is refused, with the code that it is sent, and a text for its log."""

    def __init__(self, code: KafkaCode, text: str) -> None:
        super().__init__(text)
        self.code = code


_CODES: Final[tuple[tuple[type[Exception], KafkaCode], ...]] = (
    (NotPermitted, KafkaCode.TOPIC_AUTHORIZATION_FAILED),
    (NotFound, KafkaCode.UNKNOWN_TOPIC_OR_PARTITION),
    (
        SegmentSealed,
        KafkaCode.POLICY_VIOLATION,
    ),  # a sealed topic: a client that repeats it is refused for ever
    (StreamSealed, KafkaCode.POLICY_VIOLATION),
    (InvalidArgument, KafkaCode.INVALID_RECORD),
    (Retryable, KafkaCode.KAFKA_STORAGE_ERROR),  # clients repeat it
)

REFUSALS: Final[tuple[type[Exception], ...]] = (KafkaRefusal, *(kind for kind, _ in _CODES))
"""What `code_of` knows. Any other error ends the connection."""


def code_of(why: Exception) -> KafkaCode:
    """Return the code of one of REFUSALS."""
    if isinstance(why, KafkaRefusal):
        return why.code
    return next(code for kind, code in _CODES if isinstance(why, kind))
