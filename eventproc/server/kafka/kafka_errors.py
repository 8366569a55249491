"""The codes by which Kafka's clients learn why something was refused, and which error of the store has which code."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from eventproc.server.access.authority import NotPermitted
from eventproc.store.model.errors import (
    AlreadyExists,
    IllegalTransition,
    InProgress,
    InvalidArgument,
    InvalidCut,
    NotFound,
    Retryable,
    ScaleRefused,
    SegmentSealed,
    StillPending,
    StreamReplaced,
    StreamSealed,
)


class KafkaCode(IntEnum):
    """The codes that this server sends, with the names and the numbers of the protocol."""

    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    REQUEST_TIMED_OUT = 7
    MESSAGE_TOO_LARGE = 10
    INVALID_TOPIC_EXCEPTION = 17
    TOPIC_AUTHORIZATION_FAILED = 29
    UNSUPPORTED_SASL_MECHANISM = 33
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    KAFKA_STORAGE_ERROR = 56
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    UNKNOWN_LEADER_EPOCH = 75
    INVALID_RECORD = 87
    MISMATCHED_ENDPOINT_TYPE = 114


class KafkaRefusal(Exception):
    """What a client is refused, with the code that it is sent, and a text for its log."""

    def __init__(self, code: KafkaCode, text: str) -> None:
        super().__init__(text)
        self.code = code


_CODES: Final[tuple[tuple[type[Exception], KafkaCode], ...]] = (
    (NotPermitted, KafkaCode.TOPIC_AUTHORIZATION_FAILED),
    (NotFound, KafkaCode.UNKNOWN_TOPIC_OR_PARTITION),
    (StreamReplaced, KafkaCode.UNKNOWN_TOPIC_OR_PARTITION),
    (AlreadyExists, KafkaCode.TOPIC_ALREADY_EXISTS),
    (ScaleRefused, KafkaCode.INVALID_PARTITIONS),
    (StillPending, KafkaCode.REQUEST_TIMED_OUT),
    (InProgress, KafkaCode.REQUEST_TIMED_OUT),  # another change of the topic is not done yet
    (InvalidCut, KafkaCode.OFFSET_OUT_OF_RANGE),  # a truncation that another one has overtaken
    (IllegalTransition, KafkaCode.POLICY_VIOLATION),
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
