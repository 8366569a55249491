"""`eventproc write`: rows of a file or a pipe into a stream."""

from __future__ import annotations

from functools import partial
from typing import Final

import anyio
import anyio.to_thread
import click
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from eventproc.cli import session
from eventproc.cli.lines import Lines, Source, open_source
from eventproc.cli.progress import Advance, progress
from eventproc.cli.rows import FORMATS, Row, guess_format, rows, take
from eventproc.cli.settings import Command, Settings, pass_settings, stream_argument
from eventproc.runtime import Eventproc
from eventproc.store.background import Background
from eventproc.streams import EventWriter

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
@pass_settings
def write(settings: Settings, name: str, file: str, kind: str | None, key: str | None) -> None:
    """Write the lines, JSON lines or CSV rows of FILE, or of standard input, to a stream.

    Says `written N` whenever N events in all are durable. A CSV row becomes a JSON object; .gz and .xz are
    unpacked. A row that cannot be written ends it; what came before stays written.
    """
    kind = kind or guess_format(file)
    if key is not None and kind == "lines":
        raise click.UsageError("--key needs --format csv or jsonl: a plain line has no fields")
    with open_source(file) as source:
        act = partial(_write, settings=settings, name=name, source=source, kind=kind, key=key)
        session.run(settings, act)


async def _write(
    ep: Eventproc, *, settings: Settings, name: str, source: Source, kind: str, key: str | None
) -> None:
    stream = await ep.stream(name)
    report = _Report()
    writer = stream.writer()
    with progress(settings, f"writing {name}", source.size_bytes) as advance:
        try:
            async with writer, Background() as tasks:
                send, receive = anyio.create_memory_object_stream[Chunk](AHEAD_CHUNKS)
                tasks.start_soon(_produce, send, source, kind, key)
                await _consume(receive, writer, source, report, advance)
        finally:
            # However it ended: leaving the writer waited for the send that was under way.
            report.say(writer.events_written)
    report.say(writer.events_written, last=True)


async def _produce(send: MemoryObjectSendStream[Chunk], source: Source, kind: str, key: str | None) -> None:
    """Read ahead, in a thread: standard input may have nothing to say for long."""
    lines = Lines(source)
    found = rows(lines, kind, key)
    more = True
    async with send:
        while more:
            taken, error, more = await anyio.to_thread.run_sync(take, found, lines, abandon_on_cancel=True)
            await send.send((taken, error))


async def _consume(
    receive: MemoryObjectReceiveStream[Chunk],
    writer: EventWriter[bytes],
    source: Source,
    report: _Report,
    advance: Advance,
) -> None:
    async with receive:
        async for taken, error in receive:
            # What came meanwhile goes along: a slow disk makes larger commits, not a longer queue.
            while error is None and receive.statistics().current_buffer_used:
                more, error = receive.receive_nowait()
                taken += more
            await writer.write_many(taken)
            report.say(writer.events_written)
            advance(source.position, f"{writer.events_written:,} written")
            if error is not None:
                raise error


class _Report:
    """`written N` on stdout: cumulative, durable, never the same number twice."""

    def __init__(self) -> None:
        self._said = 0

    def say(self, written: int, *, last: bool = False) -> None:
        """Say how many are durable, if it is news; the last time also that there was none."""
        if written > self._said or (last and written == 0):
            self._said = written
            click.echo(f"written {written}")
