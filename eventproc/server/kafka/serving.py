"""Serves Kafka's clients while a block runs."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from anyio.abc import SocketAttribute

from eventproc.base.tasks import BackgroundTasks
from eventproc.runtime.measures import reporting
from eventproc.server.access.authority import Authority
from eventproc.server.frame_server import listen_for_frames
from eventproc.server.kafka.listener import KafkaServer
from eventproc.store.database import Database


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
