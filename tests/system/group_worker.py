"""A process that reads STREAM as one of a group, for the tests that kill and stop such processes.

    python -m tests.system.group_worker BASE NAME

It notes each event in BASE/journal/deliveries, "NAME KEY PAYLOAD", before it asks for the next one. It notes "NAME !"
when it finds that it was fenced. All readers append to one file, so the order of its lines is the order of deliveries.
The reader never waits on its own: a handler that does not await is the hardest case. It prints "open" when it is
online, "seen N" from time to time, and "closed" when everything is sealed and read.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from pathlib import Path

import eventproc
from tests.system.protocol import STREAM, SayHandler, say

GROUP = f"{STREAM.partition('/')[0]}/readers"
NOTES = "deliveries"
FENCED = "!"
SEEN_EACH = 100


class NoteFenced(logging.Handler):
    """Notes that this reader was fenced."""

    def __init__(self, name: str, notes: int) -> None:
        super().__init__()
        self._line = f"{name} {FENCED}\n".encode()
        self._notes = notes

    def emit(self, record: logging.LogRecord) -> None:
        """See `logging.Handler.emit`."""
        if "joins again" in record.getMessage():
            os.write(self._notes, self._line)


async def share(base: Path, name: str, notes: int) -> None:
    async with eventproc.open(base / "store", create=False) as ep:
        group = await ep.reader_group(GROUP)
        async with group.reader(name) as reader:
            say("open")
            seen = 0
            async for event in reader:
                os.write(notes, f"{name} {event.key} {event.payload.decode()}\n".encode())
                seen += 1
                if seen % SEEN_EACH == 0:
                    say(f"seen {seen}")


def main(base: str, name: str) -> None:
    notes = os.open(Path(base) / "journal" / NOTES, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    logging.basicConfig(handlers=[SayHandler(), NoteFenced(name, notes)], level=logging.INFO)
    asyncio.run(share(Path(base), name, notes))
    say("closed")


if __name__ == "__main__":
    main(*sys.argv[1:])
