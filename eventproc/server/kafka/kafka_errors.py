"""The codes by which Kafka's clients learn why something was refused, and which error of the store has which code."""

from __future__ import annotations

from collections.abc import Iterable
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
from eventproc.store.model.group_errors import GroupNotEmpty
from eventproc.store.model.kafka_rounds import MemberRefused


class KafkaCode(IntEnum):
    """The codes that this server sends, with the names and the numbers of the protocol."""

    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    REQUEST_TIMED_OUT = 7
    MESSAGE_TOO_LARGE = 10
    OFFSET_METADATA_TOO_LARGE = 12
    COORDINATOR_NOT_AVAILABLE = 15
    INVALID_TOPIC_EXCEPTION = 17
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
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
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    SASL_AUTHENTICATION_FAILED = 58
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    UNKNOWN_LEADER_EPOCH = 75
    MEMBER_ID_REQUIRED = 79
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    PRODUCER_FENCED = 90
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
    return _code_in(_CODES, why)


def _code_in(codes: Iterable[tuple[type[Exception], KafkaCode]], why: Exception) -> KafkaCode:
    if isinstance(why, KafkaRefusal):
        return why.code
    if isinstance(why, MemberRefused):
        return KafkaCode[why.problem.name]
    return next(code for kind, code in codes if isinstance(why, kind))


_GROUP_CODES: Final[tuple[tuple[type[Exception], KafkaCode], ...]] = (
    (NotPermitted, KafkaCode.GROUP_AUTHORIZATION_FAILED),
    (NotFound, KafkaCode.GROUP_ID_NOT_FOUND),
    (GroupNotEmpty, KafkaCode.NON_EMPTY_GROUP),
    (InvalidArgument, KafkaCode.INVALID_GROUP_ID),
    (IllegalTransition, KafkaCode.COORDINATOR_NOT_AVAILABLE),  # the scope is being deleted
    (Retryable, KafkaCode.COORDINATOR_NOT_AVAILABLE),
)

GROUP_REFUSALS: Final[tuple[type[Exception], ...]] = (
    KafkaRefusal,
    MemberRefused,
    *(kind for kind, _ in _GROUP_CODES),
)
"""What `group_code_of` knows."""


def group_code_of(why: Exception) -> KafkaCode:
    """Return the code of one of GROUP_REFUSALS, of a call about a group."""
    return _code_in(_GROUP_CODES, why)
