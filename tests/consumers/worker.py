"""A process with one consumer of a group: it records each batch, then commits it; see test_consumer_processes."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import anyio

import eventproc
from eventproc import TopicPartition

PAUSE_S = 0.002
"""How long handling a batch takes: long enough for a kill to hit between recording and committing."""


def say(line: str) -> None:
    os.write(1, line.encode() + b"\n")


async def main(base: Path, name: str) -> None:
    out = os.open(base / "delivered", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    async def revoked(partitions: tuple[TopicPartition, ...]) -> None:
        await consumer.commit()

    async with eventproc.open(base / "store", create=False) as ep:
        group = await ep.group("s/g")
        consumer = group.consumer(name, auto_commit=False, on_revoked=revoked)
        async with consumer:
            say("online")
            while events := await consumer.poll(20):
                lines = (
                    b"%s %d %d %s\n" % (name.encode(), event.partition, event.number, event.payload)
                    for event in events
                )
                os.write(out, b"".join(lines))
                await anyio.sleep(PAUSE_S)
                await consumer.commit()
    say("ended")


if __name__ == "__main__":
    anyio.run(main, Path(sys.argv[1]), sys.argv[2])
