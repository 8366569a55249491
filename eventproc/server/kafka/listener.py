"""The endpoint for Kafka's clients: the topics of one scope."""

from __future__ import annotations

import ssl

from anyio.abc import ByteStream

from eventproc.server.access.authority import Authority
from eventproc.server.frame_server import FrameServer
from eventproc.server.frames import FrameChannel
from eventproc.server.kafka.administration import TopicAdministration
from eventproc.server.kafka.answers import KafkaAnswers
from eventproc.server.kafka.codec import FRAME_BYTES_MAX
from eventproc.server.kafka.connection import KafkaConnection
from eventproc.server.kafka.fetch import PartitionReader
from eventproc.server.kafka.produce import BatchAppender
from eventproc.server.kafka.recent_batches import RecentBatches
from eventproc.server.kafka.served_topics import ServedTopics
from eventproc.server.strangers import Stranger
from eventproc.store.database import Database


class KafkaServer(FrameServer):
    """Serves a scope of one database. address: host and port of this server, which clients learn."""

    def __init__(
        self,
        db: Database,
        scope: str,
        address: tuple[str, int],
        authority: Authority,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(authority, tls)
        self._db = db
        self._address = address
        self.topics = ServedTopics(db, scope)
        self._recent = RecentBatches()
        self._administration = TopicAdministration(db, self.topics)
        self._appender = BatchAppender(db, self.topics, self._recent)

    async def _speak(self, stream: ByteStream, stranger: Stranger) -> None:
        channel = FrameChannel(stream, self._budget, FRAME_BYTES_MAX)
        with self._db.subscribe() as changes:
            reader = PartitionReader(self._db, self.topics, self._recent, changes)
            answers = KafkaAnswers(
                *(self.topics, self._administration, self._appender, reader, self._address)
            )
            await KafkaConnection(channel, self._authority, stranger, self._appender, answers).serve()
