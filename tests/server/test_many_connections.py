"""Idle and slow connections of the segment store: what they hold, and that it does not grow."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import anyio
import anyio.lowlevel
from anyio.abc import SocketAttribute, SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream
from anyio.streams.stapled import MultiListener

from eventproc.cluster.segment_containers import serving_containers
from eventproc.runtime import Eventproc
from eventproc.server.access.authority import Authority
from eventproc.server.frames import FREE_FRAME_BYTES
from eventproc.server.wire import commands as c
from eventproc.server.wire.codec import FRAME_HEAD
from eventproc.server.wire.connection import OURS
from eventproc.server.wire.listener import SegmentStore
from eventproc.testing.crash import PATIENCE_S
from tests.server.wire_peer import WRITER

IDLE = 100
SLOW = 10
FRAME_BYTES = 2**20
"""Frame that a slow peer announces. It sends so much of it that the server takes memory for all."""

IDLE_BYTES_MAX = 40_000
"""Python's memory for an idle connection, both of its ends: 23 kB were measured, with 1,000 of them."""


@asynccontextmanager
async def serving(ep: Eventproc, authority: Authority) -> AsyncIterator[tuple[SegmentStore, int]]:
    """Serve segments during the block; yield the segment store and its port."""
    address = ("127.0.0.1", 1)
    async with (
        serving_containers(ep.db, address, address) as containers,
        await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
        anyio.create_task_group() as tasks,
    ):
        assert isinstance(listener, MultiListener)
        store = SegmentStore(ep.db, containers, authority)
        tasks.start_soon(store.serve, listener.listeners[0])
        yield store, int(listener.extra(SocketAttribute.local_port))
        tasks.cancel_scope.cancel()


async def test_idle_and_slow_connections_hold_little_and_leave_nothing_behind(ep: Eventproc) -> None:
    async with serving(ep, Authority(ep.db)) as (store, port):
        await verify_flat(partial(one_round, store, port), IDLE * IDLE_BYTES_MAX)


async def one_round(store: SegmentStore, port: int) -> int:
    """Open connections, let some stop within a frame, and close all; return the bytes that idle ones took."""
    before = allocated()
    async with AsyncExitStack() as stack:
        for _ in range(IDLE):
            await stack.enter_async_context(await greeted(port))
        idle = allocated() - before
        for _ in range(SLOW):
            slow = await stack.enter_async_context(await greeted(port))
            head = FRAME_HEAD.pack(c.AppendBlock.type, FRAME_BYTES)
            await slow.send(head + WRITER + bytes(FREE_FRAME_BYTES))
        await until(lambda: store.held_bytes == SLOW * (FRAME_BYTES - FREE_FRAME_BYTES))
        assert store.connections == IDLE + SLOW
    await until(lambda: store.connections == 0)
    assert store.held_bytes == 0
    return idle


async def greeted(port: int) -> SocketStream:
    stream = await anyio.connect_tcp("127.0.0.1", port)
    await stream.send(OURS.encode())
    await BufferedByteReceiveStream(stream).receive_exactly(len(OURS.encode()))
    return stream


async def verify_flat(one_round: Callable[[], Awaitable[int]], bytes_max: int) -> None:
    """Verify that two rounds, each of which returns the bytes that it took, take little, and leave nothing behind."""
    tracemalloc.start()
    try:
        first = await one_round()
        second = await one_round()
    finally:
        tracemalloc.stop()
    assert first < bytes_max
    assert second < first * 1.1, "a second round needs no more than the first"


async def until(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(PATIENCE_S):
        while not condition():
            await anyio.lowlevel.checkpoint()


def allocated() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]
