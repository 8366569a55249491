"""The handle of a topic, and its producer, without `await`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from eventproc.blocking.loop import Loop, Opened
from eventproc.blocking.stream import BlockingStream
from eventproc.blocking.twins import BlockingTwin, twin_of
from eventproc.blocking.writer import BlockingWriter
from eventproc.streams import Codec, NewEvent
from eventproc.streams.codec import PayloadCodec
from eventproc.streams.new_events import headers_with_ttl
from eventproc.topics import Partitioner, Producer, Topic


@twin_of(Producer)
class BlockingProducer(BlockingTwin, Opened):
    """Writes events to the partitions of a topic, by one thread at a time; made open by `BlockingTopic.producer`.

    `close`, or leaving its `with`, waits until everything posted is durable and raises the first failure.
    """

    def __init__(self, loop: Loop, producer: Producer[bytes], codec: PayloadCodec[Any]) -> None:
        """producer: takes bytes; `codec` encodes on the caller's side, so a wrong payload is refused immediately."""
        super().__init__(loop, producer)
        self._writer = BlockingWriter(loop, producer.writer, codec)

    def write(
        self,
        payload: Any,
        *,
        key: str | None = None,
        partition: int | None = None,
        headers: Mapping[str, str] | None = None,
        timestamp_ms: int | None = None,
        ttl_ms: int | None = None,
    ) -> None:
        """Append one event and return when it is durable. Raises as `Producer.write`."""
        headers = headers_with_ttl(headers, ttl_ms)
        self._writer.write(payload, key=key, event_time=timestamp_ms, headers=headers, partition=partition)

    def post(
        self,
        payload: Any,
        *,
        key: str | None = None,
        partition: int | None = None,
        headers: Mapping[str, str] | None = None,
        timestamp_ms: int | None = None,
        ttl_ms: int | None = None,
    ) -> None:
        """Append one event without waiting for it; `flush`, or the end of the block, raises if it failed."""
        headers = headers_with_ttl(headers, ttl_ms)
        self._writer.post(payload, key=key, event_time=timestamp_ms, headers=headers, partition=partition)

    def write_many(
        self, events: Iterable[NewEvent[Any] | tuple[Any, str | None]], *, sequence: int | None = None
    ) -> int:
        """Append events, in order, in few transactions; return their number. See `Producer.write_many`."""
        return self._writer.write_many(events, sequence=sequence)

    def flush(self) -> None:
        """Return when everything posted so far is durable. Raises the first failure, and only once."""
        self._writer.flush()

    def _leave(self, why: BaseException | None) -> None:
        try:
            self._writer._leave(why)
        finally:
            super()._leave(why)


@twin_of(Topic)
class BlockingTopic(BlockingStream):
    """A topic: produce to its partitions, add more. Made by `ep.create_topic` and `ep.topic`. See `Topic`."""

    def producer(
        self,
        *,
        payload: type[Any] | None = None,
        codec: Codec[Any] | None = None,
        name: str | None = None,
        partitioner: Partitioner[Any] | None = None,
    ) -> BlockingProducer:
        """Return an open producer, to be closed or used in `with`. See `Topic.producer`.

        A partitioner of its own runs on the loop's thread, and gets the payload encoded and decoded again.
        """
        chosen = self._twin._codec_for(payload, codec)
        own = self._twin.partitioner if partitioner is None else partitioner
        decoding = None if own is None else _DecodingPartitioner(own, chosen)
        producer = self._twin.producer(payload=bytes, name=name, partitioner=decoding)
        return BlockingProducer(self._loop, producer, chosen)._opened()


class _DecodingPartitioner:
    """A partitioner of encoded payloads, by one of payloads."""

    def __init__(self, partitioner: Partitioner[Any], codec: PayloadCodec[Any]) -> None:
        self._partitioner = partitioner
        self._decode = codec.decode

    def partition(self, key: str | None, payload: bytes, partitions: int) -> int:
        return self._partitioner.partition(key, self._decode(payload), partitions)
