"""The listener of REST: Hypercorn in the event loop of the rest, for as long as a block."""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import anyio
from h2.events import DataReceived, Event
from hypercorn import protocol as protocol_module
from hypercorn.asyncio import run as run_module, serve
from hypercorn.asyncio.tcp_server import TCPServer
from hypercorn.config import Config, Sockets
from hypercorn.protocol.h2 import H2Protocol

from eventproc.base.durations import measuring
from eventproc.runtime import Eventproc
from eventproc.server.access.authority import Authority
from eventproc.server.rest.application import RestAnswers, rest_application, sending_soon

HTTP_LOG: Final = logging.getLogger("eventproc.server.http")
"""What Hypercorn says; warnings only, because the address is logged with the others."""


IDLE_S: Final = 10
"""How long a connection may have no call, or take to send the head of its next one, in s. Higher: idle connections hold
their places for longer; lower: callers that call seldom must connect again."""

HANDSHAKE_S: Final = 10
"""How long the handshake of TLS may take, in s."""

STREAMS_MAX: Final = 8
"""Calls that a connection of HTTP/2 may have at a time. Higher: a caller that takes nothing of its responses holds more
of them in memory; lower: a caller that asks for many things waits."""

HEAD_BYTES_MAX: Final = 64 << 10
"""Longest head of a call: the address may hold a cut of 1,024 segments, of some 20 bytes each. Higher: more memory."""

END_WAIT_S: Final = 1
"""How long connections may take to end after their calls were answered, in s. Then those are cut off whose callers take
nothing, and calls of HTTP/2 whose callers have left. Hypercorn lets them wait, and fails if it is cancelled then."""


class _CallerConnection(TCPServer):
    """A connection that ends when its caller closes it. Hypercorn's own stays for IDLE_S then, and takes a place."""

    config: _Config

    async def run(self) -> None:
        """Serve it until it ends, or is cut off."""
        self._scope = anyio.CancelScope()
        self.config.connections.add(self)
        try:
            with self._scope:
                await super().run()
        finally:
            self.config.connections.discard(self)

    def cut_off(self) -> None:
        """End it now, without what its caller has not taken yet."""
        self.writer.transport.abort()
        self._scope.cancel()

    async def _read_data(self) -> None:
        await super()._read_data()
        await self.idle_task.stop()


class _CallerStreams(H2Protocol):
    """The calls of a connection of HTTP/2. Hypercorn's own ends them all for a body that goes on after its answer."""

    async def _handle_events(self, events: list[Event]) -> None:
        for each in events:
            if isinstance(each, DataReceived) and each.stream_id not in self.streams:
                self.connection.acknowledge_received_data(each.flow_controlled_length, each.stream_id)
            else:
                await super()._handle_events([each])
        await self._flush()


class _Config(Config):
    """A configuration with a socket that listens already, and with certificates that may change.

    connections: those that are open.
    """

    def __init__(self, listener: socket.socket, tls: ssl.SSLContext | None) -> None:
        super().__init__()
        self._listener = listener
        self._tls = tls
        self.connections: set[_CallerConnection] = set()
        self.keep_alive_timeout = IDLE_S
        self.ssl_handshake_timeout = HANDSHAKE_S
        self.h2_max_concurrent_streams = STREAMS_MAX
        self.h11_max_incomplete_size = self.h2_max_header_list_size = HEAD_BYTES_MAX

    def create_sockets(self) -> Sockets:
        """Return the socket that was given."""
        return Sockets([], [self._listener], []) if self._tls is None else Sockets([self._listener], [], [])

    @property
    def ssl_enabled(self) -> bool:
        """Whether connections are encrypted."""
        return self._tls is not None

    def create_ssl_context(self) -> ssl.SSLContext | None:
        """Return the context that was given."""
        return self._tls


@asynccontextmanager
async def serve_rest(
    ep: Eventproc,
    authority: Authority,
    listener: socket.socket,
    host: str,
    *,
    close_wait_s: float,
    tls: ssl.SSLContext | None = None,
    has_page: bool = False,
    only_metrics: bool = False,
) -> AsyncIterator[None]:
    """Answer calls on a listening socket while the block runs; then close it.

    When the block ends, no call begins, and idle connections are closed.

    Args:
        ep: the open directory.
        authority: who may call.
        listener: the socket.
        host: its host, which callers may name.
        close_wait_s: how long running calls may take when the block ends, in s. Then they are refused with 503; a
            request that one waits for goes on.
        tls: encrypts connections; None: they are plain.
        has_page: whether to serve the page for people, too.
        only_metrics: answer nothing but `/metrics`, and what anyone may ask for.
    """
    HTTP_LOG.setLevel(logging.WARNING)
    run_module.__dict__["TCPServer"] = _CallerConnection  # Hypercorn has no settings for them
    protocol_module.__dict__["H2Protocol"] = _CallerStreams
    config = _Config(listener, tls)
    config.errorlog = HTTP_LOG
    config.include_server_header = False
    config.graceful_timeout = close_wait_s + 3 * END_WAIT_S
    answers = RestAnswers(ep, authority, host)
    application = sending_soon(rest_application(answers, has_page=has_page, only_metrics=only_metrics))
    ending, ended = anyio.Event(), anyio.Event()

    async def run() -> None:
        try:
            await serve(application, config, shutdown_trigger=ending.wait, mode="asgi")  # type: ignore[arg-type]
        finally:
            ended.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        tasks.start_soon(answers.changes.run)
        try:
            with measuring():
                yield
        finally:
            ending.set()
            answers.changes.end()
            with anyio.CancelScope(shield=True):
                with anyio.move_on_after(close_wait_s):
                    await ended.wait()
                answers.refuse_running()
                with anyio.move_on_after(END_WAIT_S):
                    await ended.wait()
                for each in tuple(config.connections):
                    each.cut_off()
                with anyio.move_on_after(END_WAIT_S):
                    await ended.wait()
            tasks.cancel_scope.cancel()
