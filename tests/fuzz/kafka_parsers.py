"""Parsers of Kafka's protocol: requests, batches of records, and the messages of a login. See `parsers`."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Awaitable, Callable
from contextlib import suppress
from random import Random
from types import SimpleNamespace
from typing import Any, Final, TypeVar, cast

import crc32c

from eventproc.base.clock import SystemClock
from eventproc.errors import InvalidArgument
from eventproc.server.access.authority import Authority, Caller, NotAuthenticated
from eventproc.server.frames import MalformedFrame
from eventproc.server.kafka.codec import UnsupportedApiVersions, parse_request
from eventproc.server.kafka.codec.administration import MESSAGES as ADMINISTRATION
from eventproc.server.kafka.codec.groups import MESSAGES as GROUPS
from eventproc.server.kafka.codec.topics import MESSAGES as TOPICS
from eventproc.server.kafka.codec.transactions import MESSAGES as TRANSACTIONS
from eventproc.server.kafka.compression import Decompressor
from eventproc.server.kafka.kafka_errors import KafkaRefusal
from eventproc.server.kafka.record_batches import DecodedRoom, RecordBatch, decode_batch, encode_runs
from eventproc.server.kafka.sasl import SASL_MECHANISMS, SaslSession
from eventproc.store.database import Database
from eventproc.store.model.ids import SegmentId
from eventproc.store.segments import EventRun
from tests.fuzz.kafka_calls import check_call
from tests.kafka.peer import HEAD, batch_of

T = TypeVar("T")

CALLS: Final = (*TOPICS, *GROUPS, *TRANSACTIONS, *ADMINISTRATION)
TEXTS: Final = ("", "t", "s/t", "é", "consumer", "range")


def check_request(data: bytes) -> None:
    """A request is the same call after it was written again, and is answered; or it is refused."""
    try:
        found = parse_request(data)
    except (MalformedFrame, UnsupportedApiVersions):
        return
    kind, version = found.message.request, found.version
    tag = b"\0" * kind.flexible_version_q(version)
    body = kind.decode(
        memoryview(data)[HEAD.size + max(HEAD.unpack_from(data)[3], 0) + len(tag) :], version=version
    )
    fields = {
        name: getattr(body, name) for name, field in kind.fields.items() if field.for_version_q(version)
    }
    again = bytes(kind(version=version, **fields).encode(version=version))
    assert parse_request(HEAD.pack(found.message.key, version, 7, 0) + tag + again).call == found.call
    check_call(found)


NO_NAME: Final = HEAD.pack(20, 1, 7, 1) + bytes.fromhex("70 00000001 ffff 00000001")
"""A call to delete a topic whose name is missing."""


def request_sample(random: Random) -> bytes:
    message = random.choice(CALLS)
    version = random.randint(message.least, message.most)
    request = message.request
    tag = b"\0" * request.flexible_version_q(version)
    body = bytes(filled(request, version, random).encode(version=version))
    return b"".join((HEAD.pack(request.API_KEY, version, 7, 1), b"p", tag, body))


def filled(kind: Any, version: int, random: Random) -> Any:
    """Return a message of the library with values of all its fields."""
    values = {
        name: _value(field, version, random)
        for name, field in kind.fields.items()
        if field.for_version_q(version)
    }
    return kind(version=version, **values)


def _value(field: Any, version: int, random: Random) -> Any:
    if field.tag is not None or random.random() < 0.1:
        return field.default
    count = random.randrange(3)
    if field.is_struct_array():
        return [filled(field.data_class, version, random) for _ in range(count)]
    if field.is_array():
        return [_value(field.array_of, version, random) for _ in range(count)]
    if field.is_struct():
        return filled(field.data_class, version, random)
    match field.type_str:
        case "string":
            return random.choice((*TEXTS, "topic", None))
        case "bytes" | "records":
            return random.choice((b"", b"x", batch_of(b"a")))
        case "bool":
            return random.random() < 0.5
        case "int8" | "int16" | "int32" | "int64":
            return random.choice((0, 1, -1, 127))
        case _:
            return field.default


DECOMPRESSOR: Final = Decompressor()


def check_records(data: bytes) -> None:
    """The records of a batch are the same after they were written as consumers get them, or the batch is refused.

    The length and the checksum are made right first: an input would hardly ever have them.
    """
    if len(data) < 61:
        return
    sealed = bytearray(data)
    sealed[8:12] = (len(data) - 12).to_bytes(4, "big")
    sealed[17:21] = crc32c.crc32c(memoryview(sealed)[21:]).to_bytes(4, "big")
    try:
        found = _decoded(bytes(sealed))
    except (KafkaRefusal, InvalidArgument):
        return
    block = found.events.block
    times: list[int | None] | None = (
        None
        if block.event_times is None
        else [0 if each is None or each < 0 else each for each in block.event_times]
    )
    run = EventRun(
        SegmentId(0),
        0,
        len(found.events.data),
        0,
        0,
        [*block.payloads],
        block.keys,
        times,
        block.headers,
        None,
    )
    batches = list(encode_runs([run], None, 0))
    assert (batches[0].first, batches[-1].end) == (0, len(block))
    again = [_decoded(each.data).events.block for each in batches]
    assert [payload for each in again for payload in each.payloads] == [*block.payloads]
    for name in ("keys", "headers"):
        columns = [getattr(each, name) or [None] * len(each) for each in again]
        assert [value for column in columns for value in column] == (
            getattr(block, name) or [None] * len(block)
        )


def _decoded(batch: bytes) -> RecordBatch:
    return decode_batch(batch, 0, DECOMPRESSOR, DecodedRoom())


def records_sample(random: Random) -> bytes:
    from aiokafka.record.default_records import DefaultRecordBatchBuilder

    producer = random.choice(((-1, -1, -1), (5, 0, 0)))
    builder = DefaultRecordBatchBuilder(2, random.randrange(5), 0, *producer, 2**20)
    for number in range(random.randrange(1, 5)):
        key, value = (random.choice((None, b"", b"k", random.randbytes(9))) for _ in range(2))
        headers = [
            (random.choice(TEXTS), random.choice((None, b"", b"v", b"\xff")))
            for _ in range(random.randrange(3))
        ]
        builder.append(number, random.choice((0, 1, 10**12)), key, value, headers)
    return bytes(builder.build())


class QuickAuthority(Authority):
    """An authority without users, which does not make strangers wait for the answer to a wrong proof."""

    def __init__(self) -> None:
        super().__init__(cast("Database", SimpleNamespace(clock=SystemClock())))

    async def authenticate_proof(self, name: str, verifier: object, is_right: Callable[[], bool]) -> Caller:
        assert not is_right(), "nobody knows the password of an unknown user"
        raise NotAuthenticated


AUTHORITY: Final = QuickAuthority()
NONCE: Final = bytes(24)


def check_login(data: bytes) -> None:
    """The messages of a stranger's login are answered, or refused. They are separated by a line feed.

    The first byte chooses the mechanism. A part of a nonce, which no stranger can guess, stands in place of `N`.
    """
    if not data:
        return
    session = SaslSession(AUTHORITY, lambda count: NONCE[:count])
    session.choose(SASL_MECHANISMS[data[0] % len(SASL_MECHANISMS)])
    with suppress(NotAuthenticated):
        for each in data[1:].split(b"\n")[:3]:
            _run(session.take(each.replace(b"N", b64encode(NONCE))))


def _run(call: Awaitable[T]) -> T:
    """Return the result of a coroutine that waits for nothing."""
    try:
        call.__await__().send(None)
    except StopIteration as done:
        return cast("T", done.value)
    raise AssertionError("the login of a stranger waits")


def login_sample(random: Random) -> bytes:
    name = random.choice(("user", "u=2Cs", "é", "n" * 300))
    proof = b64encode(random.randbytes(random.choice((32, 64)))).decode()
    messages = (f"n,,n={name},r=abc", f"c=biws,r=abcN,p={proof}")
    if random.random() < 0.3:
        return b"\0" + b"\0".join((b"", name.encode(), b"password"))
    return bytes((random.randrange(1, 3),)) + "\n".join(messages).encode()
