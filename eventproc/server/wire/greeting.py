"""Whether another process answers: a hello of its segment store, which only a process that still runs sends."""

from __future__ import annotations

import ssl
from typing import Final

import anyio
from anyio.abc import AnyByteStream
from anyio.streams.buffered import BufferedByteReceiveStream

from eventproc.server.wire.codec import FRAME_HEAD
from eventproc.server.wire.commands import Hello
from eventproc.server.wire.connection import OURS

GREETING_WAIT_S: Final = 2
"""How long another process may take to answer. Higher: clients of a suspended process wait longer."""


def unverified_tls() -> ssl.SSLContext:
    """Return a context that takes any certificate, because a hello has no secret and decides nothing but liveness."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


async def greets(address: tuple[str, int], tls: ssl.SSLContext | None = None) -> bool:
    """Return whether the segment store at this address says hello. A process that was killed never does.

    tls: of a directory whose servers encrypt; None: they do not.

    Cost: one connection, about 1 ms.
    """
    host, port = address
    try:
        with anyio.fail_after(GREETING_WAIT_S):
            async with await _connect(host, port, tls) as stream:
                await stream.send(OURS.encode())
                head = await BufferedByteReceiveStream(stream).receive_exactly(FRAME_HEAD.size)
    except (OSError, TimeoutError, anyio.IncompleteRead, anyio.EndOfStream, anyio.BrokenResourceError):
        return False
    return bool(FRAME_HEAD.unpack(head)[0] == Hello.type)


async def _connect(host: str, port: int, tls: ssl.SSLContext | None) -> AnyByteStream:
    if tls is None:
        return await anyio.connect_tcp(host, port)
    return await anyio.connect_tcp(host, port, ssl_context=tls, tls_standard_compatible=False)
