"""A process that consumes, transforms and produces, and kills itself at a fault point; see test_crashes.

    worker.py DIRECTORY [POINT COUNT]

Each input goes, in one joint transaction, to two of three streams. It prints "online", "processed" for each input,
and "ended" when no input is left. Every third transaction is staged, so that the host makes it visible.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import anyio

import eventproc
from eventproc.store.faults import NO_FAULTS
from eventproc.testing.faults import KillAt

TARGETS = ("s/a", "s/b", "s/c")


def outputs(number: int) -> tuple[str, str]:
    """Return the streams that the input `number` belongs into."""
    return TARGETS[number % 3], TARGETS[(number + 1) % 3]


async def main(directory: Path, point: str | None, count: int) -> None:
    faults = NO_FAULTS if point is None else KillAt(point, count)
    async with eventproc.open(directory, create=False, faults=faults) as ep:
        group = await ep.group("s/g")
        async with group.reader(f"r{os.getpid()}") as reader:
            os.write(1, b"online\n")
            async for event in reader:
                number = int(event.payload)
                async with ep.transaction(consumer=reader) as txn:
                    for target in outputs(number):
                        await txn.write(target, event.payload, key=event.key)
                    if number % 3 == 0:
                        await txn.flush()
                os.write(1, b"processed\n")
    os.write(1, b"ended\n")


if __name__ == "__main__":
    directory, *death = sys.argv[1:]
    anyio.run(main, Path(directory), death[0] if death else None, int(death[1]) if death else 0)
