"""Batches of records, as Kafka's clients send and get them, from and to the columns of the store.

The offset of a record is the number of its event. What the model of the store cannot say of a record is text in the
reserved header KAFKA_HEADER: an empty value that is not null, and headers that are repeated or not UTF-8.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import islice, repeat
from operator import attrgetter
from struct import Struct
from typing import Any, Final, NamedTuple

import attrs
import crc32c
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from eventproc.server.kafka.compression import RECORDS_BYTES_MAX, Decompressor
from eventproc.server.kafka.kafka_errors import KafkaCode, KafkaRefusal
from eventproc.store.catalog.routes import NO_POINT
from eventproc.store.model.limits import EVENT_BYTES_MAX, HEADERS_COUNT_MAX
from eventproc.store.model.partitions import stored_point
from eventproc.store.model.routing import key_bytes, key_text, point
from eventproc.store.segments import (
    KAFKA_HEADER,
    EncodedBlock,
    EventBlock,
    EventRun,
    Headers,
    ReservedHeaders,
    live_ranges,
    shown_headers,
)
from eventproc.streams.new_events import check_headers

_HEAD: Final = Struct(">qiibIhiqqqhii")
"""Of a batch: offset, length, epoch of the leader, format, checksum, attributes, offset of the last record from the
first, first and largest time, producer, its epoch, number of the first record, count of records."""

_AFTER_LENGTH: Final = 12
"""Bytes before what the length counts."""

_CHECKED: Final = 21
"""Bytes before what the checksum covers: offset and epoch of the leader may change."""

_FORMAT: Final = 2
_CODEC: Final = 0x07
_APPEND_TIME: Final = 0x08
_TRANSACTIONAL: Final = 0x10
_CONTROL: Final = 0x20
NO_PRODUCER: Final = -1

REQUEST_BYTES_MAX: Final = 2 * RECORDS_BYTES_MAX
"""Bytes of the records of a request, decompressed. Higher: more memory for each connection; lower: requests with
compressed batches of many partitions are refused."""

REQUEST_RECORDS_MAX: Final = 200_000
"""Records of a request, each of which takes some 500 bytes of memory while it is decoded, and a microsecond."""

KEYS_KNOWN: Final = 65_536
"""Keys whose text and point are kept, of some 200 bytes each. Higher: more memory; lower: 1 us more for each event of a
producer with more keys."""

BATCH_BYTES: Final = 2**20
"""Bytes at which a batch that is made for consumers ends. Higher: a consumer that asks for less gets more than it
wants; lower: more batches."""

_KEY, _VALUE, _TIME, _HEADERS, _OFFSET = map(attrgetter, ("key", "value", "timestamp", "headers", "offset"))


@attrs.frozen
class RecordBatch:
    """A batch of a producer: its events, and what makes them idempotent.

    raw: the bytes as they came. has_keys: whether every event has one. has_times: whether every record has a time that
    consumers get: it is given, and not before 1970. producer_id: NO_PRODUCER without idempotence.
    is_transactional: whether it belongs to a transaction of the producer.
    """

    events: EncodedBlock
    raw: bytes
    has_keys: bool
    has_times: bool
    producer_id: int
    epoch: int
    first_sequence: int
    is_transactional: bool = False


class PlacedBatch(NamedTuple):
    """A batch as consumers get it: the offsets [first, end), and its bytes."""

    first: int
    end: int
    data: bytes


@attrs.define
class DecodedRoom:
    """What the batches of a request may still become: bytes and number of records."""

    bytes_left: int = REQUEST_BYTES_MAX
    records_left: int = REQUEST_RECORDS_MAX


def decode_batch(raw: bytes, partition: int, decompressor: Decompressor, room: DecodedRoom) -> RecordBatch:
    """Return a batch of a producer as columns. About 2.4 us per record of 100 bytes.

    Raises KafkaRefusal, InvalidArgument.
    """
    if len(raw) < _HEAD.size:
        raise _corrupt(f"a batch of {len(raw)} bytes")
    (_, length, _, kind, crc, attributes, last, *_, producer, epoch, sequence, count) = _HEAD.unpack_from(raw)
    if kind != _FORMAT:
        text = f"records of format {kind}; only {_FORMAT} is served, which clients have since 2017"
        raise KafkaRefusal(KafkaCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, text)
    if length + _AFTER_LENGTH != len(raw):
        raise KafkaRefusal(KafkaCode.INVALID_RECORD, "a request has one batch for each partition")
    if crc32c.crc32c(memoryview(raw)[_CHECKED:]) != crc:
        raise _corrupt("the checksum of a batch is wrong")
    if attributes & (_CONTROL | _APPEND_TIME) or count < 1 or last != count - 1:
        raise KafkaRefusal(KafkaCode.INVALID_RECORD, "a batch that clients do not send")
    is_transactional = bool(attributes & _TRANSACTIONAL)
    if is_transactional and producer == NO_PRODUCER:
        raise KafkaRefusal(KafkaCode.INVALID_RECORD, "a transaction without a producer")
    if producer < NO_PRODUCER or (producer != NO_PRODUCER and (epoch < 0 or sequence < 0)):
        raise KafkaRefusal(KafkaCode.INVALID_RECORD, "a producer without an epoch, or without numbers")
    if count > room.records_left:
        text = f"a request has {REQUEST_RECORDS_MAX:,} records at most; send smaller batches"
        raise KafkaRefusal(KafkaCode.MESSAGE_TOO_LARGE, text)
    room.records_left -= count
    left = room.bytes_left
    room.bytes_left = 0  # if this batch is too large, those behind it are not decompressed
    data = decompressor.decompress(
        memoryview(raw)[_HEAD.size :], attributes & _CODEC, min(left, RECORDS_BYTES_MAX)
    )
    room.bytes_left = left - len(data)
    records = _records(raw, data)
    if len(records) != count or list(map(_OFFSET, records)) != list(range(count)):
        raise _corrupt("the records of a batch are not numbered from 0 on")
    block = _block(records, partition)
    has_keys = block.keys is not None and None not in block.keys
    has_times = min(map(_TIME, records)) >= 0
    return RecordBatch(block.encode(), raw, has_keys, has_times, producer, epoch, sequence, is_transactional)


def _records(raw: bytes, data: bytes) -> list[Any]:
    """Return the records, whose offsets count from 0. data: them, decompressed."""
    # Without the offset of the batch, and without the attributes, which say how it was compressed.
    head = b"".join((bytes(8), raw[8:_CHECKED], bytes(2), raw[_CHECKED + 2 : _HEAD.size]))
    try:
        return list(DefaultRecordBatch(head + data))
    except Exception as why:  # whatever its decoder meets
        raise _corrupt(f"a record cannot be decoded: {why!r}") from None


def _block(records: Sequence[Any], partition: int) -> EventBlock:
    values, sent_headers = list(map(_VALUE, records)), list(map(_HEADERS, records))
    headers = None
    if any(sent_headers) or b"" in values:
        headers = list(map(_stored_headers, values, sent_headers))
    payloads = [b"" if each is None else each for each in values] if None in values else values
    if (longest := max(map(len, payloads))) > EVENT_BYTES_MAX:
        text = f"a value of {longest:,} bytes; an event has {EVENT_BYTES_MAX:,} at most"
        raise KafkaRefusal(KafkaCode.MESSAGE_TOO_LARGE, text)
    keys = list(map(_KEY, records))
    texts = where = None
    if keys.count(None) != len(keys):
        texts, where = map(list, zip(*map(_stored_key, keys, repeat(partition)), strict=True))
    times = [None if each == -1 else each for each in map(_TIME, records)]
    return EventBlock(payloads, texts, where, times, headers)


@lru_cache(maxsize=KEYS_KNOWN)
def _stored_key(key: bytes | None, partition: int) -> tuple[str | None, float]:
    """Return the text of a key and its stored point. Raises InvalidArgument for a key that is too long."""
    if key is None:
        return None, NO_POINT
    text = key_text(key)
    return text, stored_point(partition, point(text))


def _stored_headers(value: bytes | None, sent: Sequence[tuple[str, bytes | None]]) -> Headers | None:
    """Return the headers of an event: those that are text, and what else there is of the record in KAFKA_HEADER.

    Of more headers than an event has, only the first ones are shown to other readers.
    """
    shown: dict[str, str] = {}
    is_plain = True
    for name, data in sent:
        try:
            text = None if data is None else data.decode()
        except UnicodeDecodeError:
            text = None
        is_plain = is_plain and text is not None and name not in shown
        if text is not None:
            shown[name] = text
    if len(shown) + (not is_plain or value == b"") > HEADERS_COUNT_MAX:
        is_plain, shown = False, dict(islice(shown.items(), HEADERS_COUNT_MAX - 1))
    shown = check_headers(shown)
    more: dict[str, object] = {} if is_plain else {"headers": [_as_text(*each) for each in sent]}
    if value == b"":
        more["empty"] = True
    if not more:
        return shown or None
    return check_headers(ReservedHeaders(shown, **{KAFKA_HEADER: json.dumps(more)}))


def _as_text(name: str, data: bytes | None) -> tuple[str, str | None]:
    return name, None if data is None else b64encode(data).decode()


def place(raw: bytes, first: int) -> bytes:
    """Return a batch of a producer as consumers get it: only its offset changes, which the checksum does not cover."""
    return b"".join((first.to_bytes(8, "big"), raw[8:12], bytes(4), memoryview(raw)[16:]))


def encode_runs(runs: Sequence[EventRun], ttl_ms: int | None, now_ms: int) -> Iterator[PlacedBatch]:
    """Yield runs, each of which follows the one before, as batches of about BATCH_BYTES with all their offsets.

    Events that have expired, or were removed by a compaction, leave a gap. About 2.4 us per event.
    """
    first, last = runs[0].first_number, runs[-1]
    end_of_runs = last.first_number + len(last)
    records = [each for run in runs for each in _live_records(run, ttl_ms, now_ms)]
    taken = 0
    while first < end_of_runs:
        builder = DefaultRecordBatchBuilder(_FORMAT, 0, 0, -1, -1, -1, BATCH_BYTES)
        begun = taken
        for number, time, key, value, headers in islice(records, begun, None):
            if builder.append(number - first, time, key, value, headers) is None:
                break
            taken += 1
        end = records[taken].number if taken < len(records) else end_of_runs
        data = bytes(builder.build()) if taken > begun else b""
        yield PlacedBatch(first, end, _spanning(data, first, end - first - 1, last.time))
        first = end


class _Record(NamedTuple):
    number: int
    time: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


def _live_records(run: EventRun, ttl_ms: int | None, now_ms: int) -> Iterator[_Record]:
    for low, high in live_ranges(run, ttl_ms, now_ms):
        for index in range(low, high):
            key = None if run.keys is None else run.keys[index]
            time = None if run.event_times is None else run.event_times[index]
            if time is None or time < 0:  # Kafka knows no times before 1970
                time = run.time if run.times is None else run.times[index]
            value, headers = _sent(run.payloads[index], None if run.headers is None else run.headers[index])
            yield _Record(
                run.first_number + index, time, None if key is None else key_bytes(key), value, headers
            )


def _sent(payload: bytes, stored: Headers | None) -> tuple[bytes | None, list[tuple[str, bytes | None]]]:
    """Return the value and the headers of a record: what `_stored_headers` was given."""
    if not stored:
        return payload or None, []
    more = json.loads(stored.get(KAFKA_HEADER, "{}"))
    value = payload if payload or "empty" in more else None
    if "headers" in more:
        return value, [(name, None if text is None else b64decode(text)) for name, text in more["headers"]]
    return value, [(name, text.encode()) for name, text in shown_headers(stored).items()]


def _spanning(data: bytes, first: int, last: int, time: int) -> bytes:
    """Return a batch with its offset, which ends `last` behind it although the last events may be missing.

    data: the batch as it was built; empty: without a record, so that a consumer only moves on.
    """
    if data:
        (_, length, _, _, _, attributes, _, *rest) = _HEAD.unpack_from(data)
    else:
        length, attributes = _HEAD.size - _AFTER_LENGTH, 0
        rest = [time, time, NO_PRODUCER, -1, -1, 0]
    head = _HEAD.pack(first, length, 0, _FORMAT, 0, attributes, last, *rest)
    whole = bytearray(head + data[_HEAD.size :])
    crc = crc32c.crc32c(memoryview(whole)[_CHECKED:])
    whole[_CHECKED - 4 : _CHECKED] = crc.to_bytes(4, "big")
    return bytes(whole)


def _corrupt(text: str) -> KafkaRefusal:
    return KafkaRefusal(KafkaCode.CORRUPT_MESSAGE, text)
