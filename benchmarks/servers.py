"""A store on a PostgreSQL server of this machine: beside a directory, and several processes beside one.

Run as a program, it is one of those processes.
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from functools import partial
from typing import Final

import anyio
import anyio.to_thread
import attrs

import eventproc
from benchmarks.samples import Sample, Side, Stopwatch, Task, keys, payloads
from tests.support.postgres import running_server

COMMIT_US: Final = 4_000
"""How long the server waits in each commit where writing processes are compared: as with a synchronous standby."""

PROCESSES_COUNT: Final = 4


async def on_server(side: Side, task: Task) -> Sample:
    """Measure a side with its store on a server."""
    with running_server() as server:
        return await side(attrs.evolve(task, url=server.store("benchmark")))


async def four_writers(task: Task) -> Sample:
    """Write from four processes, each to a stream of its own, one awaited event after the other."""
    return await _run(task, "write", PROCESSES_COUNT, COMMIT_US)


async def one_writer(task: Task) -> Sample:
    """Write a fourth of the events from one process."""
    return await _run(task, "write", 1, COMMIT_US)


async def four_processors(task: Task) -> Sample:
    """Post and handle events in four processes, each those of its own stream."""
    return await _run(task, "process", PROCESSES_COUNT, 0)


async def one_processor(task: Task) -> Sample:
    """Post and handle a fourth of the events in one process."""
    return await _run(task, "process", 1, 0)


async def _run(task: Task, work: str, processes: int, commit_us: int) -> Sample:
    with running_server() as server:
        if commit_us:
            server.execute(f"ALTER SYSTEM SET commit_delay = {commit_us}")
            server.execute("ALTER SYSTEM SET commit_siblings = 0")
            server.execute("SELECT pg_reload_conf()")
        url = server.store("benchmark")
        async with eventproc.open(url) as ep:
            await ep.create_scope("benchmark")
            for number in range(processes):
                await ep.create_stream(f"benchmark/stream-{number}")
        each = task.count // PROCESSES_COUNT
        return await anyio.to_thread.run_sync(partial(_measure, url, work, processes, each))


def _measure(url: str, work: str, processes: int, each: int) -> Sample:
    with ExitStack() as ends:
        started = []
        for number in range(processes):
            command = [sys.executable, "-m", "benchmarks.servers", url, work, str(number), str(each)]
            child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            ends.enter_context(child)
            started.append(child)
        for child in started:
            assert child.stdout is not None and child.stdout.readline() == b"ready\n", "it has started"
        watch = Stopwatch()
        for child in started:
            assert child.stdin is not None, "it is a pipe"
            child.stdin.write(b"go\n")
            child.stdin.close()
        for child in started:
            assert child.wait() == 0, "it has done its part"
        return watch.rate(processes * each)


async def _write(stream: eventproc.Stream, count: int) -> None:
    async with stream.writer() as writer:
        await _begin()
        for number in range(count):
            await writer.write(payloads()[0], key=f"customer-{number % 7}")


async def _process(ep: eventproc.Eventproc, stream: eventproc.Stream, count: int) -> None:
    handled, done = 0, anyio.Event()
    app = eventproc.App()

    @app.processor(stream.name, group=f"{stream.name}-group")
    async def handle(event: eventproc.Event) -> None:
        nonlocal handled
        handled += 1
        if handled == count:
            done.set()

    pairs = list(zip(payloads(), keys(), strict=True))
    async with stream.writer() as writer, await ep.run(app):
        await _begin()
        for _ in range(count // len(pairs)):
            for payload, key in pairs:
                await writer.post(payload, key=key)
        await done.wait()


async def _begin() -> None:
    """Say that everything is open, and wait for the others."""
    print("ready", flush=True)
    await anyio.to_thread.run_sync(sys.stdin.readline)


async def _main(url: str, work: str, number: int, count: int) -> None:
    async with eventproc.open(url, create=False) as ep:
        stream = await ep.stream(f"benchmark/stream-{number}")
        await (_write(stream, count) if work == "write" else _process(ep, stream, count))


if __name__ == "__main__":
    anyio.run(_main, sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
