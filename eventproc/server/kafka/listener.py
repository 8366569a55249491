"""The endpoint for Kafka's clients: the topics of one scope."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from anyio.abc import ByteStream, SocketAttribute

from eventproc.base.tasks import BackgroundTasks
from eventproc.runtime.measures import reporting
from eventproc.server.access.authority import Authority
from eventproc.server.frame_server import FrameServer, listen_for_frames
from eventproc.server.frames import FrameChannel
from eventproc.server.kafka.administration import TopicAdministration
from eventproc.server.kafka.answers import KafkaAnswers
from eventproc.server.kafka.codec import FRAME_BYTES_MAX
from eventproc.server.kafka.connection import KafkaConnection
from eventproc.server.kafka.fetch import PartitionReader
from eventproc.server.kafka.groups import KafkaGroups
from eventproc.server.kafka.produce import BatchAppender
from eventproc.server.kafka.recent_batches import RecentBatches
from eventproc.server.kafka.sasl import SaslSession
from eventproc.server.kafka.served_topics import ServedTopics
from eventproc.server.kafka.transactions import ProducerTransactions
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
        self._topics = ServedTopics(db, scope)
        self._groups = KafkaGroups(db, self._topics)
        self._recent = RecentBatches()
        self._administration = TopicAdministration(db, self._topics)
        self._transactions = ProducerTransactions(db, self._topics, self._groups)
        self._appender = BatchAppender(db, self._topics, self._recent, self._transactions)

    async def begin(self) -> None:
        """Make the server ready, before it serves. Raises InvalidArgument unless the scope exists."""
        await self._topics.verify_scope()
        await self._groups.hear_all()

    async def _speak(self, stream: ByteStream, stranger: Stranger) -> None:
        channel = FrameChannel(stream, self._budget, FRAME_BYTES_MAX)
        with self._db.subscribe() as changes:
            sasl = SaslSession(self._authority, self._db.clock.random_bytes)
            reader = PartitionReader(self._db, self._topics, self._recent, changes, sasl.caller)
            peer = str(stream.extra(SocketAttribute.remote_address, ("unknown",))[0])
            answers = KafkaAnswers(
                self._topics,
                self._administration,
                self._appender,
                reader,
                self._groups,
                self._transactions,
                sasl.caller,
                self._address,
                peer,
            )
            await KafkaConnection(channel, sasl, stranger, self._appender, answers).serve()


@asynccontextmanager
async def serving_kafka(
    db: Database,
    authority: Authority,
    scope: str,
    address: tuple[str, int],
    advertised: str,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[tuple[str, int]]:
    """Serve the topics of a scope at a host and a port; yield the address that clients learn, with its actual port.

    advertised: the host of that address. Raises InvalidArgument if the scope does not exist, and OSError.
    """
    async with await listen_for_frames(*address) as listener, BackgroundTasks() as tasks:
        bound = advertised, int(listener.extra(SocketAttribute.local_port))
        server = KafkaServer(db, scope, bound, authority, tls)
        await server.begin()
        values = {
            "kafka_connections": lambda: server.connections,
            "kafka_connection_bytes": lambda: server.held_bytes,
        }
        with reporting(db, values):
            tasks.start_soon(server.serve, listener)
            yield bound
