"""Whether another process answers: a hello of its segment store, which only a process that still runs sends."""

from __future__ import annotations

from typing import Final

import anyio
from anyio.streams.buffered import BufferedByteReceiveStream

from eventproc.server.wire.codec import FRAME_HEAD
from eventproc.server.wire.commands import Hello
from eventproc.server.wire.connection import OURS

GREETING_WAIT_S: Final = 2
"""How long another process may take to answer. Higher: clients of a suspended process wait longer."""


async def greets(address: tuple[str, int]) -> bool:
    """Return whether the segment store at this address says hello. A process that was killed never does.

    Cost: one connection, about 1 ms.
    """
    host, port = address
    try:
        with anyio.fail_after(GREETING_WAIT_S):
            async with await anyio.connect_tcp(host, port) as stream:
                await stream.send(OURS.encode())
                head = await BufferedByteReceiveStream(stream).receive_exactly(FRAME_HEAD.size)
    except (OSError, TimeoutError, anyio.IncompleteRead, anyio.EndOfStream, anyio.BrokenResourceError):
        return False
    return bool(FRAME_HEAD.unpack(head)[0] == Hello.type)
