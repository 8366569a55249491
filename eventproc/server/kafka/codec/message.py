"""What the messages of all calls share: their classes by version, bounds, and answers as bytes."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar

import attrs
import kafka.protocol.admin as admin
import kafka.protocol.consumer as consumer
import kafka.protocol.metadata as metadata
import kafka.protocol.producer as producer
import kafka.protocol.sasl as sasl

from eventproc.server.frames import MalformedFrame
from eventproc.server.kafka import calls as c
from eventproc.server.kafka.admin_calls import AdminCall
from eventproc.server.kafka.calls import TopicPlace
from eventproc.server.kafka.group_calls import GroupCall
from eventproc.server.kafka.kafka_errors import KafkaCode
from eventproc.server.kafka.transaction_calls import TransactionCall

T = TypeVar("T")

Call: TypeAlias = c.Greeting | c.Produce | c.DataCall | GroupCall | AdminCall | TransactionCall

LENGTH: Final = struct.Struct(">i")
"""The length of a frame."""

PLACES_MAX: Final = 5_000
"""Partitions, topics, groups or members that a request names. Each costs some 20 us. Higher: one request keeps all
others waiting for longer; lower: consumers of that many partitions are cut off."""

NODE: Final = 1
"""Number of the broker: a server shows itself as the only one."""

CLUSTER: Final = "eventproc"
"""Name of the cluster that clients see."""


_CLASSES: Final[dict[str, Any]] = {
    name: found
    for module in (admin, consumer, metadata, producer, sasl)
    for name, found in vars(module).items()
}
"""The classes of all messages that the library knows, by their names."""


@attrs.frozen
class KafkaMessage:
    """A call by its name, the versions that are served, and how a request becomes the call.

    is_head_plain: whether the head of the answer has no tagged fields in any version.
    """

    name: str
    least: int
    most: int
    call: Callable[[Any], Call]
    is_head_plain: bool = False
    request: Any = attrs.field(init=False)
    answer: Any = attrs.field(init=False)

    @request.default
    def _request(self) -> Any:
        return _CLASSES[f"{self.name}Request"]

    @answer.default
    def _answer(self) -> Any:
        return _CLASSES[f"{self.name}Response"]

    @property
    def key(self) -> int:
        """The number of the call."""
        number: int = self.request.API_KEY
        return number


class KafkaRequest(NamedTuple):
    """A request: the call, its messages and version.

    number: of the request, which the answer repeats. client: the name that the client gives itself.
    """

    call: Call
    message: KafkaMessage
    version: int
    number: int
    client: str = ""


class PartitionResult(Protocol):
    """The answer for one partition."""

    @property
    def place(self) -> TopicPlace:
        """The partition."""
        ...

    @property
    def code(self) -> KafkaCode:
        """Why it is refused, if it is."""
        ...


A = TypeVar("A", bound=PartitionResult)


def place_of(topic: str | None, partition: int) -> TopicPlace:
    """Return a place that a client names. Raises MalformedFrame."""
    if topic is None:
        raise MalformedFrame("a topic without a name")
    return TopicPlace(topic, partition)


def text_of(value: str | None) -> str:
    """Return a name that a client sends. Raises MalformedFrame if it is missing."""
    if value is None:
        raise MalformedFrame("a name is missing")
    return value


def bounded(named: Sequence[T], what: str = "partitions") -> Sequence[T]:
    """Return what a request names. Raises MalformedFrame if it is too much."""
    if len(named) > PLACES_MAX:
        raise MalformedFrame(f"{len(named):,} {what} in a request, which has {PLACES_MAX:,} at most")
    return named


def encode_answer(request: KafkaRequest, **fields: object) -> bytes:
    """Return the frame of an answer with these fields of the message; its parts are dicts of theirs."""
    message, version = request.message, request.version
    body = bytes(_part(message.answer, version, fields).encode(version=version))
    is_tagged = not message.is_head_plain and message.answer.flexible_version_q(version)
    head = request.number.to_bytes(4, "big", signed=True) + (b"\0" if is_tagged else b"")
    return b"".join((LENGTH.pack(len(head) + len(body)), head, body))


def _part(kind: Any, version: int, fields: Mapping[str, object]) -> Any:
    """Return a message or a part of one, whose class knows those of its own parts."""
    made: dict[str, object] = {}
    for name, value in fields.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            of_part = kind.fields[name].data_class
            value = [_part(of_part, version, each) for each in value]
        made[name] = value
    return kind(version=version, **made)


def by_topic(
    answers: Iterable[A],
    fields: Callable[[A], dict[str, object]] = lambda each: {"partition_index": each.place.partition},
    *,
    names: tuple[str, str] = ("name", "partitions"),
    code: Callable[[KafkaCode], int] = int,
    code_name: str = "error_code",
) -> list[dict[str, object]]:
    """Return the answers of partitions, grouped by their topics, which stand together.

    fields: those of a partition, without the code. names: a topic's fields for its name and its partitions. code: its
    number for this client.
    """
    topic_name, parts_name = names
    return [
        {topic_name: topic, parts_name: [{code_name: code(each.code), **fields(each)} for each in parts]}
        for topic, parts in groupby(answers, lambda each: each.place.topic)
    ]
