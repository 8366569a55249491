"""Peers: other systems that do the same job, measured in the same run if they are installed.

Redis Streams: Debian's `redis-server` on a socket in the directory of the measurement, and redis-py, each XADD awaited.
Class P: `appendonly yes`, `appendfsync everysec`. Class F: `appendfsync always`. Snapshots are off in both.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

import anyio
import attrs

from benchmarks.samples import KEYS_COUNT, Sample, Side, Task, keys, payloads, timed

if TYPE_CHECKING:
    from redis.asyncio import Redis

WARM_COUNT: Final = 200
"""Operations before the clock starts."""

START_S_MAX: Final = 10
"""How long the server may take until it listens."""


@attrs.frozen(kw_only=True)
class Peer:
    """A system beside which a measurement runs.

    is_installed: whether it can be measured here. settings: of each class, as they are printed.
    """

    name: str
    side: Side
    is_installed: Callable[[], bool]
    settings: str


async def redis_single_write(task: Task) -> Sample:
    """Add one entry after the other to a stream, each awaited."""
    async with _redis(task) as client:
        pairs = list(zip(payloads(), keys(), strict=True))
        for payload, key in pairs[:WARM_COUNT]:
            await client.xadd("stream", {"key": key, "payload": payload})
        numbers = iter(range(task.count))

        async def run() -> None:
            for number in numbers:
                payload, key = pairs[number % KEYS_COUNT]
                await client.xadd("stream", {"key": key, "payload": payload})

        return await timed(run, 1, task.count)


@asynccontextmanager
async def _redis(task: Task) -> AsyncIterator[Redis]:
    """Start a server in the directory of the task, and yield a client with one connection to its socket."""
    socket = anyio.Path(task.directory) / "redis.sock"
    policy = "always" if task.durability == "fsync" else "everysec"
    settings = {"port": "0", "unixsocket": str(socket), "dir": str(task.directory), "save": ""}
    settings |= {"appendonly": "yes", "appendfsync": policy}
    words = [word for name, value in settings.items() for word in (f"--{name}", value)]
    async with await anyio.open_process(["redis-server", *words], stdout=subprocess.DEVNULL) as server:
        with anyio.fail_after(START_S_MAX):
            while not await socket.exists():  # noqa: ASYNC110 - another program creates it
                await anyio.sleep(0.01)
        client: Redis = import_module("redis.asyncio").Redis(
            unix_socket_path=str(socket), single_connection_client=True
        )
        try:
            yield client
        finally:
            await client.aclose()
            server.terminate()


REDIS: Final = Peer(
    name="Redis",
    side=redis_single_write,
    is_installed=lambda: shutil.which("redis-server") is not None and find_spec("redis") is not None,
    settings="redis-server on a socket, redis-py; P: appendfsync everysec, F: appendfsync always",
)
