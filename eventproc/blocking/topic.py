"""The handle of a topic without `await`."""

from __future__ import annotations

from typing import Any

from eventproc.blocking.stream import BlockingStream
from eventproc.blocking.twins import twin_of
from eventproc.blocking.writer import BlockingWriter
from eventproc.streams import Codec
from eventproc.streams.codec import PayloadCodec, chosen_codec
from eventproc.topics import Partitioner, Topic


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
    ) -> BlockingWriter:
        """Return an open writer, to be closed or used in `with`. See `Topic.producer`.

        A partitioner of its own runs on the loop's thread, and gets the payload encoded and decoded again.
        """
        chosen = chosen_codec(self._twin.codec, payload, codec)
        own = self._twin.partitioner if partitioner is None else partitioner
        decoding = None if own is None else _DecodingPartitioner(own, chosen)
        producer = self._twin.producer(payload=bytes, name=name, partitioner=decoding)
        return BlockingWriter(self._loop, producer, chosen)._opened()


class _DecodingPartitioner:
    """A partitioner of encoded payloads, by one of payloads."""

    def __init__(self, partitioner: Partitioner[Any], codec: PayloadCodec[Any]) -> None:
        self._partitioner = partitioner
        self._decode = codec.decode

    def partition(self, key: str | None, payload: bytes, partitions: int) -> int:
        return self._partitioner.partition(key, self._decode(payload), partitions)
