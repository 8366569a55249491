"""Lifecycles of streams, for a process that is killed during one of them: workflows, and writes between them.

The process notes each step, so that the test knows what must be found: "created NAME", "acked NAME ROWS" after each
send, "sealed NAME", and "deleting NAME" before the stream is deleted.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import eventproc
from tests.system.protocol import batches, key_of, payload_of

SCOPE = "lives"
SENDS = 3
BALLAST = bytes(2**20)
"""An event that fills the log, so that a checkpoint comes soon; in a stream of its own."""


class JournalFile(Protocol):
    """A file without a buffer: it keeps what a killed process has written."""

    def write(self, line: bytes, /) -> object: ...


async def run_lifecycles(
    ep: eventproc.Eventproc, name: str, notes: JournalFile, ended: Callable[[], bool]
) -> None:
    """Make streams until `ended`. One third is deleted, one third is sealed only, one third is left open."""
    await ep.create_scope(SCOPE)
    for number in itertools.count():
        if ended():
            break
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
