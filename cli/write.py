"""`eventproc write`: rows of a file or a pipe into a stream."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import anyio
import anyio.to_thread
import click
from anyio.streams.memory import MemoryObjectSendStream

from eventproc.cli import session
from eventproc.cli.lines import Lines, Source, open_source
from eventproc.cli.progress import progress
from eventproc.cli.rows import FORMATS, Row, guess_format, rows, take
from eventproc.cli.settings import (
    TABLE,
    Command,
    Settings,
    note,
    output_option,
    pass_settings,
    stream_argument,
)
from eventproc.cli.show import show_one
from eventproc.runtime import Eventproc
from eventproc.store.model.errors import Retryable, TransactionDecided
from eventproc.store.tasks import BackgroundTasks

AHEAD_CHUNKS: Final = 3
"""Chunks that are read while another is written; a chunk has at most about 1 MiB, of a pipe what it held."""

Chunk = tuple[list[Row], click.ClickException | None]
"""Rows that are written together, and the bad row that follows them."""


@click.command(cls=Command)
@stream_argument
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True), default="-")
@click.option(
    "--format",
    "kind",
    type=click.Choice(FORMATS),
    help="What a row is; by the file's name unless given, lines for a pipe.",
)
@click.option(
    "--key",
    metavar="COLUMN",
    help="The CSV column, or the field of each JSON object, that is the routing key.",
)
@click.option(
    "--transaction",
    "atomic",
    is_flag=True,
    help="All rows in one transaction: visible together, or never.",
)
@output_option()
@pass_settings
def write(
    settings: Settings,
    name: str,
    file: str,
    kind: str | None,
    key: str | None,
    atomic: bool,
    output: str,
) -> None:
    """Write the lines, JSON lines or CSV rows of FILE, or of standard input, to a stream.

    Prints `written N` whenever N events in total are durable: with --output jsonl as an object on a line, with
    --output json only once, at the end. A CSV row becomes a JSON object. Files in .gz and .xz format are
    decompressed. A row that cannot be written ends the command; the rows before it stay written.

    With --transaction, either all rows become visible, after the last one, or none; Ctrl-C aborts. The id of the
    transaction, for `eventproc txn`, is printed on standard error.
    """
    kind = kind or guess_format(file)
    if key is not None and kind == "lines":
        raise click.UsageError("--key needs --format csv or jsonl: a plain line has no fields")
    with open_source(file) as source:
        act = _write_whole if atomic else _write
        # A transaction becomes visible by a host: this process is one if there is no other.
        session.run(
            settings,
            partial(
                act,
                settings=settings,
                name=name,
                source=source,
                kind=kind,
                key=key,
                report=WriteReport(output),
            ),
            host=atomic,
        )


async def _write(
    ep: Eventproc,
    *,
    settings: Settings,
    name: str,
    source: Source,
    kind: str,
    key: str | None,
    report: WriteReport,
) -> None:
    stream = await ep.stream(name)
    writer, failed = stream.writer(), True

    async def add(rows: list[Row]) -> None:
        await writer.write_many(rows)
        report.update(writer.events_written)
        advance(source.position, f"{writer.events_written:,} written")

    with progress(settings, f"writing {name}", source.size_bytes) as advance:
        try:
            async with writer:
                await _each_chunk(source, kind, key, add)
            failed = False
        except Retryable as why:
            if writer.events_written:  # it speaks of its own transaction, and the others are durable
                why.add_note(f"{writer.events_written} rows before it are written: go on behind them")
            raise
        finally:
            # However it ended: leaving the writer waited for the send that was under way.
            report.end(writer.events_written, failed=failed)


async def _write_whole(
    ep: Eventproc,
    *,
    settings: Settings,
    name: str,
    source: Source,
    kind: str,
    key: str | None,
    report: WriteReport,
) -> None:
    stream = await ep.stream(name)
    txn, count, decided, theirs = stream.transaction(), 0, False, False
    note(settings, f"transaction {txn.id}")

    async def add(rows: list[Row]) -> None:
        nonlocal count
        count += await txn.write_many(rows)
        advance(source.position, f"{count:,} staged")

    with progress(settings, f"writing {name}", source.size_bytes) as advance:
        try:
            async with txn:
                await _each_chunk(source, kind, key, add)
                await txn.commit(wait=False)
                decided = True
                await txn.commit()
        except TransactionDecided:
            theirs = True  # somebody committed what was staged: the error says so
            raise
        finally:
            # Decided, it becomes visible whatever ends this process.
            if decided:
                report.end(count, failed=False)
            elif not theirs:
                note(settings, f"transaction {txn.id} is aborted: nothing was written")


async def _produce(send: MemoryObjectSendStream[Chunk], source: Source, kind: str, key: str | None) -> None:
    """Read ahead, in a thread: standard input may have nothing to say for long."""
    lines = Lines(source)
    found = rows(lines, kind, key)
    more = True
    async with send:
        while more:
            taken, error, more = await anyio.to_thread.run_sync(take, found, lines, abandon_on_cancel=True)
            await send.send((taken, error))


async def _each_chunk(
    source: Source, kind: str, key: str | None, add: Callable[[list[Row]], Awaitable[None]]
) -> None:
    """Hand over the rows, what was read meanwhile at once; then raise the bad row that ended them."""
    send, receive = anyio.create_memory_object_stream[Chunk](AHEAD_CHUNKS)
    # Around the tasks: who still reads ahead ends before nobody listens, and what failed here is all that is raised.
    async with receive, BackgroundTasks() as tasks:
        tasks.start_soon(_produce, send, source, kind, key)
        async for taken, error in receive:
            # What came meanwhile goes along: a slow disk makes larger commits, not a longer queue.
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
