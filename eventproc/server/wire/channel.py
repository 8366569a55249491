"""The frames of Pravega's protocol: the first of a connection is a hello; each has a type."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import anyio
import attrs
from anyio.abc import AnyByteStream

from eventproc.server.frames import FrameChannel, MalformedFrame, MemoryBudget
from eventproc.server.wire.codec import FRAME_HEAD, MESSAGES, PAYLOAD_BYTES_MAX, Message
from eventproc.server.wire.commands import Hello

HELLO_BYTES_MAX: Final = 64
"""Largest first frame: a peer that has not said hello is not trusted with memory."""

HELLO_WAIT_S: Final = 10
"""How long a peer may take to say hello."""


@attrs.frozen
class Frame:
    """A frame that was received: its type and payload."""

    kind: int
    payload: bytes


class Channel(FrameChannel):
    """Reads and sends the frames of one connection."""

    def __init__(self, stream: AnyByteStream, budget: MemoryBudget) -> None:
        super().__init__(stream, budget, PAYLOAD_BYTES_MAX)

    async def greet(self, ours: Hello) -> Hello:
        """Exchange hellos. Raises MalformedFrame, TimeoutError."""
        with anyio.fail_after(HELLO_WAIT_S):
            kind, length = FRAME_HEAD.unpack(await self.receive_head(FRAME_HEAD.size))
            if kind != Hello.type or not 0 <= length <= HELLO_BYTES_MAX:
                raise MalformedFrame(f"the first frame has type {kind} and length {length}")
            theirs = Hello.decode(await self.receive(length))
        await self.send(ours)
        return theirs

    @asynccontextmanager
    async def receiving(self) -> AsyncIterator[Frame]:
        """Yield the next frame, whose memory is held while the block runs.

        Raises EndOfStream, IncompleteRead, MalformedFrame, ConnectionOver; TimeoutError if the peer does not finish a
        frame that it has begun, or sends nothing while the connection holds memory.
        """
        kind, length = FRAME_HEAD.unpack(await self.receive_head(FRAME_HEAD.size))
        async with self.receiving_payload(length, f"a frame of type {kind}") as payload:
            yield Frame(kind, payload)

    async def send(self, reply: Message) -> None:
        """Send a frame after those that are being sent."""
        async with self.sending:
            await self.send_locked(reply)

    async def send_locked(self, reply: Message) -> None:
        """Send a frame; the caller holds `sending`. Raises as `send_frame`."""
        await self.send_frame(reply.encode())


def parse(frame: Frame) -> Message | None:
    """Return the message of a frame, None for a type that this server does not know. Raises MalformedFrame."""
    known = MESSAGES.get(frame.kind)
    return None if known is None else known.decode(frame.payload)
