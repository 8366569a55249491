"""A connection's frames: read with bounds, and sent one at a time to a peer that may be slow."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import anyio
from anyio.abc import ByteStream
from anyio.streams.buffered import BufferedByteReceiveStream

from eventproc.server.wire.codec import FRAME_HEAD, MESSAGES, PAYLOAD_BYTES_MAX, MalformedFrame, Message
from eventproc.server.wire.commands import Hello

HELLO_BYTES_MAX: Final = 64
"""Largest first frame: a peer that has not said hello is not trusted with memory."""

HELLO_WAIT_S: Final = 10
"""How long a peer may take to say hello."""

FREE_FRAME_BYTES: Final = 64 * 1024
"""Frames up to this size need no share of the memory of all connections."""

SEND_PIECE_BYTES: Final = 256 * 1024
"""Bytes that a peer must take within STALLED_S. Higher: a slow peer is cut off; lower: more calls for a large reply."""

STALLED_S: Final = 30
"""How long a peer may take no byte before its connection is closed."""


class MemoryBudget:
    """The bytes that large frames of all connections may take simultaneously."""

    def __init__(self, bytes_max: int) -> None:
        self._free = bytes_max
        self._freed = anyio.Condition()

    @asynccontextmanager
    async def taking(self, size_bytes: int) -> AsyncIterator[None]:
        """Wait until so many bytes are free, and take them while the block runs."""
        if size_bytes <= FREE_FRAME_BYTES:
            yield
            return
        async with self._freed:
            while self._free < size_bytes:
                await self._freed.wait()
            self._free -= size_bytes
        try:
            yield
        finally:
            self._free += size_bytes
            with anyio.CancelScope(shield=True):
                async with self._freed:
                    self._freed.notify_all()


class Channel:
    """Reads and sends the frames of one connection."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._received = BufferedByteReceiveStream(stream)
        self.sending = anyio.Lock()
        """Held while a reply is made and sent, so that a connection holds one large reply at most."""

    async def greet(self, ours: Hello) -> Hello:
        """Exchange hellos. Raises MalformedFrame, TimeoutError."""
        with anyio.fail_after(HELLO_WAIT_S):
            kind, length = await self.read_head()
            if kind != Hello.type or length > HELLO_BYTES_MAX:
                raise MalformedFrame(f"the first frame has type {kind} and length {length}")
            theirs = Hello.decode(await self.read_payload(length))
        await self.send(ours)
        return theirs

    async def read_head(self) -> tuple[int, int]:
        """Return type and length of the next frame. Raises EndOfStream, IncompleteRead, MalformedFrame."""
        kind, length = FRAME_HEAD.unpack(await self._received.receive_exactly(FRAME_HEAD.size))
        if not 0 <= length <= PAYLOAD_BYTES_MAX:
            raise MalformedFrame(f"a frame of type {kind} has length {length}")
        return kind, length

    async def read_payload(self, length: int) -> bytes:
        """Return the payload of the frame whose head was read."""
        return await self._received.receive_exactly(length) if length else b""

    async def send(self, reply: Message) -> None:
        """Send a frame after those that are being sent."""
        async with self.sending:
            await self.send_locked(reply)

    async def send_locked(self, reply: Message) -> None:
        """Send a frame; the caller holds `sending`. Raises TimeoutError if the peer takes nothing."""
        frame = reply.encode()
        for at in range(0, len(frame), SEND_PIECE_BYTES):
            with anyio.fail_after(STALLED_S):
                await self._stream.send(frame[at : at + SEND_PIECE_BYTES])


def parse(kind: int, payload: bytes) -> Message | None:
    """Return the message of a frame, None for a type that this server does not know. Raises MalformedFrame."""
    known = MESSAGES.get(kind)
    return None if known is None else known.decode(payload)
