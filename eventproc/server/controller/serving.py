"""The controller's gRPC server: it bounds requests, and its end waits for running calls and closes connections.

grpclib does neither: its `close` cancels running calls and leaves connections open, and a request may have any length.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final
from weakref import WeakSet

import anyio
from grpclib.const import Status
from grpclib.exceptions import GRPCError
from grpclib.protocol import AbstractHandler, H2Protocol
from grpclib.protocol import Stream as H2Stream
from grpclib.server import Server

from eventproc.server.controller.service import Controller

REQUEST_BYTES_MAX: Final = 2**20
"""Largest request; a cut of 1024 segments has 20 kB. Higher: more memory per call."""

CLOSE_WAIT_S: Final = 5
"""How long running calls of the controller may take when the server ends."""


class _BoundedCalls(AbstractHandler):
    """Passes calls on, and refuses a request that is too large before it is read."""

    def __init__(self, calls: AbstractHandler) -> None:
        self._calls = calls

    def accept(
        self, stream: H2Stream, headers: list[tuple[str, str]], release_stream: Callable[[], None]
    ) -> None:
        """Begin a call."""
        read = stream.recv_data

        async def read_bounded(size: int) -> bytes:
            if size > REQUEST_BYTES_MAX:
                reason = f"the request has {size:,} bytes, at most {REQUEST_BYTES_MAX:,} are possible"
                raise GRPCError(Status.INVALID_ARGUMENT, reason)
            return await read(size)

        stream.recv_data = read_bounded  # type: ignore[method-assign]  # grpclib has no setting for it
        self._calls.accept(stream, headers, release_stream)

    def cancel(self, stream: H2Stream) -> None:
        """Cancel a call that its client has given up."""
        self._calls.cancel(stream)

    def close(self) -> None:
        """Cancel all calls."""
        self._calls.close()


@asynccontextmanager
async def serving_controller(
    controller: Controller, listening: socket.socket, tls: ssl.SSLContext | None = None
) -> AsyncIterator[None]:
    """Answer calls while the block runs. At its end running calls may finish, and all connections are closed.

    tls: encrypts connections; None: they are plain.
    """
    server = _ControllerServer(controller)
    await server.start(sock=listening, ssl=tls)
    try:
        yield
    finally:
        with anyio.CancelScope(shield=True):
            server.stop_listening()
            await controller.finish_calls(CLOSE_WAIT_S)
            server.close()
            server.close_connections()
            await server.wait_closed()


class _ControllerServer(Server):
    """A server that knows its connections."""

    def __init__(self, controller: Controller) -> None:
        super().__init__([controller])
        self._connections: WeakSet[H2Protocol] = WeakSet()

    def stop_listening(self) -> None:
        """Accept no more connections."""
        assert self._server is not None, "the server is not started"
        self._server.close()

    def close_connections(self) -> None:
        """Close every connection that is open."""
        for connection in list(self._connections):
            # One whose handshake has failed was never made, and has no such attribute.
            if hasattr(connection, "connection") and not connection.connection.is_closing():
                connection.processor.close("the server has closed")

    def _protocol_factory(self) -> H2Protocol:
        made = super()._protocol_factory()
        made.handler = _BoundedCalls(made.handler)
        self._connections.add(made)
        return made
