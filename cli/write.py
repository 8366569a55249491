"""`eventproc write`: write the rows of a file or a pipe to a stream."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Final

import anyio
import anyio.to_thread
import click
from anyio.streams.memory import MemoryObjectSendStream

from eventproc.cli import session
from eventproc.cli.input.lines import InputFile, open_input
from eventproc.cli.input.rows import FORMATS, InputRow, InputRows, take_chunk
from eventproc.cli.options import (
    TABLE,
    Command,
    Settings,
    note,
    output_option,
    pass_settings,
    stream_argument,
)
from eventproc.cli.output.tables import show_one
from eventproc.cli.output.terminal import progress
from eventproc.errors import Retryable, TransactionDecided
from eventproc.runtime import Eventproc
from eventproc.store.model.counts import counted
from eventproc.store.tasks import BackgroundTasks
from eventproc.streams import NewEvent

AHEAD_CHUNKS: Final = 3
"""Chunks that are read while another one is written. A chunk has at most about 1 MiB, or what a pipe held."""

RowChunk = tuple[list[InputRow], click.ClickException | None]
"""Rows that are written together, and the error of the bad row that follows them."""


@click.command(cls=Command)
@stream_argument
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True), default="-")
@click.option(
    "--format",
    "kind",
    type=click.Choice(FORMATS),
    help="Format of the rows; by default what the content and the file's suffix say. `lines` writes any bytes.",
)
@click.option(
    "--key",
    metavar="COLUMN",
    help="The column, or the field of each JSON object, that is the routing key.",
)
@click.option(
    "--partition",
    type=int,
    metavar="P",
    help="Write all rows to this partition of a topic, whatever their keys.",
)
@click.option(
    "--transaction",
    "atomic",
    is_flag=True,
    help="Write all rows in one transaction: they become visible together, or never.",
)
@output_option()
@pass_settings
def write(
    settings: Settings,
    name: str,
    file: str,
    kind: str | None,
    key: str | None,
    partition: int | None,
    atomic: bool,
    output: str,
) -> None:
    """Write the rows of FILE, or of standard input, to a stream or topic.

    Prints `written N`; N is the number of events durable so far. --output jsonl prints N as an object on a line each
    time, and --output json only the last one.

    The rows are recognised by their content: lines, JSON lines, CSV (by its suffix), one JSON array, JSON over several
    lines, Parquet and Arrow. CSV, Parquet and Arrow rows become JSON objects. Input in gzip, xz or bzip2 format is
    decompressed. Other binary input is refused; --format lines writes it as it is.

    A row that cannot be written ends the command; the rows before it stay written.

    With --transaction, either all rows become visible, after the last one, or none; Ctrl-C aborts. The id of the
    transaction, for `eventproc txn`, is printed on standard error.

    Examples:
        eventproc write shop/orders orders.jsonl --key customer
        eventproc write shop/orders orders.csv --key customer --transaction
        eventproc write shop/orders orders.parquet --key customer
        eventproc write shop/clicks clicks.jsonl --partition 3
        tail -f app.log | eventproc write shop/log
    """
    if key is not None and kind == "lines":
        raise click.UsageError("--key needs --format csv or jsonl: a plain line has no fields")
    with open_input(file) as source:
        act = _write_transaction if atomic else _write
        # A host makes a transaction visible: this process becomes the host if there is none.
        session.run(
            settings,
            partial(
                act,
                settings=settings,
                name=name,
                source=source,
                kind=kind,
                key=key,
                partition=partition,
                report=WriteReport(output),
            ),
            host=atomic,
        )


async def _write(
    ep: Eventproc,
    *,
    settings: Settings,
    name: str,
    source: InputFile,
    kind: str | None,
    key: str | None,
    partition: int | None,
    report: WriteReport,
) -> None:
    stream = await ep.stream(name)
    writer, failed = stream.writer(), True

    async def add(rows: list[InputRow]) -> None:
        await writer.write_many(_placed(rows, partition))
        report.update(writer.events_written)
        advance(source.position, f"{writer.events_written:,} written")

    with progress(settings, f"writing {name}", source.size_bytes, typed=source.raw.isatty()) as advance:
        try:
            async with writer:
                await _each_chunk(source, kind, key, add)
            failed = False
        except Retryable as why:
            if writer.events_written:  # the error is about the last send; the earlier ones are durable
                why.add_note(
                    f"wrote {counted(writer.events_written, 'row')} before it; continue with the rows after them"
                )
            raise
        finally:
            # In every case: leaving the writer has waited for the last send.
            report.end(writer.events_written, failed=failed)


async def _write_transaction(
    ep: Eventproc,
    *,
    settings: Settings,
    name: str,
    source: InputFile,
    kind: str | None,
    key: str | None,
    partition: int | None,
    report: WriteReport,
) -> None:
    stream = await ep.stream(name)
    txn, count, decided, theirs = stream.transaction(), 0, False, False
    note(settings, f"transaction {txn.id}")

    async def add(rows: list[InputRow]) -> None:
        nonlocal count
        count += await txn.write_many(_placed(rows, partition))
        advance(source.position, f"{count:,} staged")

    with progress(settings, f"writing {name}", source.size_bytes, typed=source.raw.isatty()) as advance:
        try:
            async with txn:
                await _each_chunk(source, kind, key, add)
                await txn.commit(wait=False)
                decided = True
                await txn.commit()
        except TransactionDecided:
            theirs = True  # another process committed the staged events; the error says so
            raise
        finally:
            # A decided transaction becomes visible, however this process ends.
            if decided:
                report.end(count, failed=False)
            elif not theirs:
                note(settings, f"transaction {txn.id} is aborted: nothing was written")


def _placed(rows: list[InputRow], partition: int | None) -> Iterable[InputRow | NewEvent[bytes]]:
    """Return the rows as events of the partition, if one is given."""
    if partition is None:
        return rows
    return [NewEvent(payload, key, partition=partition) for payload, key in rows]


async def _produce(
    send: MemoryObjectSendStream[RowChunk], source: InputFile, kind: str | None, key: str | None
) -> None:
    """Read ahead in a thread, because reading standard input may block for long."""
    found = InputRows(source, kind, key)
    more = True
    async with send:
        while more:
            taken, error, more = await anyio.to_thread.run_sync(take_chunk, found, abandon_on_cancel=True)
            await send.send((taken, error))


async def _each_chunk(
    source: InputFile, kind: str | None, key: str | None, add: Callable[[list[InputRow]], Awaitable[None]]
) -> None:
    """Pass the rows to `add`, all that were read meanwhile in one call. Raises the error of a bad row at the end."""
    send, receive = anyio.create_memory_object_stream[RowChunk](AHEAD_CHUNKS)
    # `receive` is closed after the tasks have ended, so that a failure here is the only error that is raised.
    async with receive, BackgroundTasks() as tasks:
        tasks.start_soon(_produce, send, source, kind, key)
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
