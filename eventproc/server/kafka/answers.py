"""The answers to the calls of a client that is known, all but those that append."""

from __future__ import annotations

from eventproc.server.access.authority import Caller
from eventproc.server.kafka import calls as c
from eventproc.server.kafka.codec.message import KafkaRequest, encode_answer
from eventproc.server.kafka.codec.topics import fetch_answer, metadata_answer, offsets_answer
from eventproc.server.kafka.fetch import PartitionReader
from eventproc.server.kafka.group_answers import group_answer
from eventproc.server.kafka.groups import KafkaGroups
from eventproc.server.kafka.kafka_errors import KafkaRefusal
from eventproc.server.kafka.produce import BatchAppender
from eventproc.server.kafka.served_topics import ServedTopics


class KafkaAnswers:
    """Answers one connection. address: host and port of this server, which the client learns. peer: its own host."""

    def __init__(
        self,
        topics: ServedTopics,
        appender: BatchAppender,
        reader: PartitionReader,
        groups: KafkaGroups,
        *,
        address: tuple[str, int],
        peer: str,
    ) -> None:
        self._topics = topics
        self._appender = appender
        self._reader = reader
        self._groups = groups
        self._address = address
        self._peer = peer

    async def answer(self, request: KafkaRequest, caller: Caller) -> bytes:
        """Carry a request out, and return its answer. A call that is refused changes nothing."""
        match request.call:
            case c.Fetch() as call:
                return fetch_answer(request, await self._reader.fetch(call, caller))
            case c.ListOffsets() as call:
                return offsets_answer(request, await self._reader.list_offsets(call, caller))
            case c.Metadata(topics):
                return metadata_answer(request, self._address, await self._topics.describe(caller, topics))
            case c.InitProducerId() as call:
                return self._give_identity(request, call)
            case c.ApiVersions() | c.SaslHandshake() | c.SaslAuthenticate() | c.Produce():
                raise AssertionError(f"{request.call} is answered by the connection")
            case call:
                return await group_answer(
                    self._groups, request, call, caller, address=self._address, peer=self._peer
                )

    def _give_identity(self, request: KafkaRequest, call: c.InitProducerId) -> bytes:
        try:
            producer_id, epoch = self._appender.new_identity(call)
        except KafkaRefusal as why:
            return encode_answer(request, error_code=int(why.code), producer_id=-1, producer_epoch=-1)
        return encode_answer(request, error_code=0, producer_id=producer_id, producer_epoch=epoch)
