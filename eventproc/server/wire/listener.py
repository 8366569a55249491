"""The segment store: serves each connection of Pravega's clients."""

from __future__ import annotations

import ssl

from anyio.abc import ByteStream

from eventproc.cluster.segment_containers import SegmentContainers
from eventproc.server.access.authority import Authority
from eventproc.server.frame_server import FrameServer
from eventproc.server.strangers import Stranger
from eventproc.server.wire.channel import Channel
from eventproc.server.wire.connection import WireConnection
from eventproc.store.database import Database


class SegmentStore(FrameServer):
    """Serves the segments of one database: those whose containers this process owns."""

    def __init__(
        self,
        db: Database,
        containers: SegmentContainers,
        authority: Authority,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(authority, tls)
        self._db = db
        self.containers = containers

    async def _speak(self, stream: ByteStream, stranger: Stranger) -> None:
        channel = Channel(stream, self._budget)
        connection = WireConnection(self._db, channel, self.containers, self._authority)
        connection.on_token = stranger.accept
        await connection.serve()
