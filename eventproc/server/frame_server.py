"""Serves a protocol of frames on listeners: accepts connections up to a number, and serves each until it ends."""

from __future__ import annotations

import logging
import ssl
from abc import ABC, abstractmethod
from typing import Final

import anyio
from anyio.abc import ByteStream, Listener, SocketAttribute, SocketStream
from anyio.streams.stapled import MultiListener
from anyio.streams.tls import TLSStream

from eventproc.base.tasks import first_leaf
from eventproc.server.access.authority import Authority
from eventproc.server.frames import ConnectionOver, MalformedFrame, MemoryBudget
from eventproc.server.listening import naming_address, notice_dead_peers
from eventproc.server.strangers import Stranger, Strangers
from eventproc.store.model.errors import EventprocError, Fenced, Retryable

LOG = logging.getLogger("eventproc.server")

HANDSHAKE_S: Final = 10
"""How long a peer may take for the handshake of TLS."""

CONNECTIONS_MAX: Final = 2_000
"""Connections that are served simultaneously. Each reader of Pravega's Rust client needs one per segment, and a few
more. Higher: more memory when all are busy; lower: fewer readers."""

FRAMES_BYTES_MAX: Final = 256 * 2**20
"""Bytes of large frames that all connections hold together, with what they keep of them. A connection whose frame does
not fit waits. Higher: more memory; lower: fewer large events simultaneously."""


class FrameServer(ABC):
    """Serves the connections of one protocol. authority: who may call. tls: encrypts them."""

    def __init__(self, authority: Authority, tls: ssl.SSLContext | None = None) -> None:
        self._authority = authority
        self._tls = tls
        self._budget = MemoryBudget(FRAMES_BYTES_MAX)
        self._strangers = Strangers()
        self._connections = 0

    @property
    def strangers(self) -> int:
        """Number of connections that need credentials and have shown no valid ones."""
        return self._strangers.count

    @property
    def connections(self) -> int:
        """Number of connections that are being served."""
        return self._connections

    @property
    def held_bytes(self) -> int:
        """Bytes of large frames that connections hold, of FRAMES_BYTES_MAX."""
        return self._budget.held_bytes

    async def serve(self, listener: Listener[SocketStream]) -> None:
        """Serve until cancelled."""
        async with listener:
            await listener.serve(self._serve_connection)

    @abstractmethod
    async def _speak(self, stream: ByteStream, stranger: Stranger) -> None:
        """Serve a connection until it ends. Tell the stranger when it has shown who it is."""

    async def _serve_connection(self, stream: SocketStream) -> None:
        async with stream:
            if self._connections >= CONNECTIONS_MAX:
                LOG.warning("refusing a connection: %d are open", self._connections)
                return
            self._connections += 1
            try:
                with self._strangers.bounding(needs_token=self._authority.is_required) as stranger:
                    await self._speak(await self._encrypted(stream), stranger)
            except Exception as why:
                _report(stream, first_leaf(why))
            finally:
                self._connections -= 1

    async def _encrypted(self, stream: SocketStream) -> ByteStream:
        """Return the stream after its handshake, if there are certificates."""
        if self._tls is None:
            return stream
        with anyio.fail_after(HANDSHAKE_S):
            # Frames have lengths, so that a connection may end without a farewell of TLS.
            return await TLSStream.wrap(
                stream, server_side=True, ssl_context=self._tls, standard_compatible=False
            )


async def listen_for_frames(host: str, port: int) -> MultiListener[SocketStream]:
    """Return what listens there, for a `FrameServer`. Raises OSError, which names the address."""
    with naming_address(host, port):
        listener = await anyio.create_tcp_listener(local_host=host, local_port=port)
    assert isinstance(listener, MultiListener)
    for each in listener.listeners:
        notice_dead_peers(each.extra(SocketAttribute.raw_socket))
    return listener


def _report(stream: SocketStream, why: BaseException) -> None:
    """Log why a connection ended; an error of one connection never ends the others."""
    peer = stream.extra(SocketAttribute.remote_address, "unknown")
    gone = (anyio.EndOfStream, anyio.IncompleteRead, anyio.BrokenResourceError, anyio.ClosedResourceError)
    if isinstance(why, gone):
        LOG.debug("%s: the connection broke", peer)
    elif isinstance(why, (ConnectionOver, Retryable, Fenced)):
        LOG.info("%s: closing the connection, so that the client asks again: %s", peer, why)
    elif isinstance(why, TimeoutError):
        LOG.warning("%s: closing the connection: the peer is too slow", peer)
    elif isinstance(why, (MalformedFrame, EventprocError, ssl.SSLError)):
        LOG.warning("%s: closing the connection: %s", peer, why)
    else:
        LOG.error("%s: closing the connection after an error", peer, exc_info=why)
