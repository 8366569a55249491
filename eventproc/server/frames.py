"""Frames of a connection's bytes: read with bounds, and sent one at a time to a peer that may be slow."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

import anyio
from anyio.abc import AnyByteStream, ByteReceiveStream

CHUNK_BYTES: Final = 64 * 1024
"""Bytes that are taken from the socket in a turn: a block of the Rust client of 500 small events. Higher: more memory
for each connection; lower: more turns of the event loop for a block."""

FREE_FRAME_BYTES: Final = 64 * 1024
"""Bytes of each frame that need no share of the memory of all connections. The rest of a frame takes its share when
these have arrived, so that a peer that only announces a frame holds none."""

PIECE_BYTES: Final = 256 * 1024
"""Bytes that a peer must take, or send of a frame that it has begun, within STALLED_S. Higher: a slow peer is cut off;
lower: more calls for a large frame."""

STALLED_S: Final = 30
"""How long a peer may take for PIECE_BYTES before its connection is closed."""


class MalformedFrame(ValueError):
    """The bytes of a peer are not a frame of the protocol. The connection ends."""


class ConnectionOver(Exception):
    """The connection must end, so that the client asks for the state again."""


class MemoryBudget:
    """The bytes that all connections may hold simultaneously. Each takes them through its `MemoryShare`."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self._free = bytes_max
        self._freed = anyio.Condition()

    @property
    def held_bytes(self) -> int:
        """Bytes that connections hold now."""
        return self.bytes_max - self._free

    async def take(self, size_bytes: int, *, waits: bool) -> bool:
        """Take so many bytes; return False if they are not free and `waits` is not set."""
        async with self._freed:
            while self._free < size_bytes:
                if not waits:
                    return False
                await self._freed.wait()
            self._free -= size_bytes
        return True

    async def give_back(self, size_bytes: int) -> None:
        """Free bytes, and wake the connections that wait for some. Not interrupted by a cancellation."""
        with anyio.CancelScope(shield=True):
            async with self._freed:
                self._free += size_bytes
                self._freed.notify_all()


class MemoryShare:
    """What one connection holds of the budget: its frames, and what it keeps of them.

    A connection waits for memory only while it holds none. One that holds some and finds no more is closed, because
    two connections that wait for each other would wait without end.
    """

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self._held = 0

    @property
    def is_held(self) -> bool:
        """Whether the connection holds memory; then it is closed if its peer sends nothing for STALLED_S."""
        return self._held > 0

    def has_room(self, size_bytes: int) -> bool:
        """Return whether `take` would neither wait nor fail."""
        return self._budget.held_bytes + size_bytes <= self._budget.bytes_max

    async def take(self, size_bytes: int) -> None:
        """Take bytes until `give_back`. Raises ConnectionOver."""
        if not size_bytes:
            return
        if not await self._budget.take(size_bytes, waits=not self._held):
            raise ConnectionOver(f"it needs {size_bytes:,} more bytes, and other connections hold all memory")
        self._held += size_bytes

    async def give_back(self, size_bytes: int) -> None:
        """Free bytes."""
        if size_bytes:
            self._held -= size_bytes
            await self._budget.give_back(size_bytes)

    async def give_back_all(self) -> None:
        """Free everything, at the end of the connection."""
        await self.give_back(self._held)


class FrameChannel:
    """Reads and sends the frames of one connection, whose heads a protocol knows.

    payload_bytes_max: largest payload of a frame.
    """

    def __init__(self, stream: AnyByteStream, budget: MemoryBudget, payload_bytes_max: int) -> None:
        self._stream = stream
        self._is_broken = False
        self._most = self._payload_bytes_max = payload_bytes_max
        self.memory = MemoryShare(budget)
        """Its bytes of large frames, while they are handled and kept."""
        self._received = bytearray()
        self._receive_chunk: Callable[[], Awaitable[bytes]] = (
            partial(stream.receive, CHUNK_BYTES) if isinstance(stream, ByteReceiveStream) else stream.receive
        )
        self.sending = anyio.Lock(fast_acquire=True)
        """Held while a reply is made and sent, so that a connection holds one large reply at most."""

    def limit_frames(self) -> None:
        """Take only frames that need no share of the memory, until `accept_frames`: the peer is not known yet."""
        self._payload_bytes_max = FREE_FRAME_BYTES

    def accept_frames(self) -> None:
        """Take frames of every size that the protocol has."""
        self._payload_bytes_max = self._most

    async def receive_head(self, count: int) -> bytes:
        """Return the next bytes, with which a frame begins. Waits without end unless the connection holds memory."""
        if self.memory.is_held:
            return await self.receive(count)
        return await self._receive_exactly(count)

    @asynccontextmanager
    async def receiving_payload(self, length: int, name: str = "a frame") -> AsyncIterator[bytes]:
        """Yield what `receive_payload` returns; its memory is held while the block runs."""
        payload, held_bytes = await self.receive_payload(length, name)
        try:
            yield payload
        finally:
            await self.memory.give_back(held_bytes)

    async def receive_payload(self, length: int, name: str = "a frame") -> tuple[bytes, int]:
        """Return the payload of a frame whose head was received, and the memory that it holds, to be given back.

        name: of the frame, for the error. Raises EndOfStream, IncompleteRead, MalformedFrame, ConnectionOver;
        TimeoutError if the peer does not finish the frame.
        """
        if not 0 <= length <= self._payload_bytes_max:
            raise MalformedFrame(f"{name} has length {length}")
        start = await self.receive(min(length, FREE_FRAME_BYTES))
        rest = length - len(start)
        await self.memory.take(rest)
        try:
            pieces = [await self.receive(min(rest - at, PIECE_BYTES)) for at in range(0, rest, PIECE_BYTES)]
        except BaseException:
            await self.memory.give_back(rest)
            raise
        return b"".join((start, *pieces)), rest

    async def receive(self, count: int) -> bytes:
        """Return the next bytes of a frame that has begun."""
        if len(self._received) >= count:  # there is nothing to wait for
            return await self._receive_exactly(count)
        with anyio.fail_after(STALLED_S):
            return await self._receive_exactly(count)

    async def _receive_exactly(self, count: int) -> bytes:
        """Return the next bytes. Keeps CHUNK_BYTES of those that follow, at most."""
        received = self._received
        while len(received) < count:
            try:
                received.extend(await self._receive_chunk())
            except anyio.EndOfStream as why:
                raise anyio.IncompleteRead from why
        with memoryview(received) as view:
            taken = bytes(view[:count])
        del received[:count]
        return taken

    async def send_frame(self, frame: bytes) -> None:
        """Send a complete frame; the caller holds `sending`.

        Raises TimeoutError if the peer takes nothing, and BrokenResourceError after a frame that was not sent
        completely: what follows would lie within it.
        """
        if self._is_broken:
            raise anyio.BrokenResourceError
        self._is_broken = True
        for at in range(0, len(frame), PIECE_BYTES):
            with anyio.fail_after(STALLED_S):
                await self._stream.send(frame[at : at + PIECE_BYTES])
        self._is_broken = False
