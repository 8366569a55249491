"""The floor that the machine allows: the same jobs by the shortest program with the same durability.

It has no routing, keys, types, retries, recovery, other processes or metrics, and is not a usable log.
`Commits` is SQLite behind one thread that commits whatever waits for it in one transaction and wakes all
callers with one crossing; with one caller that is one row, one commit, one crossing. `AppendLog` is an append file
behind such a thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from struct import Struct
from typing import Final, Generic, NamedTuple, TypeVar

from eventproc.base.kernel import sync_data

J = TypeVar("J")

_HEAD: Final = Struct(">I")


class _Thread(Generic[J]):
    """Takes all waiting jobs, runs them together, and resolves their futures in one wake-up of the event loop."""

    def __init__(self, run: Callable[[list[J]], None]) -> None:
        self._run = run
        self._jobs: queue.SimpleQueue[tuple[J, asyncio.Future[None]] | None] = queue.SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def put(self, job: J) -> asyncio.Future[None]:
        """Queue `job`; the future tells when it is done."""
        future: asyncio.Future[None] = self._loop.create_future()
        self._jobs.put((job, future))
        return future

    def end(self) -> None:
        """End the thread after what was put."""
        self._jobs.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (first := self._jobs.get()) is not None:
            taken = [first]
            with contextlib.suppress(queue.Empty):
                while (more := self._jobs.get_nowait()) is not None:
                    taken.append(more)
                self._jobs.put(None)
            self._run([job for job, _ in taken])
            self._loop.call_soon_threadsafe(_resolve, [future for _, future in taken])


def _resolve(futures: list[asyncio.Future[None]]) -> None:
    for future in futures:
        future.set_result(None)


class Commits:
    """Rows in SQLite, committed in groups."""

    def __init__(self, directory: Path, durability: str) -> None:
        self._sql = sqlite3.connect(directory / "bare.db", isolation_level=None, check_same_thread=False)
        self._sql.execute("PRAGMA journal_mode = WAL")
        self._sql.execute(f"PRAGMA synchronous = {'FULL' if durability == 'fsync' else 'NORMAL'}")
        self._sql.execute("CREATE TABLE entry (id INTEGER PRIMARY KEY, payload BLOB)")
        self._sql.execute(
            "CREATE TABLE record (key TEXT PRIMARY KEY, version INTEGER, body BLOB) WITHOUT ROWID"
        )
        self._thread = _Thread(self._commit)

    async def insert(self, payload: bytes) -> None:
        """Add one row; durable when it returns."""
        await self._thread.put(("INSERT INTO entry (payload) VALUES (?)", (payload,)))

    async def create(self, key: str, body: bytes) -> None:
        """Add a record at version 1."""
        await self._thread.put(("INSERT INTO record VALUES (?, 1, ?)", (key, body)))

    async def replace(self, key: str, version: int, body: bytes) -> None:
        """Replace a record by compare and set."""
        await self._thread.put(
            (
                "UPDATE record SET version = version + 1, body = ? WHERE key = ? AND version = ?",
                (body, key, version),
            )
        )

    def close(self) -> None:
        """End the thread and close the file."""
        self._thread.end()
        self._sql.close()

    def _commit(self, jobs: list[tuple[str, tuple[object, ...]]]) -> None:
        execute = self._sql.execute
        execute("BEGIN IMMEDIATE")
        for statement, parameters in jobs:
            changed = execute(statement, parameters).rowcount
            assert changed == 1, f"{changed} rows instead of one"
        execute("COMMIT")


class LogEvent(NamedTuple):
    """An event of the log: its offset and its payload."""

    offset: int
    payload: bytes


class AppendLog:
    """An append file: length, payload, length, payload."""

    def __init__(self, directory: Path, durability: str) -> None:
        self._file = os.open(directory / "bare.log", os.O_RDWR | os.O_CREAT | os.O_APPEND)
        self._synced = durability == "fsync"
        self._tail = 0
        self._grown = asyncio.Event()
        self._thread = _Thread(self._write)

    def append(self, payloads: Sequence[bytes]) -> asyncio.Future[None]:
        """Append the payloads; the future tells when they are durable."""
        block = b"".join([part for payload in payloads for part in (_HEAD.pack(len(payload)), payload)])
        done = self._thread.put(block)
        done.add_done_callback(lambda _: self._note(len(block)))
        return done

    async def batches(self) -> AsyncIterator[Iterator[LogEvent]]:
        """Yield durable events from the beginning, and wait for more."""
        at = 0
        while True:
            while at == self._tail:
                self._grown.clear()
                await self._grown.wait()
            found = os.pread(self._file, min(self._tail - at, 2**20), at)
            size = 0
            events = []
            while size + _HEAD.size <= len(found):
                (length,) = _HEAD.unpack_from(found, size)
                begin = size + _HEAD.size
                if begin + length > len(found):
                    break
                events.append(LogEvent(at + size, found[begin : begin + length]))
                size = begin + length
            at += size
            yield iter(events)

    def close(self) -> None:
        """End the thread and close the file."""
        self._thread.end()
        os.close(self._file)

    def _note(self, size: int) -> None:
        self._tail += size
        self._grown.set()

    def _write(self, blocks: list[bytes]) -> None:
        os.write(self._file, b"".join(blocks))
        if self._synced:
            sync_data(self._file)
