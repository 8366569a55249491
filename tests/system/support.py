"""The processes of one test on one directory, and what they wrote."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import anyio

import eventproc
from tests.support.child_process import ChildProcess
from tests.system.protocol import STREAM

T = TypeVar("T")


class WorkerProcesses:
    """The directory of one test, BASE/store, and the notes of its processes, in BASE/journal."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.directory = base / "store"
        self.journal = base / "journal"
        self.journal.mkdir()

    def call(self, fn: Callable[[eventproc.Eventproc], Awaitable[T]], *, host: bool = True) -> T:
        """Open the directory in this process, call `fn` with it, and return what it returns."""

        async def main() -> T:
            async with eventproc.open(self.directory, host=host) as ep:
                return await fn(ep)

        return anyio.run(main)

    def found(self, *, durability: str = "fsync", segments: int = 1) -> None:
        """Make the directory, and STREAM in it."""

        async def main() -> None:
            async with eventproc.open(self.directory, durability=durability) as ep:
                await ep.create_scope(STREAM.partition("/")[0])
                await ep.create_stream(STREAM, scaling=eventproc.ScalingPolicy.fixed(segments))

        anyio.run(main)


def wait_dead(worker: ChildProcess) -> None:
    """Wait until a worker that kills itself, and every child of it that has its output open, has ended."""
    while worker.hear():
        pass
    worker.kill()


async def read_all(ep: eventproc.Eventproc, name: str) -> list[tuple[str | None, bytes]]:
    """Return (key, payload) of everything that is in a stream now, in the order of a reader of the whole stream."""
    stream = await ep.stream(name)
    async with stream.reader() as reader:
        return [(event.key, event.payload) async for event in reader.until(await stream.tail())]
