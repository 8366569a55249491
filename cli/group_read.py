"""`eventproc read --group`: this shell is a reader of a group.

An event is finished once its line was handed to whoever reads: written whole, to a pipe that was still open. Ctrl-C, a
polite kill and a pipe that breaks end between two events; what was printed is made durable then, and what was not is
read again, by this reader or another.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

import attrs
from anyio.lowlevel import checkpoint

from eventproc.cli.printer import Printer
from eventproc.cli.progress import progress
from eventproc.cli.settings import Settings
from eventproc.groups import GroupReader, ReaderGroup
from eventproc.runtime import Eventproc
from eventproc.store.segments import Event

LOOK_EACH: Final = 100
"""Events between two looks at what else goes on: a signal, a change of the group. Each costs 30 us; more events let a
signal wait for that many lines."""


@attrs.frozen
class WantedOfGroup:
    """What to read. event_max: how many; follow: until all streams are sealed, else up to their present tails."""

    group: str
    reader: str | None
    event_max: int
    follow: bool
    output: str


async def read_group(ep: Eventproc, *, settings: Settings, wanted: WantedOfGroup) -> None:
    """Print the events of the group that fall to this reader."""
    group = await ep.reader_group(wanted.group)
    names = [each.name for each in (await group.info()).streams]
    printer = Printer(wanted.output, name_streams=len(names) > 1)
    bar = Settings()
    # A bar beside events on the same terminal would only be in their way.
    bar.quiet = settings.quiet or wanted.follow or sys.stdout.isatty()
    with progress(bar, f"reading as {wanted.group}", None) as advance:
        async with _reader(group, wanted) as reader:
            events = aiter(reader) if wanted.follow else await _up_to_now(ep, names, reader)
            printed = 0
            async with aclosing(events):
                async for event in events:
                    if printed % LOOK_EACH == 0:
                        await checkpoint()  # cancelled here, the event in hand is not finished
                        advance(printed, f"{printed:,} read")
                    stream = reader.stream
                    assert stream is not None, "an event is in hand"
                    printed += printer.print(stream, [event])
                    if printed >= wanted.event_max:
                        break
            printer.close()


def _reader(group: ReaderGroup, wanted: WantedOfGroup) -> GroupReader:
    return group.reader(f"shell-{os.getpid()}" if wanted.reader is None else wanted.reader)


async def _up_to_now(ep: Eventproc, names: list[str], reader: GroupReader) -> AsyncGenerator[Event, None]:
    """Return the events before the present tails of the streams."""
    return reader.until([await (await ep.stream(name)).tail() for name in names])
