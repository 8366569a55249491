"""What `eventproc write` does: write the rows of a file to a stream."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractContextManager
from typing import Final

import anyio
import anyio.to_thread
import attrs
import click
from anyio.streams.memory import MemoryObjectSendStream

from eventproc.base.counts import counted
from eventproc.base.tasks import BackgroundTasks
from eventproc.cli.input.lines import InputFile
from eventproc.cli.input.rows import InputRow, InputRows, RowFields, take_chunk
from eventproc.cli.options import TABLE, Settings, note
from eventproc.cli.output.tables import show_one
from eventproc.cli.output.terminal import Advance, progress
from eventproc.errors import Retryable, TransactionDecided
from eventproc.runtime import Eventproc
from eventproc.streams import NewEvent

AHEAD_CHUNKS: Final = 3
"""Chunks that are read while another one is written. A chunk has at most about 1 MiB, or what a pipe held."""

RowChunk = tuple[list[InputRow], click.ClickException | None]
"""Rows that are written together, and the error of the bad row that follows them."""


@attrs.frozen
class WriteTask:
    """What to write. kind: format of the rows; None: as the input says. fields: the columns with keys and ids.

    place: partition, delay in ms and time in ms of all rows; None: none. priority: of all rows.
    """

    settings: Settings
    name: str
    source: InputFile
    kind: str | None
    fields: RowFields
    place: tuple[int | None, int | None, int | None]
    priority: int
    report: WriteReport

    def progress(self) -> AbstractContextManager[Advance]:
        """Show a bar, unless a person types the rows."""
        source = self.source
        return progress(self.settings, f"writing {self.name}", source.size_bytes, hidden=source.raw.isatty())


async def write_rows(ep: Eventproc, task: WriteTask) -> None:
    """Write the rows one after the other: those before a bad row stay written."""
    stream = await ep.stream(task.name)
    writer, failed = stream.writer(), True

    async def add(rows: list[InputRow]) -> None:
        await writer.write_many(_placed(rows, *task.place, task.priority))
        task.report.update(writer.events_written)
        advance(task.source.position, f"{writer.events_written:,} written")

    with task.progress() as advance:
        try:
            async with writer:
                await _each_chunk(task, add)
            failed = False
        except Retryable as why:
            if writer.events_written:  # the error is about the last send; the earlier ones are durable
                why.add_note(
                    f"wrote {counted(writer.events_written, 'row')} before it; continue with the rows after them"
                )
            raise
        finally:
            # In every case: leaving the writer has waited for the last send.
            task.report.end(writer.events_written, failed=failed)


async def write_transaction(ep: Eventproc, task: WriteTask) -> None:
    """Write the rows in one transaction."""
    stream = await ep.stream(task.name)
    txn, count, decided, theirs = stream.transaction(), 0, False, False
    note(task.settings, f"transaction {txn.id}")

    async def add(rows: list[InputRow]) -> None:
        nonlocal count
        count += await txn.write_many(_placed(rows, *task.place, task.priority))
        advance(task.source.position, f"{count:,} staged")

    with task.progress() as advance:
        try:
            async with txn:
                await _each_chunk(task, add)
                await txn.commit(wait=False)
                decided = True
                await txn.commit()
        except TransactionDecided:
            theirs = True  # another process committed the staged events; the error says so
            raise
        finally:
            # A decided transaction becomes visible, however this process ends.
            if decided:
                task.report.end(count, failed=False)
            elif not theirs:
                note(task.settings, f"transaction {txn.id} is aborted: nothing was written")


def _placed(
    rows: list[InputRow], partition: int | None, delay_ms: int | None, at_ms: int | None, priority: int
) -> Iterable[InputRow | NewEvent[bytes]]:
    """Return the rows as events of the partition, with a priority, appended when they are due, if these are given."""
    if (partition, delay_ms, at_ms, priority) == (None, None, None, 0):
        return rows
    events = (row if isinstance(row, NewEvent) else NewEvent(*row) for row in rows)
    return [
        attrs.evolve(each, partition=partition, delay_ms=delay_ms, at=at_ms, priority=priority)
        for each in events
    ]


async def _produce(send: MemoryObjectSendStream[RowChunk], task: WriteTask) -> None:
    """Read ahead in a thread, because reading standard input may block for long."""
    found = InputRows(task.source, task.kind, task.fields)
    more = True
    async with send:
        while more:
            taken, error, more = await anyio.to_thread.run_sync(take_chunk, found, abandon_on_cancel=True)
            await send.send((taken, error))


async def _each_chunk(task: WriteTask, add: Callable[[list[InputRow]], Awaitable[None]]) -> None:
    """Pass the rows to `add`, all that were read meanwhile in one call. Raises the error of a bad row at the end."""
    send, receive = anyio.create_memory_object_stream[RowChunk](AHEAD_CHUNKS)
    # `receive` is closed after the tasks have ended, so that a failure here is the only error that is raised.
    async with receive, BackgroundTasks() as tasks:
        tasks.start_soon(_produce, send, task)
        async for taken, error in receive:
            # On a slow disk the commits become larger, instead of the queue longer.
            while error is None and receive.statistics().current_buffer_used:
                more, error = receive.receive_nowait()
                taken += more
            await add(taken)
            if error is not None:
                raise error


class WriteReport:
    """Prints how many events are durable: cumulative, and never the same number twice."""

    def __init__(self, output: str) -> None:
        self._output = output
        self._reported = 0

    def update(self, written: int) -> None:
        """Print the number if it has grown. One JSON document has the last number only."""
        if written > self._reported and self._output != "json":
            self._print(written)

    def end(self, written: int, *, failed: bool) -> None:
        """Print the last number, unless it was printed. A failed command does not print 0."""
        if written > self._reported or (written == 0 and not failed):
            self._print(written)

    def _print(self, written: int) -> None:
        self._reported = written
        if self._output == TABLE:
            click.echo(f"written {written}")
        else:
            show_one({"written": written}, self._output)
