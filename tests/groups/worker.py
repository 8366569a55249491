"""A process with one reader of a group: it records each event before it asks for the next; see test_processes."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

import anyio

import eventproc

PAUSE_S = 0.002
"""How long handling an event takes: long enough for faults to hit while many events wait."""


def say(line: str) -> None:
    os.write(1, line.encode() + b"\n")


async def main(base: Path, reader: str) -> None:
    out = os.open(base / "delivered", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    async with eventproc.open(base / "store", create=False) as ep:
        group = await ep.group("s/g")
        async with group.reader(reader) as member:
            say("online")
            async for event in member:
                os.write(out, b"%s %s %s\n" % (reader.encode(), str(event.key).encode(), event.payload))
                await anyio.sleep(PAUSE_S)
    say("ended")


class FencedHandler(logging.Handler):
    """Prints "fenced" when this reader was expired."""

    def emit(self, record: logging.LogRecord) -> None:
        if "joins again" in record.getMessage():
            say("fenced")


if __name__ == "__main__":
    logging.getLogger("eventproc.groups").addHandler(FencedHandler())
    anyio.run(main, Path(sys.argv[1]), sys.argv[2])
