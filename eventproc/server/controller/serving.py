"""The controller's gRPC server: it bounds requests and idle connections, and its end waits for running calls.

grpclib does neither: its `close` cancels running calls and leaves connections open, a request may have any length, and
a connection stays for as long as its client likes. It also sends a reply in three packets, which are joined here.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final
from weakref import WeakSet

import anyio
from grpclib.config import Configuration
from grpclib.const import Status
from grpclib.exceptions import GRPCError
from grpclib.protocol import AbstractHandler, H2Protocol, Stream as H2Stream
from grpclib.server import Handler, Server

from eventproc.server.controller.service import Controller
from eventproc.server.listening import BoundedListener

REQUEST_BYTES_MAX: Final = 128 * 1024
"""Largest request; two cuts of 1024 segments have 40 kB. Higher: more memory for each of CALLS_MAX calls."""

UNREAD_BYTES_MAX: Final = 2 * REQUEST_BYTES_MAX
"""What a client may send ahead of the calls that read it, on one connection. Higher: more memory for each connection
that sends and does not wait; lower: a client whose request is refused as too large is interrupted while it sends."""

IDLE_S: Final = 300
"""How long a connection may have no call and be silent, in s. Higher: clients that have gone keep their places for
longer; lower: clients that call seldom must connect again."""

HANDSHAKE_S: Final = 10
"""How long the handshake of TLS may take, in s. Higher: strangers keep their places for longer; lower: clients with a
slow network are cut off."""

GOODBYE_S: Final = 1
"""How long a closed connection of TLS waits for its client to close it, too, in s. Meanwhile it keeps its place."""

CLOSE_WAIT_S: Final = 5
"""How long running calls of the controller may take when the server ends."""


class _BoundedCalls(AbstractHandler):
    """Passes calls on, and refuses a request that is too large before it is read."""

    def __init__(self, calls: Handler) -> None:
        self._calls = calls
        self.loop = calls.loop

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
    controller: Controller, listening: BoundedListener, tls: ssl.SSLContext | None = None
) -> AsyncIterator[None]:
    """Answer calls while the block runs. At its end running calls may finish, and all connections are closed.

    tls: encrypts connections; None: they are plain.
    """
    server = _ControllerServer(controller)
    listening.make_room = server.close_idle
    await server.listen(listening, tls)
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
        windows = Configuration(
            http2_connection_window_size=UNREAD_BYTES_MAX, http2_stream_window_size=UNREAD_BYTES_MAX
        )
        super().__init__([controller], config=windows)
        self._connections: WeakSet[_ControllerConnection] = WeakSet()

    async def listen(self, listening: BoundedListener, tls: ssl.SSLContext | None) -> None:
        """Accept connections, as `start` does, which knows no bound for handshakes."""
        self._server = await self._loop.create_server(
            self._protocol_factory,
            sock=listening,
            ssl=tls,
            ssl_handshake_timeout=None if tls is None else HANDSHAKE_S,
            ssl_shutdown_timeout=None if tls is None else GOODBYE_S,
        )
        self._server_closed_fut = self._loop.create_future()

    def stop_listening(self) -> None:
        """Accept no more connections."""
        assert self._server is not None, "the server is not started"
        self._server.close()

    def close_connections(self) -> None:
        """Close every connection that is open."""
        for connection in list(self._connections):
            if connection.is_open:
                connection.processor.close("the server has closed")

    def close_idle(self) -> bool:
        """Close the connection that is idle for the longest time; return whether there is one."""
        idle = [each for each in self._connections if each.is_idle]
        if idle:
            min(idle, key=lambda each: each.used_s).processor.close("the connection is idle")
        return bool(idle)

    def _protocol_factory(self) -> H2Protocol:
        usual = super()._protocol_factory()
        assert isinstance(usual.handler, Handler)
        made = _ControllerConnection(_BoundedCalls(usual.handler), usual.config, usual.h2_config)
        self._connections.add(made)
        return made


class _ControllerConnection(H2Protocol):
    """A connection that is closed when it is idle for IDLE_S. It has 100 calls at a time, as h2 announces.

    used_s: when its client sent something last, in s of the event loop.
    """

    handler: _BoundedCalls
    used_s = 0.0
    _loop: Any = None
    _timer: Any = None

    @property
    def is_open(self) -> bool:
        """Whether it is made and not closing. One whose handshake has failed is never made."""
        return hasattr(self, "connection") and not self.connection.is_closing()

    @property
    def is_idle(self) -> bool:
        """Whether it is open without a call."""
        return self.is_open and not self.processor.streams

    def connection_made(self, transport: Any) -> None:
        """Begin to serve it."""
        self._loop = self.handler.loop
        joined: Any = _JoinedWrites(transport, self._loop.call_soon)
        super().connection_made(joined)
        self.used_s = self._loop.time()
        self._timer = self._loop.call_at(self.used_s + IDLE_S, self._look)

    def data_received(self, data: bytes) -> None:
        """Handle what the client has sent."""
        self.used_s = self._loop.time()
        super().data_received(data)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Forget it."""
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def _look(self) -> None:
        now_s = self._loop.time()
        if self.is_idle and now_s >= self.used_s + IDLE_S:
            self.processor.close("the connection is idle")
        else:
            self._timer = self._loop.call_at(max(self.used_s, now_s - IDLE_S / 2) + IDLE_S, self._look)


class _JoinedWrites:
    """A transport that sends what is written in one turn of the event loop together.

    A reply is its headers, a message and trailers. Each packet costs 40 us of the server, and as much of the client.
    """

    def __init__(self, transport: Any, call_soon: Callable[[Callable[[], None]], object]) -> None:
        self._transport = transport
        self._call_soon = call_soon
        self._parts: list[bytes] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send the data at the end of this turn."""
        if not self._parts:
            self._call_soon(self._send)
        self._parts.append(bytes(data))

    def close(self) -> None:
        """Send what is written, and close the connection."""
        self._send()
        self._transport.close()

    def is_closing(self) -> bool:
        """Whether it is closed, or will be."""
        return bool(self._transport.is_closing())

    def get_extra_info(self, name: str, default: object = None) -> object:
        """Return what the transport knows of the connection."""
        found: object = self._transport.get_extra_info(name, default)
        return found

    def _send(self) -> None:
        parts, self._parts = self._parts, []
        if parts and not self._transport.is_closing():
            self._transport.write(b"".join(parts))
