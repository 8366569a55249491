"""The demo's run: the complete life of one stream, with writers, a handler and scales at the same time.

A producer distributes the rows to several writers, all rows of a key to the same one. A processor calls the handler
for each row, in the order of its key. When a quarter, a half and three quarters of the rows are distributed, the
stream scales while it is written and processed. Then it is truncated at the processor's position, sealed, processed
to its end, and deleted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import anyio
import attrs
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from eventproc.cli.demo.csv_file import CsvFile
from eventproc.cli.demo.ledger import ROW_HEADER, DemoLedger
from eventproc.cli.signals import SignalScope
from eventproc.processors import App, RetryPolicy
from eventproc.runtime import Eventproc
from eventproc.runtime import open as open_directory
from eventproc.store.clock import SystemClock, new_id
from eventproc.store.model.cuts import StreamCut
from eventproc.store.model.errors import EventprocError
from eventproc.store.model.policies import ScalingPolicy
from eventproc.streams import Stream

WRITERS: Final = 4
"""Concurrent writers. With more of them each send has fewer rows."""

WORKERS: Final = 100
"""Rows handled concurrently, each of another key."""

CHUNK_ROWS_MAX: Final = 500
"""Rows distributed between two scheduling points: about 2 ms."""

SHOW_MS: Final = 100
"""Interval between two updates of the progress bar."""

_Rows = list[tuple[bytes, str, int]]
"""Rows as payload, key, and number in the file."""


@attrs.frozen
class DemoReport:
    """The result of the run.

    epochs: number of epochs of the stream.
    """

    written: int
    processed: int
    duplicates: int
    order_violations: int
    epochs: int

    @property
    def flawless(self) -> bool:
        """Whether every row was processed once, and in order."""
        return self.written == self.processed and not self.duplicates and not self.order_violations


async def run(
    rows: CsvFile,
    ledger: DemoLedger,
    directory: Path,
    *,
    durability: str | None,
    show: Callable[[int, str], None],
    signal_scope: SignalScope,
) -> DemoReport:
    """Run the demo in `directory`, in a new scope that is deleted at the end in every case.

    show: called every SHOW_MS with the number of processed rows, and a text. signal_scope: cancels the run.
    Raises Signalled, and what opening, writing and processing raise, in exception groups.
    """
    clock = SystemClock()
    async with open_directory(directory, durability=durability, clock=clock) as system:
        scope = f"demo-{new_id(clock)}"
        await system.create_scope(scope)
        try:
            stream = await system.create_stream(f"{scope}/rows", scaling=ScalingPolicy.fixed(2))
            return await signal_scope.run(_DemoRun(rows, ledger, system, stream, show).run())
        finally:
            with anyio.CancelScope(shield=True):
                await _clear(system, scope)


async def _clear(system: Eventproc, scope: str) -> None:
    try:
        await system.delete_scope(scope, recursive=True)
    except EventprocError:
        pass  # a full disk or a stopped database: the error of the run explains more


class _DemoRun:
    """One run. `_scaled` is set while no scale is in progress."""

    def __init__(
        self,
        rows: CsvFile,
        ledger: DemoLedger,
        system: Eventproc,
        stream: Stream,
        show: Callable[[int, str], None],
    ) -> None:
        self._rows = rows
        self._ledger = ledger
        self._system = system
        self._stream = stream
        self._group = f"{stream.name}-processed"
        self._show = show
        self._written = 0
        self._epochs = 1
        self._scaled = anyio.Event()
        self._scaled.set()

    async def run(self) -> DemoReport:
        app = App()
        app.add(
            self._ledger.handle,
            self._stream.name,
            group=self._group,
            order="key",
            concurrency=WORKERS,
            retry=RetryPolicy(attempts=1),
            on_failure="stop",
        )
        async with self._system.run(app) as running, anyio.create_task_group() as tasks:
            tasks.start_soon(running.wait)  # cancels the other tasks when the handler fails
            tasks.start_soon(self._show_progress)
            await self._write()
            self._epochs = (await self._stream.describe()).epoch + 1
            await self._stream.truncate(await self._processed())
            await self._stream.seal()
            await running.wait_idle()
            tasks.cancel_scope.cancel()
        await (await self._system.reader_group(self._group)).delete()
        await self._stream.delete()
        return DemoReport(
            written=self._written,
            processed=self._ledger.processed,
            duplicates=self._ledger.duplicates,
            order_violations=self._ledger.order_violations,
            epochs=self._epochs,
        )

    async def _processed(self) -> StreamCut:
        """Return the cut up to which all rows are processed."""
        group = await self._system.reader_group(self._group)
        return (await group.cuts())[self._stream.name]

    async def _show_progress(self) -> None:
        while True:
            await anyio.sleep(SHOW_MS / 1000)
            processed = self._ledger.processed
            self._show(processed, f"{self._written:,} written, {processed:,} processed")

    async def _write(self) -> None:
        """Distribute all rows; return when they are durable and no scale is in progress."""
        async with anyio.create_task_group() as tasks:
            with ExitStack() as senders:
                outlets = []
                for _ in range(WRITERS):
                    send, receive = anyio.create_memory_object_stream[_Rows](2)
                    tasks.start_soon(self._write_rows, receive)
                    outlets.append(senders.enter_context(send))
                await self._distribute(outlets, tasks)

    async def _distribute(self, outlets: list[MemoryObjectSendStream[_Rows]], tasks: TaskGroup) -> None:
        count, key_at, payload = self._rows.count, self._rows.key_at, self._rows.payload
        scales = deque([(1, self._split_first), (2, self._split_last), (3, self._merge_first)])
        number = 0
        for chunk in self._rows.chunks(min(CHUNK_ROWS_MAX, count // 8 + 1)):
            batches: list[_Rows] = [[] for _ in outlets]
            for row in chunk:
                key = row[key_at]
                batches[hash(key) % WRITERS].append((payload(row), key, number))
                number += 1
            for outlet, rows in zip(outlets, batches, strict=True):
                await outlet.send(rows)
            while scales and number * 4 >= count * scales[0][0]:
                await self._scaled.wait()
                self._scaled = anyio.Event()
                tasks.start_soon(self._scale, scales.popleft()[1])

    async def _write_rows(self, outlet: MemoryObjectReceiveStream[_Rows]) -> None:
        known = 0
        with outlet:
            async with self._stream.writer() as writer:
                async for rows in outlet:
                    for payload, key, number in rows:
                        await writer.post(payload, key=key, headers={ROW_HEADER: str(number)})
                    self._written += writer.events_written - known
                    known = writer.events_written
            self._written += writer.events_written - known

    async def _scale(self, step: Callable[[], Awaitable[object]]) -> None:
        await step()
        self._scaled.set()

    async def _split_first(self) -> None:
        await self._stream.split((await self._stream.segments())[0].id)

    async def _split_last(self) -> None:
        await self._stream.split((await self._stream.segments())[-1].id)

    async def _merge_first(self) -> None:
        left, right, *_ = await self._stream.segments()
        await self._stream.merge(left.id, right.id)
