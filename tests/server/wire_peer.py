"""A peer of one connection of the segment store, in memory: it speaks in messages, and may be slow or wrong."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TypeVar

import anyio
from anyio.abc import AnyByteStream
from anyio.streams.buffered import BufferedByteReceiveStream
from anyio.streams.stapled import StapledObjectStream

from eventproc.base.tasks import first_leaf
from eventproc.cluster.segment_containers import SegmentContainers, serving_containers
from eventproc.runtime import Eventproc
from eventproc.server.access.authority import Authority
from eventproc.server.frame_server import FRAMES_BYTES_MAX
from eventproc.server.frames import MemoryBudget
from eventproc.server.wire import commands as c
from eventproc.server.wire.channel import Channel
from eventproc.server.wire.codec import FRAME_HEAD, MESSAGES, Message
from eventproc.server.wire.connection import WireConnection
from eventproc.store.database import Database

M = TypeVar("M", bound=Message)

WRITER = bytes(range(16))
PATIENCE_S = 1_000
"""Virtual seconds: a test whose message never comes fails instead of waiting without end."""

_OWNED: dict[Database, SegmentContainers] = {}
"""What the server of an open database owns, while a peer is connected that did not bring its own."""


def framed(*payloads: bytes) -> bytes:
    """Return events with their heads."""
    return b"".join(FRAME_HEAD.pack(0, len(each)) + each for each in payloads)


def block(*payloads: bytes, last: int, writer: bytes = WRITER, request_id: int = 1) -> c.AppendBlockEnd:
    """Return the command that appends events, the last of which has the number `last`."""
    data = framed(*payloads)
    return c.AppendBlockEnd(writer, len(data), data, len(payloads), last, request_id)


class WirePeer:
    """Sends and takes the frames of one connection. ended: why its server's side ended, None while it serves."""

    def __init__(self, stream: AnyByteStream) -> None:
        self.stream = stream
        self.received = BufferedByteReceiveStream(stream)
        self.ended: BaseException | None = None
        self.has_ended = anyio.Event()

    async def send(self, *messages: Message) -> None:
        for each in messages:
            await self.stream.send(each.encode())

    async def take(self) -> Message:
        """Return the next reply."""
        kind, length = FRAME_HEAD.unpack(await self.received.receive_exactly(FRAME_HEAD.size))
        return MESSAGES[kind].decode(await self.received.receive_exactly(length) if length else b"")

    async def ask(self, command: Message, kind: type[M]) -> M:
        """Send a command, and return its reply, which must be of this kind."""
        await self.send(command)
        return await self.take_as(kind)

    async def take_as(self, kind: type[M]) -> M:
        """Return the next reply, which must be of this kind."""
        reply = await self.take()
        assert isinstance(reply, kind), reply
        return reply

    async def set_up(self, segment: str, writer: bytes = WRITER) -> int:
        """Set up a writer, and return its last event number."""
        return (await self.ask(c.SetupAppend(1, writer, segment), c.AppendSetup)).last_event_number

    async def wait_ended(self) -> BaseException | None:
        """Wait until the server has ended the connection, and return why."""
        await self.has_ended.wait()
        return self.ended


@asynccontextmanager
async def connected(
    ep: Eventproc,
    budget: MemoryBudget | None = None,
    *,
    containers: SegmentContainers | None = None,
    authority: Authority | None = None,
) -> AsyncIterator[WirePeer]:
    """Yield a peer that has said hello to a connection of its own.

    containers: what the server knows of them; None: it owns all, or knows those of a peer around this one. authority:
    None: it asks for no tokens.
    """
    to_server, from_peer = anyio.create_memory_object_stream[bytes](100)
    to_peer, from_server = anyio.create_memory_object_stream[bytes](0)
    theirs = StapledObjectStream(to_peer, from_peer)
    peer = WirePeer(StapledObjectStream(to_server, from_server))
    channel = Channel(theirs, budget or MemoryBudget(FRAMES_BYTES_MAX))

    async def serve(known: SegmentContainers) -> None:
        async with theirs:
            try:
                await WireConnection(ep.db, channel, known, authority or Authority(ep.db)).serve()
            except Exception as why:
                peer.ended = first_leaf(why)
            finally:
                peer.has_ended.set()

    async with AsyncExitStack() as stack:
        if containers is None and (containers := _OWNED.get(ep.db)) is None:
            owning = serving_containers(ep.db, ("127.0.0.1", 1), ("127.0.0.1", 2))
            containers = _OWNED[ep.db] = await stack.enter_async_context(owning)
            stack.callback(_OWNED.pop, ep.db)
        with anyio.fail_after(PATIENCE_S):
            async with anyio.create_task_group() as tasks, peer.stream:
                tasks.start_soon(serve, containers)
                await peer.ask(c.Hello(15, 5), c.Hello)
                yield peer
                tasks.cancel_scope.cancel()
