"""The demo's producer, a process of its own: it writes the rows of a CSV file into a stream, and scales the stream.

It shares nothing with the processor but the directory. Several writers take the rows, all rows of a key the same
writer. When a quarter, a half and three quarters of the file are read, the stream scales while it is written and
processed; a topic does not. The event of a row is JSON: the row's number in the file, from 0, and its columns, such as
`[17,{"tailnum":"N14228","dep_delay":"2"}]`.
"""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from itertools import islice
from pathlib import Path
from typing import Final, TypeAlias

import anyio
import anyio.to_process
import attrs
from anyio.abc import TaskGroup

from eventproc.cli.demo.cpu_times import CpuTimes
from eventproc.cli.input.csv_reader import CsvReader
from eventproc.cli.input.lines import InputFile, InputLines, open_input
from eventproc.cli.options import Settings
from eventproc.cli.server_log import ServerLog
from eventproc.runtime import open as open_directory
from eventproc.streams import Stream

WRITERS: Final = 4
"""Concurrent writers. With more of them each send has fewer rows."""

CHUNK_ROWS: Final = 500
"""Rows that are read before they are written: about 2 ms."""

INTERRUPT_MS: Final = 500
"""How long after the end of the producer by Ctrl-C its parent waits for its own. Lower: an error may win."""

_Rows: TypeAlias = list[tuple[bytes, str]]
"""Payload and key of rows."""

_Scale: TypeAlias = Callable[[Sequence[int]], Awaitable[object]]
"""Scales the stream that has these active segments."""


@attrs.frozen
class Produced:
    """What the producer did.

    rows: rows of the file. written: acknowledged events. cpu_seconds: CPU time of reading, encoding and writing.
    """

    rows: int
    written: int
    cpu_seconds: Mapping[str, float]


async def produce_in_process(file: Path, key: str, directory: Path, stream: str) -> Produced:
    """Write all rows in a process of its own, which is killed if this task is cancelled. Raises as `produce`."""
    try:
        return await anyio.to_process.run_sync(produce, file, key, directory, stream, cancellable=True)
    except (KeyboardInterrupt, anyio.BrokenWorkerProcess):
        # Ctrl-C reaches the producer too, maybe before it ignores it: the same signal is about to cancel this task.
        await anyio.sleep(INTERRUPT_MS / 1000)
        raise


def produce(file: Path, key: str, directory: Path, stream: str) -> Produced:
    """Write the file into the stream, and return when every row is durable. Runs in a process of its own.

    key: column with the routing key. Raises click.ClickException for a file that is not CSV, and what opening and
    writing raise.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends this process
    ServerLog(Settings(), "warning").install()
    return anyio.run(_produce, file, key, directory, stream)


async def _produce(file: Path, key: str, directory: Path, name: str) -> Produced:
    async with open_directory(directory) as system:
        stream = await system.stream(name)
        is_topic = (await stream.describe()).config.is_topic
        with open_input(str(file)) as source:
            return await _Producer(source, key, stream, scales=not is_topic).run()


class _Producer:
    """Writes one file. `_scaled` is set while no scale is in progress."""

    def __init__(self, source: InputFile, key: str, stream: Stream, *, scales: bool) -> None:
        self._cpu = CpuTimes(rest="write")
        self._source = source
        self._table = CsvReader(InputLines(source))
        self._key_at = self._table.index(key)
        self._stream = stream
        self._count = 0
        self._scales: deque[tuple[int, _Scale]] = deque()
        if scales:
            self._scales += [
                (1, lambda ids: stream.split(ids[0])),
                (2, lambda ids: stream.split(ids[-1])),
                (3, lambda ids: stream.merge(*ids[:2])),
            ]
        self._scaled = anyio.Event()
        self._scaled.set()

    async def run(self) -> Produced:
        """Write all rows; return when they are durable and no scale is in progress."""
        async with AsyncExitStack() as stack:
            writers = [await stack.enter_async_context(self._stream.writer()) for _ in range(WRITERS)]
            tasks = await stack.enter_async_context(anyio.create_task_group())
            rows = iter(self._table)
            while chunk := self._next(rows):
                for payload, key in chunk:
                    await writers[hash(key) % WRITERS].post(payload, key=key)
                await self._scale(tasks)
        written = sum(writer.events_written for writer in writers)
        return Produced(self._count, written, self._cpu.seconds())

    def _next(self, rows: Iterator[list[str]]) -> _Rows:
        """Return the next rows as events; none at the end of the file."""
        with self._cpu.measure("read CSV"):
            chunk = list(islice(rows, CHUNK_ROWS))
        with self._cpu.measure("encode JSON"):
            first, key_at, payload = self._count, self._key_at, self._table.payload
            self._count += len(chunk)
            return [
                (b"[%d,%b]" % (number, payload(row)), row[key_at]) for number, row in enumerate(chunk, first)
            ]

    async def _scale(self, tasks: TaskGroup) -> None:
        """Begin the scales that are due."""
        size_bytes = self._source.size_bytes or 0
        while self._scales and self._source.position * 4 >= size_bytes * self._scales[0][0]:
            await self._scaled.wait()
            self._scaled = anyio.Event()
            tasks.start_soon(self._run_scale, self._scales.popleft()[1])

    async def _run_scale(self, scale: _Scale) -> None:
        await scale([segment.id for segment in await self._stream.segments()])
        self._scaled.set()
