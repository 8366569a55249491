"""What handlers emit: events for any streams, appended by the transaction that moves the processor's progress.

Those with a delay are stored by it, and appended when they are due.

An emission is checked in the handler, where the mistake is; the transaction only routes it, to the segments that are
active in that transaction. So no scale can come between, and nothing has to be retried.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, NamedTuple, Protocol

from eventproc.base.clock import new_id
from eventproc.store.catalog import KeyRoutes, StreamRecord, current_router, get_writable_stream
from eventproc.store.database import Tx
from eventproc.store.delayed_events import NewDelayedEvent, store_delayed
from eventproc.store.model.argument_checks import check_instance
from eventproc.store.model.delays import Delay
from eventproc.store.model.limits import EVENT_BYTES_MAX, FRAME_BYTES
from eventproc.store.model.names import StreamName
from eventproc.store.model.routing import check_key
from eventproc.store.segments import ID_HEADER, append
from eventproc.streams.codec import Codec, PayloadCodec, codec_for, codec_of
from eventproc.streams.new_events import (
    check_event_time,
    check_headers,
    check_size,
    headers_by_codec,
    reserving,
)
from eventproc.streams.segment_buffers import SegmentBuffers

NAMES_KNOWN_MAX: Final = 1024
"""Stream names that were checked and are not checked again; a processor emits to few streams."""


_TARGET: Final = "it must be a stream's handle, or its name as str, such as scope/stream"


class EmitTarget(Protocol):
    """A stream's handle, of either twin: events for it are encoded by its codec."""

    @property
    def name(self) -> str:
        """The stream's full name."""
        ...

    @property
    def codec(self) -> Codec[Any]:
        """Encodes the payloads."""
        ...


class Emission(NamedTuple):
    """An event to be appended to a stream. A named tuple, because handlers make a hundred thousand a second.

    The constructor trusts its caller; what a handler gives goes through `make`. stream: "scope/stream". key:
    routing key, None for any segment. event_time: the user's, ms. headers: None for none. delay: when it is appended;
    None: in the transaction.
    """

    stream: str
    payload: bytes
    key: str | None = None
    event_time: int | None = None
    headers: Mapping[str, str] | None = None
    delay: Delay | None = None

    @classmethod
    def make(
        cls,
        target: str | EmitTarget,
        payload: Any,
        *,
        codec: Codec[Any] | None = None,
        key: str | bytes | None = None,
        event_time: int | None = None,
        headers: Mapping[str, str] | None = None,
        id: str | None = None,
        priority: int = 0,
        delay_ms: int | None = None,
        at: datetime | int | None = None,
    ) -> Emission:
        """Return the emission, with copies of what its caller could change. About 1 us, and the codec's time.

        Raises InvalidArgument for what a writer refuses too, and for the system's own streams. Only the transaction
        finds out whether the stream exists and accepts events.
        """
        if type(target) is str:
            stream = target
        elif (
            not isinstance(target, str)
            and type(getattr(target, "name", None)) is str
            and hasattr(target, "codec")
        ):
            stream, codec = target.name, target.codec if codec is None else codec
        else:
            stream = check_instance(str, "stream", target, _TARGET)
        _check_name(stream)
        if codec is not None:
            checked = codec if type(codec) is PayloadCodec else codec_for(codec=codec)
            payload, headers = checked.encode(payload), headers_by_codec(headers, checked.ttl_ms)
        elif type(payload) is not bytes:
            payload, headers = _encoded(payload, headers)
        if len(payload) > EVENT_BYTES_MAX:
            check_size(payload)
        text = None if key is None else check_key(key)
        if event_time is not None:
            check_event_time(event_time)
        if id is not None or priority:
            headers = reserving(headers, id=id, priority=priority)
        copied = None if headers is None else check_headers(headers) or None
        return cls(stream, payload, text, event_time, copied, Delay.make(delay_ms, at))

    @property
    def size_bytes(self) -> int:
        """Bytes that it takes in its segment, without key and headers."""
        return len(self.payload) + FRAME_BYTES


def append_emissions(tx: Tx, emissions: Sequence[Emission]) -> None:
    """Append the events, those of a stream and key in their order, all or none; but those whose ids are known.

    Keys are routed by the segments active in this transaction. Events without a key go to one segment of their
    stream, another one each transaction: spread within it they would make each append smaller, for nothing.
    Raises NotFound (naming the stream or its scope) and StreamSealed; then nothing was appended. Cost: one
    append a segment, however many events; about 2 us each.
    """
    by_stream: dict[str, SegmentBuffers] = {}
    streams: dict[str, StreamRecord] = {}
    for name in dict.fromkeys(each.stream for each in emissions):
        streams[name] = stream = get_writable_stream(tx, name).value
        spread = int.from_bytes(tx.clock.random_bytes(4), "big")
        by_stream[name] = SegmentBuffers(KeyRoutes(current_router(tx, stream)), spread)
    delayed: dict[str, list[NewDelayedEvent]] = {}
    ids: dict[str, set[str]] = {}
    for name, payload, key, event_time, headers, delay in emissions:
        if headers is not None and (id := headers.get(ID_HEADER)) is not None:
            if id in ids.setdefault(name, set()):
                continue
            ids[name].add(id)
        if delay is not None:
            new = NewDelayedEvent(new_id(tx.clock), delay, payload, key, event_time, headers)
            delayed.setdefault(name, []).append(new)
            continue
        buffers = by_stream[name]
        buffer = buffers.find(key) or buffers.open(key)
        buffer.payloads.append(payload)
        buffer.keys.append(key)
        if event_time is not None or headers is not None or buffer.has_extra:
            buffer.add_extra(event_time, headers)
    for name, buffers in by_stream.items():
        stream_id, parts = streams[name].stream_id, buffers.parts(buffers.take())
        if name in ids:
            from eventproc.store.event_ids import append_once  # few programs need it

            append_once(tx, name, stream_id, parts, delayed.get(name, ()))
            continue
        if parts:
            append(tx, name, stream_id, parts)
        if name in delayed:
            store_delayed(tx, name, stream_id, delayed[name])


@lru_cache(maxsize=NAMES_KNOWN_MAX)
def _check_name(stream: str) -> None:
    StreamName.parse(stream)


def _encoded(payload: object, headers: Mapping[str, str] | None) -> tuple[bytes, Mapping[str, str] | None]:
    """Return the bytes of a payload and its headers, by the codec of its class."""
    if isinstance(payload, (bytes, bytearray, memoryview)):
        return bytes(payload), headers
    kind: Any = type(payload)
    codec = codec_of(kind)
    return codec.encode(payload), headers_by_codec(headers, codec.ttl_ms)
