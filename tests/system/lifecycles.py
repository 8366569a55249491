"""A process that runs lifecycles of streams, workflows and the writes between them, until it kills itself.

    python -m tests.system.lifecycles BASE NAME DEATH POINT COUNT

It works on BASE/store and notes each step in BASE/journal/NAME.lives, so that the test knows what must be found:
"created STREAM", "acked STREAM ROWS" after each send, "sealed STREAM", and "deleting STREAM" before it is deleted.
DEATH POINT COUNT: see protocol.py.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from pathlib import Path
from typing import Protocol

import eventproc
from tests.system.protocol import batches, key_of, mortality, payload_of

SCOPE = "lives"
SENDS = 3
BALLAST = bytes(2**20)
"""An event that fills the log, so that a checkpoint comes soon; in a stream of its own."""


class JournalFile(Protocol):
    """A file without a buffer: it keeps what a killed process has written."""

    def write(self, line: bytes, /) -> object: ...


async def run_lifecycles(base: Path, name: str, *death: str) -> None:
    """Make streams without end. One third is deleted, one third is sealed only, one third is left open."""
    mortal = mortality(*death)
    assert mortal is not None, "without a death it would go on for ever"
    async with eventproc.open(base / "store", faults=mortal) as ep:
        mortal.arm()
        await ep.create_scope(SCOPE)
        with (base / "journal" / f"{name}.lives").open("ab", buffering=0) as notes:
            for number in itertools.count():
                await _live_once(ep, f"{name}-{number}", notes, fate=number % 3)


async def _live_once(ep: eventproc.Eventproc, name: str, notes: JournalFile, fate: int) -> None:
    def note(text: str) -> None:
        notes.write(text.encode() + b"\n")

    sends = batches(name)
    stream = await ep.create_stream(f"{SCOPE}/{name}")
    note(f"created {name}")

    async def write() -> None:
        async with stream.writer() as writer:
            for rows in itertools.islice(sends, SENDS):
                await writer.write_many((payload_of(name, row), key_of(name, row)) for row in rows)
                note(f"acked {name} {rows.stop}")

    await write()
    await stream.split(0, 3)
    await write()
    active = [segment.id for segment in await stream.segments()]
    await stream.merge(active[1], active[2])
    await write()
    await stream.update(scaling=eventproc.ScalingPolicy.fixed(4))
    await write()
    ballast = await ep.create_stream(f"{SCOPE}/{name}-ballast")
    async with ballast.writer() as writer:
        for _ in range(2):
            await writer.write(BALLAST)
    await ballast.truncate(await ballast.tail())
    if fate > 0:
        await stream.seal()
        note(f"sealed {name}")
    if fate > 1:
        note(f"deleting {name}")
        await stream.delete()


class LifecycleJournal:
    """The notes of a worker: {stream: rows acknowledged}, and the names of streams that were sealed or deleted."""

    def __init__(self, path: Path) -> None:
        self.acked: dict[str, int] = {}
        self.sealed: set[str] = set()
        self.deleting: set[str] = set()
        for line in path.read_text().splitlines():
            match line.split():
                case ["created", name]:
                    self.acked[name] = 0
                case ["acked", name, rows]:
                    self.acked[name] = int(rows)
                case ["sealed", name]:
                    self.sealed.add(name)
                case ["deleting", name]:
                    self.deleting.add(name)
                case unknown:
                    raise ValueError(unknown)


if __name__ == "__main__":
    asyncio.run(run_lifecycles(Path(sys.argv[1]), *sys.argv[2:]))
